-- Revenue of the last hour by country.
--
-- The comment at the top is the query's documentation everywhere; its first paragraph is the title.
-- ERROR 10%: Tidegate waits for late orders, as long as it takes for every value to be within 10 % of its final one in at
-- least 95 % of a day's windows. When memory is short, it may hold a little less than the hour, within the same 10 %.
SELECT country, COUNT(*) AS orders, SUM(amount) AS revenue
FROM orders [RANGE 60 MINUTES]
GROUP BY country
ERROR 10% EVERY 5 MINUTES
