"""Files of Parquet and Avro: values in the declared types, in others that hold the same, odd ones, nested or not."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tests.attacks.odd import ARROW, TEXTS
from tests.attacks.text_files import RECORDS, Attack
from tests.attacks.written import EPOCH, PER_SECOND, good, random_number, text_of

from tidegate.declarations.models import Column, Stream

DAY_US = 86_400_000_000


def parquet_file(chance: Random, stream: Stream, serial: int) -> Attack:
    """A file of Parquet, whole or damaged."""
    records = [good(chance, serial + i) for i in range(RECORDS)]
    arrays = {c.name: array_of(chance, c, [r[c.name] for r in records]) for c in stream.columns}
    try:
        content = parquet_bytes(chance, table_of(chance, stream, arrays))
    except pa.ArrowNotImplementedError:  # not every type can stand within another
        plain = {name: pa.array(array.to_pylist()) for name, array in arrays.items()}
        content = parquet_bytes(chance, table_of(chance, stream, plain))
    return damaged(chance, stream, f"{serial}.parquet", content)


def damaged(chance: Random, stream: Stream, name: str, content: bytes) -> Attack:
    """Mostly whole; else cut off, or, of Parquet, with other octets somewhere."""
    at = chance.randrange(len(content))
    octets = bytes(chance.randrange(256) for _ in range(chance.choice([1, 1, 8])))
    changed = content[:at] + octets + content[at + len(octets) :]
    spoilt = chance.choice([content[:at], changed]) if stream.format == "parquet" else content[:at]
    return Attack(stream.name, name, content if chance.randrange(6) else spoilt)


def parquet_bytes(chance: Random, table: pa.Table) -> bytes:
    """A table as a file, by some of the ways in which one is written."""
    sink, version = io.BytesIO(), chance.choice(["1.0", "2.4", "2.6", "2.6"])
    pq.write_table(
        table,
        sink,
        compression=chance.choice(["snappy", "gzip", "zstd", "none"]),
        row_group_size=chance.choice([RECORDS, 7]),
        version=version,
        data_page_version=chance.choice(["1.0", "2.0"]),
        coerce_timestamps=None if version == "2.6" else "us",
        allow_truncated_timestamps=True,
    )
    return sink.getvalue()


def table_of(chance: Random, stream: Stream, arrays: dict[str, pa.Array]) -> pa.Table:
    """The columns where the stream reads them: at the top, in structs, in lists of one element; some are missing."""
    top: dict[str, Any] = {}
    for column in stream.columns:
        if chance.randrange(60) == 0:
            continue
        node = top
        steps = list(column.steps)
        whole = "".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in steps).removeprefix(".")
        if len(steps) > 1 and chance.randrange(10) == 0:  # a column of this very name goes before the path
            steps = [whole]
        for step in steps[:-1]:
            node = node.setdefault(step, {})
        node[steps[-1]] = arrays[column.name]
    if chance.randrange(4) == 0:
        odd = chance.choice([array for array in ARROW if array.type != pa.timestamp("s")])
        top[chance.choice([*top, "ID", "_file"])] = pa.concat_arrays([odd] * RECORDS)[:RECORDS]
    return pa.table({name: _nested(chance, node) for name, node in top.items()})


def _nested(chance: Random, node: Any) -> pa.Array:
    if not isinstance(node, dict):
        return node
    missing = np.array([chance.randrange(25) == 0 for _ in range(RECORDS)])
    if 0 in node:  # a list
        element = _nested(chance, node[0])
        there = np.array([chance.randrange(25) > 0 for _ in range(RECORDS)]) & ~missing
        offsets = np.concatenate([[0], np.cumsum(there)]).tolist()
        starts: list[int | None] = [None if gone else at for at, gone in zip(offsets, [*missing, False], strict=True)]
        return pa.ListArray.from_arrays(pa.array(starts, pa.int32()), element.filter(pa.array(there)))
    children = [_nested(chance, child) for child in node.values()]
    return pa.StructArray.from_arrays(children, names=list(node), mask=pa.array(missing))


def array_of(chance: Random, column: Column, values: list[Any]) -> pa.Array:
    """The values in one of the forms in which a column of Parquet may hold them, some of them odd."""
    values = [v if chance.randrange(20) else None for v in values]
    if column.type == "string" or chance.randrange(4) == 0:
        return _texts(chance, column, values)
    if column.type in ("timestamp", "date"):
        return _times(chance, column, values)
    if column.type == "integer":
        small = [None if v is None else v % 100 for v in values]
        return chance.choice([pa.array(values, pa.int64()), pa.array(small, pa.int8()), pa.array(small, pa.uint32()),
                              pa.array([v if v is None else Decimal(v) for v in values], pa.decimal128(25, 2)),
                              pa.array([v if v is None else float(v) for v in small])])  # fmt: skip
    if column.type == "double":
        odd = [v if chance.randrange(20) else chance.choice([float("nan"), float("inf"), None]) for v in values]
        narrow = np.array([v if v is not None and v < 9 else 0.0 for v in values]).astype(np.float32)
        return chance.choice([pa.array(odd, pa.float64()), pa.array(narrow), pa.array(narrow.astype(np.float16))])
    if column.type == "boolean":
        return chance.choice(
            [pa.array(values, pa.bool_()), pa.array([None if v is None else int(v) for v in values], pa.int8())]
        )
    floats = [None if v is None else float(v) + chance.choice([0, 0.0004, 0.0005]) for v in values]
    whole = [None if v is None else int(v) for v in values]
    exact = pa.array(values, pa.decimal128(20, chance.choice([3, 6])))
    return chance.choice([exact, exact, pa.array(floats, pa.float64()), pa.array(whole, pa.int64())])


def _texts(chance: Random, column: Column, values: list[Any]) -> pa.Array:
    texts = [text_of(chance, column, value) for value in values]
    if chance.randrange(2):
        texts = [t if chance.randrange(12) else chance.choice([*TEXTS, random_number(chance)]) for t in texts]
    array = pa.array(texts, pa.string())
    views = [array, array.cast(pa.large_string()), array.dictionary_encode(), array.cast(pa.string_view())]
    return chance.choice(views)


def us_of(value: Any) -> int | None:
    """Microseconds since 1970-01-01 of an instant, or of a day's begin in UTC."""
    if value is None:
        return None
    at = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day, tzinfo=UTC)
    return (at - EPOCH) // timedelta(microseconds=1)


def _times(chance: Random, column: Column, values: list[Any]) -> pa.Array:
    """Instants as a column of timestamps or dates of some unit and zone, or of counts where these are declared."""
    if column.format in PER_SECOND and chance.randrange(3):
        counts = [None if v is None else Decimal(us_of(v)) * PER_SECOND[column.format] / 10**6 for v in values]  # type: ignore[arg-type]
        floats = pa.array([None if c is None else float(c) for c in counts], pa.float64())
        whole = [None if c is None or abs(c) >= 2**63 else int(c) for c in counts]
        exact = pa.array([None if c is None else round(c, 9) for c in counts], pa.decimal128(38, 9))
        return chance.choice([pa.array(whole, pa.int64()), floats, exact])
    unit = chance.choice(["s", "ms", "us", "us", "ns"])
    by = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}[unit]
    times = 1_000 if unit == "ns" else 1
    zone = chance.choice([None, None, "UTC", "Europe/Berlin"])
    instants = [us_of(_local(v, column.zone) if zone is None and isinstance(v, datetime) else v) for v in values]
    if chance.randrange(5) == 0:
        return pa.array([None if us is None else us // DAY_US for us in instants], pa.int32()).cast(pa.date32())
    whole = [None if us is None or abs(us * times) >= 2**63 else us * times // by for us in instants]
    return pa.array(whole, pa.int64()).cast(pa.timestamp(unit, zone))


def _local(at: datetime, zone: str) -> datetime:
    return at.astimezone(ZoneInfo(zone)).replace(tzinfo=UTC)


# Avro


def avro_file(chance: Random, stream: Stream, serial: int) -> Attack:
    """An Avro container, whole or cut off."""
    import fastavro

    forms = {column.name: avro_form(chance, column) for column in stream.columns}
    tree: dict[str, Any] = {}
    for column in stream.columns:
        if chance.randrange(60):
            node = tree
            for step in column.steps[:-1]:
                node = node.setdefault(step, {})
            node[column.steps[-1]] = column.name
    if chance.randrange(4) == 0:
        tree["colour"], forms["colour"] = "colour", ("bytes", lambda value: b"x")
    schema = _schema(tree, forms, ["event"])
    rows = []
    for number in range(RECORDS):
        values = good(chance, serial + number)
        for column in stream.columns:
            if chance.randrange(20) == 0:
                values[column.name] = None
        rows.append(_avro_value(chance, tree, forms, {**values, "colour": b"x"}, top=True))
    out = io.BytesIO()
    codec, interval = chance.choice(["null", "deflate"]), chance.choice([500, 16_000])
    fastavro.writer(out, fastavro.parse_schema(schema), rows, codec=codec, sync_interval=interval)
    return damaged(chance, stream, f"{serial}.avro", out.getvalue())


Form = tuple[Any, Callable[[Any], Any]]


def _schema(node: Any, forms: dict[str, Form], names: list[str]) -> Any:
    """The schema of a tree of columns; ``names``: of the records so far."""
    if isinstance(node, str):
        return forms[node][0]
    if 0 in node:
        return {"type": "array", "items": ["null", _schema(node[0], forms, names)]}
    name = f"{names[0]}{len(names)}"
    names.append(name)
    fields = [{"name": key, "type": ["null", _schema(child, forms, names)]} for key, child in node.items()]
    return {"type": "record", "name": name, "fields": fields}


def _avro_value(chance: Random, node: Any, forms: dict[str, Form], values: dict[str, Any], top: bool = False) -> Any:
    if isinstance(node, str):
        return None if values[node] is None else forms[node][1](values[node])
    if not top and chance.randrange(25) == 0:
        return None
    if 0 in node:
        return [_avro_value(chance, node[0], forms, values)] if chance.randrange(25) else []
    return {key: _avro_value(chance, child, forms, values) for key, child in node.items()}


def avro_form(chance: Random, column: Column) -> Form:
    """A type of Avro that holds a column's values, and what makes a value of it."""
    text: Form = (
        "string",
        lambda value: text_of(chance, column, value) if chance.randrange(12) else chance.choice(TEXTS),
    )
    if column.type == "string" or chance.randrange(4) == 0:
        return text
    if column.type == "integer":
        return chance.choice([("long", int), ("double", lambda v: float(v % 100)), ("int", lambda v: v % 100)])
    if column.type == "double":
        return chance.choice([("double", float), ("float", lambda v: v if abs(v) < 9 else 0.5)])
    if column.type == "boolean":
        return chance.choice([("boolean", bool), ("int", int)])
    if column.type == "date":
        day: Form = {"type": "int", "logicalType": "date"}, lambda v: v
        return day if column.format == "iso" or chance.randrange(2) else text
    if column.type != "timestamp":
        exact: Form = {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 4}, lambda v: v
        return chance.choice([exact, exact, ("double", float), ("long", int)])
    if column.format in PER_SECOND and chance.randrange(2):
        count = PER_SECOND[column.format]
        return "long", lambda v: us_of(v) * count // 10**6
    kind = chance.choice(["timestamp-millis", "timestamp-micros", "local-timestamp-millis", "local-timestamp-micros"])
    local = kind.startswith("local")
    return {"type": "long", "logicalType": kind}, lambda v: _local(v, column.zone).replace(tzinfo=None) if local else v


__all__ = ["avro_file", "date", "parquet_file"]
