"""The hand-written query for engines that have SQL: what it does once panes are counted, the same for all of them."""

STEPS = """
), changes AS (
    SELECT key, w, SUM(l) AS l, SUM(s) AS s, SUM(r) AS r FROM (
        SELECT key, p + 1 AS w, l, s, r FROM panes
        UNION ALL
        SELECT key, p + 1 + {width} AS w, -l, -s, -r FROM panes WHERE p + 1 + {width} <= {windows}
    ) GROUP BY key, w
), totals AS (
    SELECT w, l, s, r, SUM(l) OVER so_far AS ls, SUM(s) OVER so_far AS ss, SUM(r) OVER so_far AS rs FROM changes
    WINDOW so_far AS (PARTITION BY key ORDER BY w ROWS UNBOUNDED PRECEDING)
), deltas AS (
    SELECT w, SUM(ls * rs - (ls - l) * (rs - r)) AS count, SUM(ss * rs - (ss - s) * (rs - r)) AS sum
    FROM totals GROUP BY w
)
SELECT w, SUM(count) OVER so_far AS count, SUM(sum) OVER so_far AS sum FROM deltas
WINDOW so_far AS (ORDER BY w ROWS UNBOUNDED PRECEDING)
"""
"""Behind ``WITH panes AS (…``, a row a key and pane with the tuples of the left (l, their sum s) and of the right (r).

Signed changes per key and tick; running totals per key; what each changes in the product; running totals of that.
"""
