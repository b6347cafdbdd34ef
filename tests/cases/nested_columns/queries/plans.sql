SELECT plan, COUNT(*) AS n, SUM(fare) AS fares, SUM(stars) AS stars, SUM(lat) AS lat, SUM(seats) AS seats FROM s [RANGE 1 HOUR] GROUP BY plan EVERY 30 MINUTES
