-- Which departures of the last hour are most delayed at each airport?
--
-- The same question as `most_delayed`, asked of each airport by itself: GROUP BY, with no aggregate, ranks within the
-- groups. A small airport's tenth flight is a less delayed one, so it reports sooner, and less waiting would do.
--
-- Read a row as: of the flights scheduled to leave `origin` in the hour before `window_end`, this one is the
-- `rank`-th most delayed. The promise is over the winners of all airports together.
SELECT origin, carrier, flight, dest, scheduled, dep_delay
FROM departures [RANGE 60 MINUTES]
GROUP BY origin
ORDER BY dep_delay DESC
LIMIT 10
ACCURACY 90% EVERY 10 MINUTES
