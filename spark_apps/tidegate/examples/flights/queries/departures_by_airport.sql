-- How many flights of the last hour's schedule have left each airport?
--
-- A flight counts in the hour of its scheduled departure, and is known only once it has left: an answer given
-- at once would miss every delayed flight. Tidegate waits (`slack_s`) until the count is within 10 % of what
-- it will be when the last one has left, in at least 95 % of the windows.
--
-- Read a row as: of the flights scheduled in the hour before `window_end`, `departures` had left `origin` by
-- `emitted_at`.
SELECT origin, COUNT(*) AS departures
FROM departures [RANGE 60 MINUTES]
GROUP BY origin
ERROR 10% EVERY 10 MINUTES PRIORITY 10
