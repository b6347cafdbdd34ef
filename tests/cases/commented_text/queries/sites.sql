SELECT site, COUNT(*) AS n, SUM(value) AS total, COUNT(code) AS coded FROM s [RANGE 1 HOUR] GROUP BY site EVERY 30 MINUTES
