-- How has the storm treated the airports over the last six hours?
--
-- A question for a few days: it is asked from noon of 8 February on, when the storm was forecast, until 12 February.
-- While it is active, the window over the departures must hold six hours instead of the three or so of the other
-- queries (an hour, and the wait for late departures); memory is planned again when it starts and when it ends.
--
-- Read a row as: of the flights scheduled in the six hours before `window_end`, `departures` had left `origin`,
-- `mean_delay` minutes late on average. There is no promise, so no waiting. Where memory is short, windows take
-- turns to be as wide as this query needs; it is then answered at the end of the turn (`support_level` C), at least
-- once in three hours.
SELECT origin, COUNT(*) AS departures, AVG(dep_delay) AS mean_delay
FROM departures [RANGE 6 HOURS]
GROUP BY origin
EVERY 3 HOURS DURATION ['2013-02-08T12:00', '2013-02-12')
