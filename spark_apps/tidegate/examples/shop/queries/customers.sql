-- Customers of the last half hour by country, and their median order.
--
-- COUNT(DISTINCT …) counts a customer with several orders once. PERCENTILE_APPROX is within 1/10000 of the true value.
SELECT country, COUNT(DISTINCT customer) AS customers, PERCENTILE_APPROX(amount, 0.5) AS median_order
FROM orders [RANGE 30 MINUTES]
GROUP BY country
ERROR 10% EVERY 5 MINUTES
