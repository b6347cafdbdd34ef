SELECT size, COUNT(*) AS n, SUM(price) AS price, COUNT(note) AS noted FROM s [RANGE 1 HOUR] GROUP BY size EVERY 30 MINUTES
