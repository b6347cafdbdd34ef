-- Who takes off in a strong wind, for places where flights land late as it is?
--
-- Joins three streams: each departure with the weather at its origin in the same hour, and with the flights
-- that landed at its destination within it. Only winds of 20 miles an hour or more, and only landings more
-- than 15 minutes late, count. Origins without such departures have no row.
--
-- Read a row as: in the hour before `window_end`, flights left `origin` in a wind of up to `wind` miles an
-- hour, `departure_delay` minutes late on average, for destinations at which flights landed `landing_delay`
-- minutes late; `pairs` counts departures times late landings.
SELECT
  d.origin,
  COUNT(*) AS pairs,
  AVG(d.dep_delay) AS departure_delay,
  AVG(l.arr_delay) AS landing_delay,
  MAX(w.wind_speed) AS wind
FROM departures [60 MINUTES] AS d, weather [60 MINUTES] AS w, landings [60 MINUTES] AS l
WHERE d.origin = w.origin AND d.dest = l.dest AND w.wind_speed >= 20 AND l.arr_delay > 15
GROUP BY d.origin
EVERY 10 MINUTES
