"""Derived streams and a reference table: as Tidegate declares them, and by hand as tables of DuckDB's.

To Tidegate ``z`` and ``zz`` are derived streams, ``u`` is a union and ``uu`` derived of it; ``goods`` is a reference
table. DuckDB reads ``events_z``, ``events_zz``, ``events_u``, ``events_uu``, ``events_x_goods`` (JOIN) and
``events_x_goods_left`` (LEFT JOIN) instead, whose rows are made here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from infra.oracle.schedule import connect, parquet
from tests.oracle.streams import BEGIN, COLUMNS, STREAMS

from tidegate.declarations.derived_streams import DerivedStreams
from tidegate.declarations.models import Column, ReferenceTable, to_us
from tidegate.declarations.scope import StreamSchema
from tidegate.queries.scan import EventFiles
from tidegate.store.references import References, Version

DERIVED = {
    "z": "SELECT event_time, UPPER(k) AS k, n, v * 2 AS v, d, NOT b AS b, t FROM x WHERE n IS NOT NULL OR b",
    "zz": "SELECT event_time, COALESCE(k, 'none') AS k, n % 5 AS n, v + 1 AS v, d, b, t FROM z "
    "WHERE v < 50 OR v IS NULL",
    "u": "SELECT event_time, k, n, v, d, b, t FROM z UNION ALL "
    "SELECT event_time, LOWER(k), n % 7, n, d, NOT b, t FROM y WHERE b OR b IS NULL UNION ALL "
    "SELECT event_time, k, n, v, d, b, t FROM x WHERE n = 1 OR k = 'a'",
    "uu": "SELECT event_time, UPPER(k) AS k, n % 11 AS n, v, d, NOT b AS b, t FROM u WHERE v < 20 OR b",
}
_IDENTITY = "event_id, event_time, arrival_time"
# The same by hand, in the order in which they read each other.
_BY_HAND = {
    "z": f"SELECT {_IDENTITY}, upper(k) AS k, n, v * 2 AS v, d, NOT b AS b, t FROM {{x}} WHERE n IS NOT NULL OR b",
    "zz": f"SELECT {_IDENTITY}, coalesce(k, 'none') AS k, n % 5 AS n, v + 1 AS v, d, b, t FROM {{z}} "
    "WHERE v < 50 OR v IS NULL",
    "u": " UNION ALL ".join(
        f"SELECT '{n}:' || event_id AS event_id, event_time, arrival_time, {sql}"
        for n, sql in enumerate(
            [
                "k, n, v, d, b, t FROM {z}",
                "lower(k) AS k, n % 7 AS n, CAST(n AS DOUBLE) AS v, d, NOT b AS b, t FROM {y} WHERE b OR b IS NULL",
                "k, n, v, d, b, t FROM {x} WHERE n = 1 OR k = 'a'",
            ],
            1,
        )
    ),
    "uu": f"SELECT {_IDENTITY}, upper(k) AS k, n % 11 AS n, v, d, NOT b AS b, t FROM {{u}} WHERE v < 20 OR b",
}
_INTERVAL = timedelta(minutes=15)
GOODS = ReferenceTable(
    name="goods",
    path="/goods.csv",
    format="csv",
    columns=(Column(name="k", type="string"), Column(name="w", type="integer"), Column(name="m", type="string")),
    key=("k",),
)
# Of tuples that arrive in the first quarter of an hour, and of those that come later.
_VERSIONS = (
    [("a", 1, "one"), ("b", None, "two"), ("é", 3, None), ("", 0, "nothing")],
    [("a", -1, "one"), ("B", 2, "two"), ("日本", 7, "日"), ("NULL", 3, None)],
)
_WITH_GOODS = re.compile(r"\bx (\[\d+ MINUTES\]) AS l (LEFT )?JOIN goods AS g ON l\.k = g\.k")


@cache
def _derived_schemas() -> Mapping[str, StreamSchema]:
    with TemporaryDirectory(prefix="tidegate-oracle-") as folder:
        (Path(folder) / "streams").mkdir()
        for name, sql in DERIVED.items():
            (Path(folder) / "streams" / f"{name}.sql").write_text(sql)
        derived = DerivedStreams(dict(STREAMS))
        derived.read(Path(folder))
    assert not derived.mistakes and derived.schemas is not None
    return derived.schemas


def declared() -> Mapping[str, StreamSchema]:
    """The streams as a pipeline has them, derived ones among them."""
    return _derived_schemas()


def by_hand() -> Mapping[str, StreamSchema]:
    """The streams that DuckDB reads: each with rows of its own."""
    plain = {"event_time": "timestamp", **COLUMNS}
    looked_up = {**plain, "w": "integer", "m": "string"}
    streams = {name: StreamSchema(name, plain) for name in (*STREAMS, *DERIVED)}
    return streams | {name: StreamSchema(name, looked_up) for name in ("x_goods", "x_goods_left")}


def text_by_hand(text: str) -> str:
    """The query over what DuckDB reads: columns of the table are those of the stream that has them."""
    return _WITH_GOODS.sub(lambda at: f"x_goods{'_left' if at[2] else ''} {at[1]} AS l", text).replace("g.", "l.")


def write_meanings(files: Mapping[str, EventFiles], folder: Path) -> dict[str, EventFiles]:
    """Write the rows that DuckDB reads; the streams' files with the versions of the reference table."""
    connection = connect()
    tables = {name: parquet(folder, f"events_{name}") for name in STREAMS}
    for name, sql in _BY_HAND.items():
        write_rows(connection, sql.format(**tables), folder, name)
        tables[name] = parquet(folder, f"events_{name}")
    rows = [(late, *row) for late, version in enumerate(_VERSIONS) for row in version]
    connection.register(
        "goods", pa.table([list(column) for column in zip(*rows, strict=True)], ["late", "key", "w", "m"])
    )
    change = f"{BEGIN + _INTERVAL:%Y-%m-%d %H:%M:%S}+00"
    for kind, name in (("JOIN", "x_goods"), ("LEFT JOIN", "x_goods_left")):
        on = f"key = k AND late = CAST(arrival_time >= TIMESTAMPTZ '{change}' AS INTEGER)"
        write_rows(connection, f"SELECT e.*, w, m FROM {tables['x']} AS e {kind} goods ON {on}", folder, name)
    versions = {}
    for number, version in enumerate(_VERSIONS):
        path = folder / f"goods-{number}.parquet"
        named = [{"table_version": str(number), "k": k, "w": w, "m": m} for k, w, m in version]
        pq.write_table(pa.Table.from_pylist(named), path)
        versions[number] = Version(str(number), (str(path),))
    in_effect = {to_us(BEGIN + n * _INTERVAL): versions[min(n, 1)] for n in range(8)}
    references = References({"goods": GOODS}, {"goods": in_effect}, round(_INTERVAL.total_seconds() * 1e6))
    return {name: replace(of, references=references) for name, of in files.items()}


def write_rows(connection: Any, sql: str, folder: Path, stream: str) -> None:
    """Write what a statement gives as the tuples of a stream."""
    path = folder / f"events_{stream}" / "interval=1" / "1.parquet"
    path.parent.mkdir(parents=True)
    connection.execute(f"COPY ({sql}) TO '{path}' (FORMAT parquet)")
