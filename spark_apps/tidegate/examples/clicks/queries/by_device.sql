-- Clicks of the last quarter of an hour by device, and how long their pages took.
--
-- ERROR 5%: Tidegate waits for late clicks, as long as it takes for every value to be within 5 % of its final one in at
-- least 95 % of a day's windows. Phones are late most often, so they decide.
SELECT device, COUNT(*) AS clicks, AVG(load_ms) AS load_ms
FROM clicks [RANGE 15 MINUTES]
GROUP BY device
ERROR 5% EVERY 5 MINUTES
