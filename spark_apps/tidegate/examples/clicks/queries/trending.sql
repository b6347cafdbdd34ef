-- Pages with fifty clicks or more in the last five minutes.
--
-- Nothing is promised, so nothing is waited for: the answer is what was known when the window ended.
SELECT page, COUNT(*) AS clicks
FROM clicks [RANGE 5 MINUTES]
GROUP BY page
HAVING COUNT(*) >= 50
EVERY 1 MINUTE
