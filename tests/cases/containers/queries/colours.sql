SELECT colour, COUNT(*) AS n, SUM(amount) AS amount, COUNT(city) AS cities, SUM(part) AS parts FROM s [RANGE 1 HOUR] GROUP BY colour EVERY 30 MINUTES
