-- How fast do the flights travel over the ground?
--
-- Miles flown over hours in the air, of all flights that landed in the last six hours: some 400 miles an
-- hour, less for flights to the west against the jet stream. The window is the widest of this pipeline. When
-- memory is short, it is the first to be narrowed: `width_s` says how many seconds of it were held,
-- `coverage` which share. ERROR allows that as long as the speed stays within 20 % of that over the full six
-- hours in at least 95 % of the windows.
--
-- Read a row as: the flights that landed in the six hours before `window_end` averaged `mph`.
SELECT AVG(distance) / AVG(air_time) * 60 AS mph
FROM landings [RANGE 6 HOURS]
WHERE air_time IS NOT NULL
ERROR 20% EVERY 10 MINUTES
