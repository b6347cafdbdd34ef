SELECT status, COUNT(*) AS n, SUM(octets) AS octets, COUNT(octets) AS sized FROM s [RANGE 1 HOUR] GROUP BY status EVERY 30 MINUTES
