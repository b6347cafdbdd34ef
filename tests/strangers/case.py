"""A case: everything that a stranger would bring, as plain values that can be written, read again, and made smaller."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

Record = dict[str, Any] | str
"""A record's values by column; as text: a line that is written as it stands."""

ARROW = {
    "string": pa.string(),
    "integer": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "date": pa.date32(),
}


@dataclass(frozen=True)
class File:
    """One file of a stream.

    ``path``: relative to the pipeline's folder; a name that ends in .gz is written compressed. ``header``: the columns
    in their order (CSV, Parquet). ``content``: what the file holds instead of records. ``landed``: its modification
    time. ``style``: how times and numbers are written (see `Style`).
    """

    stream: str
    path: str
    header: tuple[str, ...]
    records: tuple[Record, ...] = ()
    content: bytes | None = None
    landed: datetime | None = None
    style: str = "plain"


@dataclass(frozen=True)
class Case:
    """One stranger's pipeline, and how it is run.

    ``declaration``: pipeline.yml. ``queries``: id → SQL. ``intervals``: how many are run from ``start`` on. ``cuts``:
    lengths of the runs of a second warehouse, which must come out the same. ``again``: numbers of the intervals that
    are then run once more there. ``publish``: whether dbt's models are built. ``live``: whether a third warehouse is
    filled by a live run. ``questions``: (stream, SQL, from, to)
    that are asked of history.
    """

    name: str
    declaration: dict[str, Any]
    queries: dict[str, str]
    files: tuple[File, ...]
    start: datetime
    intervals: int
    cuts: tuple[int, ...] = ()
    again: tuple[int, ...] = ()
    publish: bool = False
    live: bool = False
    questions: tuple[tuple[str, str, datetime, datetime], ...] = ()
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def pipeline(self) -> str:
        """The pipeline's name, which is its folder's."""
        return str(self.declaration["name"])

    @property
    def rows(self) -> int:
        """Records in all files."""
        return sum(len(file.records) for file in self.files)

    def write(self, folder: Path) -> Path:
        """Write the case so that it can be run again by itself; returns the pipeline's folder."""
        home = folder / "pipelines" / self.pipeline
        (home / "queries").mkdir(parents=True)
        text = yaml.safe_dump(self.declaration, allow_unicode=True, sort_keys=False, width=110)
        (home / "pipeline.yml").write_text(text, encoding="utf-8")
        for name, sql in self.queries.items():
            (home / "queries" / f"{name}.sql").write_text(sql + "\n", encoding="utf-8")
        for file in self.files:
            write_file(home / file.path, file, self.declaration["streams"][file.stream])
        about = {
            "name": self.name,
            "start": self.start.isoformat(),
            "intervals": self.intervals,
            "cuts": self.cuts,
            "again": self.again,
            "publish": self.publish,
            "live": self.live,
            "questions": [[s, q, a.isoformat(), b.isoformat()] for s, q, a, b in self.questions],
            "landed": {f.path: f.landed.isoformat() for f in self.files if f.landed is not None},
            "notes": self.notes,
        }
        (folder / "case.json").write_text(json.dumps(about, indent=1, ensure_ascii=False), encoding="utf-8")
        return home


def read_case(folder: Path) -> Case:
    """A case that `Case.write` wrote; its files are taken as they are, byte for byte."""
    about = json.loads((folder / "case.json").read_text(encoding="utf-8"))
    (home,) = (folder / "pipelines").iterdir()
    declaration = yaml.safe_load((home / "pipeline.yml").read_text(encoding="utf-8"))
    files = []
    known = {"pipeline.yml", *(f"queries/{path.name}" for path in (home / "queries").glob("*.sql"))}
    for path in sorted(p for p in home.rglob("*") if p.is_file()):
        name = str(path.relative_to(home))
        if name in known:
            continue
        landed = about["landed"].get(name)
        stream = next(iter(declaration["streams"]))  # of no matter: the file's bytes are given
        moment = datetime.fromisoformat(landed) if landed else None
        files.append(File(stream, name, (), content=path.read_bytes(), landed=moment))
    return Case(
        name=about["name"],
        declaration=declaration,
        queries={p.stem: p.read_text(encoding="utf-8").rstrip("\n") for p in sorted((home / "queries").glob("*.sql"))},
        files=tuple(files),
        start=datetime.fromisoformat(about["start"]),
        intervals=about["intervals"],
        cuts=tuple(about["cuts"]),
        again=tuple(about["again"]),
        publish=about["publish"],
        live=about["live"],
        questions=tuple(
            (s, q, datetime.fromisoformat(a), datetime.fromisoformat(b)) for s, q, a, b in about["questions"]
        ),
        notes=about["notes"],
    )


def write_file(path: Path, file: File, stream: dict[str, Any]) -> None:
    """Write one file in its stream's format."""
    path.parent.mkdir(parents=True, exist_ok=True)
    types = column_types(stream)
    if file.content is not None:
        content = file.content
    elif stream["format"] == "jsonl":
        content = "".join(json_line(record, types, file.style) + "\n" for record in file.records).encode()
    elif stream["format"] == "csv":
        content = csv_text(file, types).encode()
    else:
        content = parquet_bytes(file, types)
    if file.path.endswith(".gz") and file.content is None:
        content = gzip.compress(content, mtime=0)
    path.write_bytes(content)
    if file.landed is not None:
        stamp = (file.landed - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000
        os.utime(path, ns=(stamp, stamp))


def column_types(stream: dict[str, Any]) -> dict[str, str]:
    """Column → declared type."""
    return {name: (c if isinstance(c, str) else c["type"]) for name, c in stream["columns"].items()}


def json_line(record: Record, types: dict[str, str], style: str) -> str:
    """A record as a line of JSON; columns that are not given are left out."""
    if isinstance(record, str):
        return record
    values = {name: json_value(value, style) for name, value in record.items()}
    return json.dumps(values, ensure_ascii=style == "ascii", allow_nan=False)


def json_value(value: Any, style: str) -> Any:
    """What JSON can hold of a value."""
    if isinstance(value, datetime | date):
        return written(value, style)
    if style == "quoted" and isinstance(value, int | float) and not isinstance(value, bool):
        return repr(value)
    return value


def csv_text(file: File, types: dict[str, str]) -> str:
    """A CSV file with its header."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\r\n" if file.style == "crlf" else "\n")
    writer.writerow(file.header)
    for record in file.records:
        if isinstance(record, str):
            out.write(record + writer.dialect.lineterminator)
            continue
        writer.writerow([csv_value(record.get(name), file.style) for name in file.header])
    return out.getvalue()


def csv_value(value: Any, style: str) -> str:
    """A cell."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return (
        written(value, style)
        if isinstance(value, datetime | date)
        else (value if isinstance(value, str) else repr(value))
    )


def written(value: datetime | date, style: str) -> str:
    """A time or a day as text."""
    if not isinstance(value, datetime):
        return value.isoformat()
    if style == "spaced":
        return value.replace(tzinfo=None).isoformat(sep=" ")
    if style == "offset":
        moved = value.astimezone(UTC) + timedelta(hours=5, minutes=30)
        return moved.replace(tzinfo=None).isoformat() + "+05:30"
    return value.isoformat().replace("+00:00", "Z")


def parquet_bytes(file: File, types: dict[str, str]) -> bytes:
    """A Parquet file with the declared types, or variants that hold the same values."""
    arrays, names = [], []
    for name in file.header:
        kind = types.get(name, "string")
        values = [record.get(name) if isinstance(record, dict) else None for record in file.records]
        if file.style == "texts" and kind != "string":
            values = [v if v is None or isinstance(v, str) else csv_value(v, "plain") for v in values]
            arrays.append(pa.array(values, pa.string()))
        elif file.style == "dictionary" and kind == "string":
            arrays.append(pa.array(values, pa.string()).dictionary_encode())
        elif file.style == "naive" and kind == "timestamp":
            arrays.append(pa.array([v and v.replace(tzinfo=None) for v in values], pa.timestamp("us")))
        else:
            arrays.append(pa.array(values, ARROW[kind]))
        names.append(name)
    sink = io.BytesIO()
    pq.write_table(pa.table(arrays, names=names), sink, compression="zstd" if file.style == "dictionary" else "snappy")
    return sink.getvalue()


def without_files(case: Case, stream: str) -> Case:
    """The case without a stream's files."""
    return replace(case, files=tuple(f for f in case.files if f.stream != stream))
