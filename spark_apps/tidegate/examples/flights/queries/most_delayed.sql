-- Which departures of the last hour are most delayed?
--
-- The hard question of out-of-order streams: a flight reports when it leaves, so the most delayed report
-- last. Asked at the end of the hour, the list misses more than half of the flights that belong on it.
-- Tidegate learns from the past hours how long the winners take to report, and waits that long (`slack_s`):
-- on average at least 90 % of the ten flights given are the ten that belong there.
--
-- Read a row as: of the flights scheduled in the hour before `window_end`, this one is the `rank`-th most
-- delayed, as known at `emitted_at`. Equal delays rank by scheduled departure, then by flight.
SELECT carrier, flight, origin, dest, scheduled, dep_delay
FROM departures [RANGE 60 MINUTES]
ORDER BY dep_delay DESC
LIMIT 10
ACCURACY 90% EVERY 10 MINUTES PRIORITY 10
