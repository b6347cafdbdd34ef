-- Each carrier's flights of the last hour: how late do flights land where they are going?
--
-- Pairs each departure with every flight, of any carrier, that landed at the same destination in the last two
-- hours: a destination with ten landings weighs ten times. A carrier that leaves on time for airports where
-- everyone lands late has trouble ahead.
--
-- Read a row as: `carrier` had departures in the hour before `window_end`, `departure_delay` minutes late on
-- average; at their destinations flights landed `landing_delay` minutes late (negative: early), over `pairs`
-- pairs. Carriers with fewer than five pairs are left out.
SELECT
  d.carrier,
  COUNT(*) AS pairs,
  AVG(d.dep_delay) AS departure_delay,
  AVG(l.arr_delay) AS landing_delay
FROM departures [60 MINUTES] AS d, landings [2 HOURS] AS l
WHERE d.dest = l.dest
GROUP BY d.carrier
HAVING COUNT(*) >= 5
EVERY 10 MINUTES
