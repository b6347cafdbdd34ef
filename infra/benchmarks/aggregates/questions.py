"""What is asked, in Tidegate's language and in DuckDB's best form of it.

DuckDB gets panes as wide as the slide and, for each key, a row a tick (``grid``); what merges is signed changes with
running totals over that grid, so a tuple counts twice and not once for each of its windows.
"""

from __future__ import annotations

from dataclasses import dataclass

BEST = 10

_GRID = """
WITH tuples AS (
    SELECT key, value, (epoch_us(event_time) - {start_us}) // {every_us} + 1 AS w FROM read_parquet('{files}')
), grid AS (
    SELECT key, w FROM (SELECT DISTINCT key FROM tuples), (SELECT unnest(range(1, {windows} + 1)) AS w)
), """
_TOTALS = """panes AS (
    SELECT key, w, COUNT(*) AS n, SUM(value) AS s, SUM(value * value) AS q FROM tuples GROUP BY ALL
), changes AS (
    SELECT key, w, SUM(n) AS n, SUM(s) AS s, SUM(q) AS q FROM (
        SELECT * FROM panes UNION ALL SELECT key, w + {width}, -n, -s, -q FROM panes
    ) GROUP BY ALL
), totals AS (
    SELECT key, w, SUM(n) OVER so_far AS n, SUM(s) OVER so_far AS s, SUM(q) OVER so_far AS q
    FROM grid LEFT JOIN changes USING (key, w)
    WINDOW so_far AS (PARTITION BY key ORDER BY w ROWS UNBOUNDED PRECEDING)
)
"""
_VALUES = """seen AS (
    SELECT key, w, LEAD(w) OVER (PARTITION BY key, value ORDER BY w) AS again
    FROM (SELECT DISTINCT key, value, w FROM tuples)
), changes AS (
    SELECT key, w, SUM(n) AS n FROM (
        SELECT key, w, 1 AS n FROM seen
        UNION ALL SELECT key, LEAST(w + {width}, COALESCE(again, w + {width})), -1 FROM seen
    ) GROUP BY ALL
), totals AS (
    SELECT key, w, SUM(n) OVER (PARTITION BY key ORDER BY w ROWS UNBOUNDED PRECEDING) AS n
    FROM grid LEFT JOIN changes USING (key, w)
)
"""
_QUANTILES = """ordered AS (
    SELECT key, w, value, FALSE AS is_tick FROM tuples UNION ALL SELECT key, w, NULL, TRUE FROM grid
), totals AS (
    SELECT key, w, is_tick, COUNT(value) OVER held AS n, QUANTILE_CONT(value, 0.95) OVER held AS p FROM ordered
    WINDOW held AS (PARTITION BY key ORDER BY w RANGE BETWEEN {width} - 1 PRECEDING AND CURRENT ROW)
)
"""


@dataclass(frozen=True)
class Question:
    """``outputs``: the SELECT list behind the key, as ``answer``; ``tail``: what follows GROUP BY. ``merges``: whether
    values of panes merge into those of windows.
    """

    output: str
    tail: str
    duckdb: str
    merges: bool


QUESTIONS = {
    "stddev": Question(
        "STDDEV(value)",
        "",
        _GRID + _TOTALS + "SELECT key, w, SQRT(GREATEST(q - s * s / n, 0) / NULLIF(n - 1, 0)) AS answer "
        "FROM totals WHERE n > 0",
        True,
    ),
    "distinct": Question(
        "COUNT(DISTINCT value)",
        "",
        _GRID + _VALUES + "SELECT key, w, n AS answer FROM totals WHERE n > 0",
        True,
    ),
    "percentile": Question(
        "PERCENTILE(value, 0.95)",
        "",
        _GRID + _QUANTILES + "SELECT key, w, p AS answer FROM totals WHERE is_tick AND n > 0",
        False,
    ),
    "best": Question(
        "SUM(value)",
        f" ORDER BY answer DESC LIMIT {BEST}",
        _GRID + _TOTALS + "SELECT key, w, s AS answer FROM totals WHERE n > 0 "
        f"QUALIFY ROW_NUMBER() OVER (PARTITION BY w ORDER BY s DESC, key) <= {BEST}",
        True,
    ),
}
