-- Each carrier's last hour: how late does it take off, and how late does it land?
--
-- Pairs each departure of a carrier with each of its landings within the same hour: a carrier with 20 departures
-- and 10 landings has 200 pairs, and its means are those over its departures and over its landings. Carriers
-- that only left, or only landed, have no row.
--
-- Read a row as: in the hour before `window_end`, `carrier` departed `departure_delay` minutes late and landed
-- `landing_delay` minutes late (negative: early) on average, over `pairs` pairs.
SELECT
  d.carrier,
  COUNT(*) AS pairs,
  AVG(d.dep_delay) AS departure_delay,
  AVG(l.arr_delay) AS landing_delay
FROM departures [60 MINUTES] AS d, landings [60 MINUTES] AS l
WHERE d.carrier = l.carrier
GROUP BY d.carrier
EVERY 10 MINUTES
