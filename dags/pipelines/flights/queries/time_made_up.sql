-- Which of the last hour's landings made up the most time on the way?
--
-- Flights that left more than a quarter of an hour late, ranked by how many minutes less late they landed. Whether a
-- landing is reported soon has nothing to do with the time made up, so a short wait suffices: compare
-- `slack_s` with that of most_delayed.
--
-- Read a row as: of the flights that landed in the hour before `window_end`, this one made up the `rank`-th
-- most time, `made_up` minutes: it left `dep_delay` minutes late and landed `arr_delay` minutes late.
SELECT flight_id, carrier, origin, dest, dep_delay, arr_delay, dep_delay - arr_delay AS made_up
FROM landings [RANGE 60 MINUTES]
WHERE dep_delay > 15
ORDER BY dep_delay - arr_delay DESC
LIMIT 5
ACCURACY 95% EVERY 10 MINUTES
