-- Which airports sent flights off in a strong wind during the last hour, and how late were they?
--
-- Pairs each departure with the airport's weather of the same hour, and keeps the pairs with a wind of 20
-- miles an hour or more. There is one observation an hour, so COUNT(*) is the number of flights. Airports
-- with a calmer hour have no row; most windows of a calm day have none at all.
--
-- Read a row as: in the hour before `window_end` the wind at `origin` blew at `wind` miles an hour;
-- `departures` flights scheduled in that hour have left, `mean_delay` minutes late on average and
-- `longest_delay` at worst. Without a promise there is no waiting: the row tells what was known when the
-- window ended, and the most delayed flights report later.
SELECT
  d.origin,
  COUNT(*) AS departures,
  AVG(d.dep_delay) AS mean_delay,
  MAX(d.dep_delay) AS longest_delay,
  MAX(w.wind_speed) AS wind
FROM departures [60 MINUTES] AS d, weather [60 MINUTES] AS w
WHERE d.origin = w.origin AND w.wind_speed >= 20
GROUP BY d.origin
EVERY 10 MINUTES
