"""Writes a stranger's records in every format: by the keys of their stream, and a style of the file's own."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PER_SECOND = {"epoch_s": 1, "epoch_ms": 1_000, "epoch_us": 1_000_000, "epoch_ns": 1_000_000_000}
ARROW = {
    "string": pa.string(),
    "integer": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "date": pa.date32(),
}
_STEP = re.compile(r"`((?:[^`]|``)+)`|\[([0-9]+)\]|([^.\[\]`]+)")
Declared = dict[str, Any]
Step = str | int


def content_of(header: Sequence[str], records: Sequence[Any], style: str, packed: str, stream: Declared) -> bytes:
    """The octets of a file.

    ``header``: the columns in their order (CSV, Parquet, Avro). ``packed``: gz, zst, or nothing.
    """
    columns = columns_of(stream)
    if stream["format"] == "csv":
        content = csv_bytes(header, records, style, stream, columns)
    elif stream["format"] == "parquet":
        content = parquet_bytes(header, records, style, columns)
    elif stream["format"] == "avro":
        content = avro_bytes(header, records, style, columns)
    else:
        content = json_bytes(records, style, stream["format"] == "json", columns)
    if packed == "zst":
        return pa.compress(content, "zstd", asbytes=True)
    return gzip.compress(content, mtime=0) if packed == "gz" else content


def columns_of(stream: Declared) -> dict[str, Declared]:
    """Column → its keys, ``type`` among them."""
    return {name: {"type": c} if isinstance(c, str) else c for name, c in stream["columns"].items()}


def steps_of(name: str, columns: dict[str, Declared]) -> list[Step]:
    """The steps to a column, or to one that nobody declares."""
    text = columns.get(name, {}).get("from", "").strip()
    if not text:
        return [name]
    matches = _STEP.finditer(text)
    return [m[1].replace("``", "`") if m[1] else int(m[2]) if m[2] else m[3] for m in matches]


# Values as text


def written(value: Any, style: str, column: Declared) -> str:
    """A value as text, times by the notation of their column."""
    if isinstance(value, datetime):
        return time_text(value, style, column)
    if isinstance(value, date):
        if column.get("format", "iso") == "iso":
            return value.isoformat()
        return time_text(datetime(value.year, value.month, value.day, tzinfo=zone_of(column)), style, column)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return f"{value:f}"
    return value if isinstance(value, str) else repr(value)


def zone_of(column: Declared) -> ZoneInfo:
    """The zone of a column's times that do not say theirs."""
    return ZoneInfo(column.get("zone", "UTC"))


def time_text(at: datetime, style: str, column: Declared) -> str:
    """An instant as text."""
    notation = column.get("format", "iso")
    if notation in PER_SECOND:
        return f"{Decimal((at - EPOCH) // timedelta(microseconds=1)) * PER_SECOND[notation] / 10**6:f}"
    local = at.astimezone(zone_of(column))
    if notation != "iso":
        return local.strftime(notation)
    if style == "spaced":
        return local.replace(tzinfo=None).isoformat(sep=" ")
    if style == "offset":
        moved = at.astimezone(UTC) + timedelta(hours=5, minutes=30)
        return moved.replace(tzinfo=None).isoformat() + "+05:30"
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


# JSON


def json_bytes(records: Sequence[Any], style: str, documents: bool, columns: dict[str, Declared]) -> bytes:
    """Objects, one a line; or documents on any lines, or in a list."""
    if not documents:
        return "".join(json_text(record, style, columns) + "\n" for record in records).encode()
    texts = [json_text(record, style, columns, indent=style in ("spaced", "list")) for record in records]
    if style in ("list", "quoted"):
        return ("[" + ",\n".join(text for text in texts if text.strip()) + "]").encode()
    return "\n".join(texts).encode()


def json_text(record: Any, style: str, columns: dict[str, Declared], indent: bool = False) -> str:
    """A record as JSON; columns that are not there are left out."""
    if isinstance(record, str):
        return record
    top: dict[str, Any] = {}
    for name, value in record.items():
        put(top, steps_of(name, columns), json_value(value, style, columns.get(name, {})))
    text = json.dumps(top, ensure_ascii=style == "ascii", allow_nan=False, indent=2 if indent else None)
    # Numbers that JSON's own writer would not write as they are stand between marks until now.
    return re.sub(r'"\\u0001([^"]*)\\u0001"', r"\1", text)


def put(node: Any, steps: Sequence[Step], value: Any) -> None:
    """Put a value where steps lead; what is missing on the way is made."""
    step, rest = steps[0], steps[1:]
    if isinstance(step, int):
        node.extend([None] * (step + 1 - len(node)))
        present = node[step]
    else:
        present = node.get(step)
    if not rest:
        node[step] = value
        return
    if present is None:
        present = [] if isinstance(rest[0], int) else {}
        node[step] = present
    put(present, rest, value)


def json_value(value: Any, style: str, column: Declared) -> Any:
    """What JSON can hold of a value."""
    counted = column.get("format", "iso") in PER_SECOND
    if isinstance(value, Decimal) or (counted and isinstance(value, date)):
        text = written(value, style, column)
        return text if style == "quoted" else f"\x01{text}\x01"
    if isinstance(value, date):
        return written(value, style, column)
    if style == "quoted" and isinstance(value, int | float) and not isinstance(value, bool):
        return repr(value)
    return value


# CSV


def csv_bytes(
    header: Sequence[str], records: Sequence[Any], style: str, stream: Declared, columns: dict[str, Declared]
) -> bytes:
    """A CSV file by its stream's dialect."""
    dialect = stream.get("csv", {})
    headless = dialect.get("header") == "false"
    names = list(columns) if headless else list(header)
    end = "\r\n" if style == "crlf" else "\n"
    lines = [] if headless else [csv_line([heading(name, columns) for name in names], dialect)]
    if "comment" in dialect:
        lines[:0] = [dialect["comment"] + ' "a comment"', ""]
    for record in records:
        if isinstance(record, str):
            lines.append(record)
            continue
        cells = [csv_cell(record.get(name), style, columns.get(name, {}), dialect) for name in names]
        lines.append(csv_line(cells, dialect))
    return "".join(line + end for line in lines).encode(dialect.get("encoding", "utf-8"), errors="replace")


def heading(name: str, columns: dict[str, Declared]) -> str:
    """What a file's header calls a column."""
    return str(columns.get(name, {}).get("from", name))


def csv_cell(value: Any, style: str, column: Declared, dialect: Declared) -> str | None:
    """A cell's text; None: no value."""
    if value is None:
        return None
    text = written(value, style, column)
    kind = column.get("type", "string")
    numeric = kind in ("integer", "double") or kind.startswith("decimal") or column.get("format", "") in PER_SECOND
    return text.replace(".", ",") if numeric and dialect.get("decimal") == "," else text


def csv_line(cells: Sequence[str | None], dialect: Declared) -> str:
    """A line; cells are quoted where they must be."""
    delimiter = {"tab": "\t"}.get(dialect.get("delimiter", ","), dialect.get("delimiter", ","))
    quote, comment = dialect.get("quote", '"'), dialect.get("comment", "\0")
    nulls = dialect.get("nulls", [])
    nulls = [nulls] if isinstance(nulls, str) else nulls
    shown = []
    for number, cell in enumerate(cells):
        if cell is None:
            shown.append(nulls[number % len(nulls)] if nulls and number % 2 else "")
        elif quote == "none":
            plain = "".join("_" if sign in (delimiter, "\r", "\n") else sign for sign in cell)
            shown.append("_" + plain if plain.startswith(comment) else plain)
        elif cell in ("", *nulls) or cell.startswith(comment) or set(cell) & {delimiter, quote, "\r", "\n"}:
            shown.append(quote + cell.replace(quote, quote * 2) + quote)
        else:
            shown.append(cell)
    return delimiter.join(shown)


def csv_value(value: Any, style: str) -> str:
    """A cell of a stream without keys of its own."""
    return csv_cell(value, style, {}, {}) or ""


# Parquet and Avro


def tree_of(header: Sequence[str], columns: dict[str, Declared]) -> dict[Step, Any]:
    """The columns where they are in a record: names and 0 (of a list) lead to names of columns."""
    tree: dict[Step, Any] = {}
    for name in header:
        steps = steps_of(name, columns)
        node = tree
        for step in steps[:-1]:
            node = node.setdefault(step, {})
        node[steps[-1]] = name
    return tree


def parquet_bytes(header: Sequence[str], records: Sequence[Any], style: str, columns: dict[str, Declared]) -> bytes:
    """A Parquet file with the declared types, or variants that hold the same values."""
    forms = {name: arrow_form(columns.get(name, {"type": "string"}), style) for name in header}
    rows = [record for record in records if isinstance(record, dict)]
    tree = tree_of(header, columns)
    arrays = [pa.array([_value(child, forms, row) for row in rows], _type(child, forms)) for child in tree.values()]
    if style == "dictionary":
        arrays = [a.dictionary_encode() if pa.types.is_string(a.type) else a for a in arrays]
    sink = io.BytesIO()
    table = pa.table(arrays, names=[str(step) for step in tree])
    pq.write_table(table, sink, compression="zstd" if style == "dictionary" else "snappy")
    return sink.getvalue()


Form = tuple[Any, Callable[[Any], Any]]


def arrow_form(column: Declared, style: str) -> Form:
    """An Arrow type that holds a column's values, and what makes a value of it."""
    kind = column["type"]
    if style == "texts" and kind != "string":
        return pa.string(), lambda value: written(value, "plain", column)
    if style == "naive" and kind == "timestamp":
        return pa.timestamp("us"), lambda value: value.astimezone(zone_of(column)).replace(tzinfo=None)
    if style == "dictionary" and kind == "timestamp" and column.get("format") in ("epoch_ms", "epoch_us"):
        times = PER_SECOND[column["format"]]
        return pa.int64(), lambda value: (value - EPOCH) // timedelta(microseconds=1) * times // 10**6
    if kind.startswith("decimal"):
        precision, scale = map(int, re.findall("[0-9]+", kind))
        return pa.decimal128(precision, scale), _same
    return ARROW[kind], _same


def _same(value: Any) -> Any:
    return value


def _value(node: Any, forms: dict[str, Form], row: dict[str, Any]) -> Any:
    if isinstance(node, str):
        value = row.get(node)
        return (
            None
            if value is None
            else value
            if isinstance(value, str) and forms[node][1] is _same
            else forms[node][1](value)
        )
    if 0 in node:
        return [_value(node[0], forms, row)]
    return {key: _value(child, forms, row) for key, child in node.items()}


def _type(node: Any, forms: dict[str, Form]) -> pa.DataType:
    if isinstance(node, str):
        return forms[node][0]
    if 0 in node:
        return pa.list_(_type(node[0], forms))
    return pa.struct([(key, _type(child, forms)) for key, child in node.items()])


def avro_bytes(header: Sequence[str], records: Sequence[Any], style: str, columns: dict[str, Declared]) -> bytes:
    """An Avro container with the declared types, or variants that hold the same values."""
    import fastavro

    forms = {name: avro_form(columns.get(name, {"type": "string"}), style) for name in header}
    tree = tree_of(header, columns)
    schema = _schema(tree, forms, ["event"])
    rows = [_value(tree, forms, record) for record in records if isinstance(record, dict)]
    out = io.BytesIO()
    fastavro.writer(out, fastavro.parse_schema(schema), rows, codec="deflate" if style == "dictionary" else "null")
    return out.getvalue()


def avro_form(column: Declared, style: str) -> Form:
    """A type of Avro that holds a column's values, and what makes a value of it."""
    kind = column["type"]
    if style == "texts" and kind != "string":
        return "string", lambda value: written(value, "plain", column)
    if kind == "timestamp":
        logical = "local-timestamp-micros" if style == "naive" else "timestamp-micros"
        local = arrow_form(column, "naive")[1]
        return {"type": "long", "logicalType": logical}, local if style == "naive" else _same
    if kind == "date":
        return {"type": "int", "logicalType": "date"}, _same
    if kind.startswith("decimal"):
        precision, scale = map(int, re.findall("[0-9]+", kind))
        exact = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
        return exact, lambda value: value.quantize(Decimal((0, (1,), -scale)))
    return {"integer": "long"}.get(kind, kind), _same


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


__all__ = ["content_of", "csv", "csv_value"]
