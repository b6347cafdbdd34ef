"""A case: everything that a stranger would bring, as plain values that can be written, read again, and made smaller."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from tests.strangers.writing import content_of

Record = dict[str, Any] | str
"""A record's values by column; as text: a line that is written as it stands."""


@dataclass(frozen=True)
class File:
    """One file of a stream.

    ``path``: relative to the pipeline's folder; a name that ends in .gz is written compressed. ``header``: the columns
    in their order (CSV, Parquet). ``content``: what the file holds instead of records. ``landed``: its modification
    time. ``style``: how times and numbers are written. ``packed``: gz or zst, whatever its name says. ``first``: of a
    file that grows, how many records it holds when the first run of a second warehouse reads it.
    """

    stream: str
    path: str
    header: tuple[str, ...]
    records: tuple[Record, ...] = ()
    content: bytes | None = None
    landed: datetime | None = None
    style: str = "plain"
    packed: str = ""
    first: int | None = None


@dataclass(frozen=True)
class Reading:
    """What a query asks, by hand, in DuckDB's SQL.

    ``kind``: windows, sessions, or bounded (a join with a bound in time). ``sql``: the answer's ``keys`` (its groups)
    and ``values`` for each ``number`` of a relation ``moments`` (number, window_end, begin, seen): of tuples between
    begin and window_end that had arrived by ``seen``; of sessions ``begin`` is the last event. It reads
    ``tuples_<stream>``, which has ``__seen`` beside a stream's columns. ``ends``: the events that may be a session's
    last. ``gap_s``: of sessions; ``lag_s``: how long after a window's end a match may happen.
    ``error``, ``floors``, ``of_groups``; ``accuracy``, ``for_each``: the promise. ``limit``, ``ranked_by``,
    ``descending``, ``within``: of best groups. ``emit_early``, ``emit_every_s``: EMIT.
    """

    kind: str
    sql: str
    keys: tuple[str, ...]
    values: tuple[str, ...]
    error: float | None = None
    floors: dict[str, float] = field(default_factory=dict)
    of_groups: str = "100"
    accuracy: float | None = None
    for_each: bool = False
    limit: int = 0
    ranked_by: str = ""
    descending: bool = True
    within: tuple[str, ...] = ()
    emit_early: bool = False
    emit_every_s: int = 0
    ends: str = ""
    gap_s: int = 0
    lag_s: int = 0


def read_reading(values: dict[str, Any]) -> Reading:
    """A reading from its JSON."""
    return Reading(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


@dataclass(frozen=True)
class Case:
    """One stranger's pipeline, and how it is run.

    ``declaration``: pipeline.yml. ``queries``: id → SQL. ``intervals``: how many are run from ``start`` on. ``cuts``:
    lengths of the runs of a second warehouse, which must come out the same. ``again``: numbers of the intervals that
    are then run once more there. ``publish``: whether dbt's models are built. ``live``: whether a third warehouse is
    filled by a live run. ``questions``: (stream, SQL, from, to)
    that are asked of history. ``derived``: derived stream → SQL. ``readings``: query → what it asks, by hand.
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
    derived: dict[str, str] = field(default_factory=dict)
    readings: dict[str, Reading] = field(default_factory=dict)

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
        for name, sql in self.derived.items():
            (home / "streams").mkdir(exist_ok=True)
            (home / "streams" / f"{name}.sql").write_text(sql + "\n", encoding="utf-8")
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
            "derived": self.derived,
            "readings": {name: asdict(reading) for name, reading in self.readings.items()},
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
    derived = about.get("derived", {})
    known |= {f"streams/{name}.sql" for name in derived}
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
        queries={
            p.stem: p.read_text(encoding="utf-8").removesuffix("\n") for p in sorted((home / "queries").glob("*.sql"))
        },
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
        derived=derived,
        readings={name: read_reading(values) for name, values in about.get("readings", {}).items()},
    )


def write_file(path: Path, file: File, stream: dict[str, Any], first: bool = False) -> None:
    """Write one file in its stream's format; ``first``: of a file that grows only what it holds at first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    records = file.records[: file.first] if first and file.first is not None else file.records
    packed = file.packed or ("gz" if file.path.endswith(".gz") else "")
    content = file.content
    if content is None:
        content = content_of(file.header, records, file.style, packed, stream)
    path.write_bytes(content)
    if file.landed is not None:
        stamp = (file.landed - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000
        os.utime(path, ns=(stamp, stamp))


def without_files(case: Case, stream: str) -> Case:
    """The case without a stream's files."""
    return replace(case, files=tuple(f for f in case.files if f.stream != stream))
