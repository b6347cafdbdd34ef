SELECT tags, COUNT(*) AS n, SUM(odd) AS total, MAX(number) AS largest FROM s [RANGE 1 HOUR] GROUP BY tags EVERY 30 MINUTES
