-- How many flights did each carrier land in the last four hours, and how late?
--
-- Asked every three hours until the end of 8 February; then somebody turned it off. While it is active the window over
-- the landings must hold four whole hours; after that ground_speed, which tolerates an error, sets the width.
--
-- Read a row as: in the four hours before `window_end`, `carrier` landed `landings` flights that had been reported by
-- then, `mean_delay` minutes late on average (negative: early).
SELECT carrier, COUNT(*) AS landings, AVG(arr_delay) AS mean_delay
FROM landings [RANGE 4 HOURS]
GROUP BY carrier
EVERY 3 HOURS DURATION ['2013-01-01', '2013-02-09')
