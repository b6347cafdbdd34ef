-- The two strongest vibrations in each hall within the last five minutes.
--
-- GROUP BY without an aggregate ranks within the groups. A strong vibration is sent with its waveform, and so arrives
-- later than the others: ACCURACY 90% makes Tidegate learn how long to wait for it.
SELECT hall, machine, vibration, measured_at
FROM readings [RANGE 5 MINUTES]
GROUP BY hall
ORDER BY vibration DESC
LIMIT 2
ACCURACY 90% EVERY 1 MINUTE
