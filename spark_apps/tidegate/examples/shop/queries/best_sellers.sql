-- The three best sellers of the last half hour, by revenue.
--
-- ORDER BY an aggregate and LIMIT rank groups. ACCURACY 90%: on average at least 90 % of the products that it names are
-- among the true three. A late order matters only where it moves a product into the three or out of them.
SELECT product, SUM(amount) AS revenue, COUNT(*) AS orders
FROM orders [RANGE 30 MINUTES]
GROUP BY product
ORDER BY revenue DESC
LIMIT 3
ACCURACY 90% EVERY 5 MINUTES
