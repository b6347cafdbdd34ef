-- Machines that raised alarms in the last quarter of an hour while they ran hot.
--
-- A join of two streams: each reading of the last five minutes with each alarm of the same machine in the last fifteen.
-- HAVING keeps the machines that were above 65 degrees. Without a promise there is no waiting.
SELECT r.machine, COUNT(*) AS pairs, MAX(r.temperature) AS hottest, MAX(a.severity) AS worst_alarm
FROM readings [5 MINUTES] AS r, alarms [15 MINUTES] AS a
WHERE r.machine = a.machine AND a.severity >= 2
GROUP BY r.machine
HAVING MAX(r.temperature) > 65
EVERY 1 MINUTE
