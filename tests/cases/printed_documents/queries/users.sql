SELECT who, items, COUNT(*) AS n, SUM(quantity) AS quantity FROM s [RANGE 1 HOUR] GROUP BY who, items EVERY 30 MINUTES
