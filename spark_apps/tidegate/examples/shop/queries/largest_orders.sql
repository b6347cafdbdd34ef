-- The five largest orders of the last half hour.
--
-- The hard question: large orders are checked by hand before they are sent on, so they are the last to arrive.
-- ACCURACY 90%: Tidegate learns how long to wait so that at least 90 % of the orders it names belong on the list.
SELECT order_id, country, product, amount, placed_at
FROM orders [RANGE 30 MINUTES]
ORDER BY amount DESC
LIMIT 5
ACCURACY 90% EVERY 5 MINUTES
