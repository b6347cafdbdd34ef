"""The pipeline's three queries on Flink SQL in streaming mode, from the hour's files of JSON lines; answers alone.

Runs under an interpreter of its own, which waits for the folder of an hour, line by line, and says ``done``.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from infra.benchmarks.rivals import flink

WATERMARK = "INTERVAL '10' MINUTE"
SOURCES = {
    "orders": "order_id STRING, placed_at TIMESTAMP_LTZ(3), received_at TIMESTAMP_LTZ(3), customer STRING, "
    "country STRING, amount DOUBLE, WATERMARK FOR placed_at AS placed_at - {watermark}",
    "payments": "payment_id STRING, order_ref STRING, paid_at TIMESTAMP_LTZ(3), seen_at TIMESTAMP_LTZ(3), "
    "fee DOUBLE, WATERMARK FOR paid_at AS paid_at - {watermark}",
}
FILES = (
    "CREATE TEMPORARY TABLE {name} ({columns}) WITH ('connector' = 'filesystem', 'path' = '{path}', "
    "'format' = 'json', 'json.timestamp-format.standard' = 'ISO-8601')"
)
BOTH = """
CREATE TEMPORARY VIEW both_sides AS
SELECT placed_at AS ts, order_id AS k, country, 1 AS o, 0 AS p, CAST(0 AS DOUBLE) AS fee FROM orders
UNION ALL
SELECT paid_at, order_ref, CAST(NULL AS STRING), 0, 1, fee FROM payments
"""
PANES = """
CREATE TEMPORARY VIEW panes AS SELECT wt, order_id, customer, amount FROM (
    SELECT window_time AS wt, order_id, customer, amount,
        ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY amount DESC) AS place
    FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(placed_at), INTERVAL '1' MINUTE))
) WHERE place <= 10
"""
QUERIES = {
    "sales": """
SELECT window_end, country, COUNT(*), SUM(amount)
FROM TABLE(HOP(TABLE orders, DESCRIPTOR(placed_at), INTERVAL '1' MINUTE, INTERVAL '10' MINUTE))
GROUP BY country, window_start, window_end
""",
    "paid": """
SELECT window_end, country, SUM(o * p), SUM(o * fee) FROM (
    SELECT window_start, window_end, SUM(o) AS o, SUM(p) AS p, SUM(fee) AS fee, MAX(country) AS country
    FROM TABLE(HOP(TABLE both_sides, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '5' MINUTE))
    GROUP BY k, window_start, window_end
) WHERE o > 0 AND p > 0 GROUP BY country, window_start, window_end
""",
    "largest": """
SELECT window_end, order_id, customer, amount FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY amount DESC) AS place
    FROM TABLE(HOP(TABLE panes, DESCRIPTOR(wt), INTERVAL '1' MINUTE, INTERVAL '10' MINUTE))
) WHERE place <= 10
""",
}


def child(venv: Path) -> subprocess.Popen[str]:
    """A process that answers hours, one after the other."""
    command = [str(flink.interpreter(venv, lambda text: print(text, file=sys.stderr))), "-m", __spec__.name]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def answer(tables: Any, folder: Path) -> dict[str, int]:
    """Query → how many rows its answers have."""
    for name, columns in SOURCES.items():
        path, told = folder / name, columns.format(watermark=WATERMARK)
        tables.execute_sql(f"DROP TEMPORARY TABLE IF EXISTS {name}")
        tables.execute_sql(FILES.format(name=name, columns=told, path=path))
    for name, view in (("both_sides", BOTH), ("panes", PANES)):
        tables.execute_sql(f"DROP TEMPORARY VIEW IF EXISTS {name}")
        tables.execute_sql(view)
    counts = {}
    for name, query in QUERIES.items():
        with tables.execute_sql(query).collect() as rows:
            counts[name] = sum(1 for _ in rows)
    return counts


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        environment = flink.start(SimpleNamespace(scratch=scratch))  # type: ignore[arg-type]
        for line in sys.stdin:
            print("done", answer(environment, Path(line.strip())), flush=True)
