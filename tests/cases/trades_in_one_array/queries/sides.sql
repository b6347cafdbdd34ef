SELECT side, COUNT(*) AS n, SUM(size) AS size, MAX(price) AS dearest FROM s [RANGE 1 HOUR] GROUP BY side EVERY 30 MINUTES
