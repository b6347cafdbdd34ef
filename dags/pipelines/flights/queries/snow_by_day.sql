-- What fell on each airport on each day of New York, and how hard did the wind blow?
--
-- A day here is New York's: its windows end at local midnights, at 5:00 UTC in winter and 4:00 in summer; the one of
-- 10 March is 23 hours long, that of 3 November 25.
--
-- Read a row as: on the day that ended at `window_end`, `inches` of rain or melted snow fell on `origin`, and the
-- strongest gust was of `gust` miles an hour. On a dry day 5 % of nothing is nothing: the answer may be off by a
-- hundredth of an inch, the least that is measured.
SELECT origin, SUM(precip) AS inches, MAX(wind_gust) AS gust
FROM weather
GROUP BY origin
ERROR 5% OR 0.01 IN inches EVERY 1 DAY AT TIME ZONE 'America/New_York'
