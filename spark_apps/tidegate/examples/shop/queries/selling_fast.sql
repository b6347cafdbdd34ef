-- Products that sold ten times or more in the last ten minutes.
--
-- Nothing is promised, so nothing is waited for: the answer is what was known when the window ended.
SELECT product, COUNT(*) AS orders, AVG(amount) AS mean_amount
FROM orders [RANGE 10 MINUTES]
GROUP BY product
HAVING COUNT(*) >= 10
EVERY 5 MINUTES
