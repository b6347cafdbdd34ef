-- Which departures of the last hour are most delayed at each carrier?
--
-- `QUALIFY ROW_NUMBER() OVER (PARTITION BY …)` is the other way to ask for the best of each group. Few carriers have
-- more than ten departures in an hour, so most lists are whole: the answer has to wait for nearly all flights, not
-- only for the late ones.
--
-- Read a row as: of the flights of `carrier` scheduled in the hour before `window_end`, this one is the `rank`-th most
-- delayed. The promise is over the winners of all carriers together.
SELECT carrier, flight, origin, dest, scheduled, dep_delay
FROM departures [RANGE 60 MINUTES]
QUALIFY ROW_NUMBER() OVER (PARTITION BY carrier ORDER BY dep_delay DESC) <= 10
ACCURACY 90% EVERY 10 MINUTES
