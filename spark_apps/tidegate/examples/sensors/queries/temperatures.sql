-- How hot did each machine run in the last ten minutes?
--
-- ERROR 10%: every value is within 10 % of the one over all readings, in at least 95 % of a day's windows.
SELECT machine, COUNT(*) AS readings, AVG(temperature) AS mean_temperature, MAX(temperature) AS hottest
FROM readings [RANGE 10 MINUTES]
GROUP BY machine
ERROR 10% EVERY 1 MINUTE
