SELECT note, COUNT(*) AS n, SUM(total) AS total, COUNT(total) AS valued FROM s [RANGE 1 HOUR] GROUP BY note EVERY 30 MINUTES
