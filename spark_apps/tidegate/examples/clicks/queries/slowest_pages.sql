-- The five slowest page views of the last ten minutes, with their places in the topic.
--
-- The hard question: a slow page is often seen over a bad connection, and a bad connection reports it late.
-- ACCURACY 90%: Tidegate learns how long to wait so that at least 90 % of the views it names belong on the list.
SELECT click_id, page, visitor, load_ms, shard, place
FROM clicks [RANGE 10 MINUTES]
ORDER BY load_ms DESC
LIMIT 5
ACCURACY 90% EVERY 5 MINUTES
