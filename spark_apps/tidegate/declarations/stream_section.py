"""The ``streams:`` part of pipeline.yml."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tidegate.declarations.csv_section import CSV_KEYS, read_csv_section
from tidegate.declarations.file_formats import FILE_FORMATS, MESSAGE_FORMATS, has_cells
from tidegate.declarations.models import Column, CsvDialect, History, Part, PathStep, Stream
from tidegate.declarations.names import (
    EVENT_COLUMNS,
    NO_KEYS,
    PARTITION_COLUMN,
    SAMPLE_COLUMNS,
    STORES,
    identifier_refusal,
    refusal,
)
from tidegate.declarations.positions import Misspelt, Report
from tidegate.declarations.scope import StreamSchema
from tidegate.declarations.source_paths import read_cell, read_path
from tidegate.declarations.source_section import SourceRead, check_values, is_part, read_part, read_source_section
from tidegate.declarations.time_formats import EPOCH_UNITS_US, read_time_format, read_zone
from tidegate.declarations.units import (
    UnreadableError,
    read_fraction,
    read_integer,
    read_positive_seconds,
    read_rate,
    read_seconds,
    read_share,
    show_duration,
    shown,
)
from tidegate.declarations.yaml_sections import Section, read_scalar
from tidegate.values.types import MAX_PRECISION, SIMPLE_TYPES, ColumnType, read_type

# Key → what it says, for the reference (infra/docs/reference.py).
STREAM_KEYS = {
    "description": "What one tuple of the stream is.",
    "format": "; ".join(f"`{name}`: {one.about}" for name, one in FILE_FORMATS.items()) + ". Of the values of Kafka's "
    "records `jsonl` or `avro`. A source of Spark has columns and no format; with `jsonl` its column `value` holds a "
    "record each.",
    "path": "One file or more per interval: a path with `strftime` directives (`%Y %m %d %j %H %M %S`) and wildcards, "
    "relative to the pipeline's folder, or a URI in an object store (`s3://bucket/folder/%Y-%m-%dT%H.jsonl`). Without "
    "directives every file is read in every interval, and its records are told apart by their arrival time. Short for "
    "`source: {files: …}`.",
    "source": "Where the records come from, instead of `path`: exactly one of `files`, `kafka` and `spark`. The last "
    "two come through Spark's Structured Streaming, into the table `landed_<stream>`.",
    "checkpoint": "Of a stream that comes through Spark: a folder, relative to the pipeline's, or a URI for the "
    "checkpoints of its landing, instead of the warehouse.",
    "csv": "How CSV files are written, where it is not with commas and a header in UTF-8.",
    "columns": "Name → type, or name → `{type, from, format, zone, nullable, description}`; at least one.",
    "other_columns": "What becomes of a record with fields that no column is read from: they are ignored and counted, "
    "by name, in `unknown_columns` (`ignore`), or the record is refused (`refuse`).",
    "id": "The column (string or integer) that identifies a record, or several: `[order_id, line]`. An id that comes "
    "again within `max_late` is refused as a duplicate. Or `none`: then a record's place in its source is its "
    "identity.",
    "event_time": "The column (timestamp) that says when it happened.",
    "arrival_time": "The column (timestamp) that says when it reached the feed; or `landed`: when its file, or itself, "
    "landed; or `broker`: Kafka's timestamp.",
    "rate": "What you expect, until it has been measured.",
    "max_early": "A record that arrives further before its event time is refused.",
    "max_late": "A record that arrives further after its event time is refused.",
    "max_width": "Spare memory does not widen the window beyond it. A multiple of the tick.",
    "missing_file": "What a missing file is: an `error` of data quality, a warning (`warn`), or nothing (`ignore`). Of "
    "a stream that comes through Spark: what an interval without a record is.",
    "history": "Keep what leaves the window: exact aggregates for every leaf, and a sample of the tuples.",
}
COLUMN_KEYS = {
    "type": "`string`, `integer` (64 bits), `double`, `boolean`, `timestamp`, `date`, or `decimal(p, s)`: p digits, s "
    "of them after the point, at most 38.",
    "from": "Where its value is in a record: fields and elements of lists, such as `actor.login` or "
    "`payload.commits[0].sha` (a name with a dot in backticks). In CSV a name of the header, or `[n]`, the place in "
    "the line, from 0. Of Kafka's records also `$key`, `$headers.NAME`, `$topic`, `$partition`, `$offset` and "
    "`$timestamp`.",
    "format": "How a timestamp or date is written: `iso`, a count since 1970 (`epoch_s`, `epoch_ms`, `epoch_us`, "
    "`epoch_ns`), or a `strptime` pattern such as `%d.%m.%Y %H:%M:%S`.",
    "zone": "The time zone of times that do not say theirs, such as `Europe/Berlin`. An hour that comes twice is the "
    "first of the two.",
    "description": "What the column says; shown in the tables' documentation.",
    "nullable": "`false`: a record without a value is refused.",
}
HISTORY_KEYS = {
    "leaf": "Length of a leaf of event time.",
    "capacity": "How many sampled tuples the store holds.",
    "max_fraction": "The share of tuples that is sampled when they enter.",
    "min_fraction": "A leaf whose share falls below it loses its sample and keeps its exact aggregates.",
    "merge_leaves": "How many consecutive leaves one pass merges into one. 2 to 10000.",
    "seed": "Changes which tuples are sampled.",
    "law": "How the sampled share falls with age: `exponential`, or `inverse_age` (as 1/age).",
    "reserve": "Share of the capacity that is kept free for what enters between two passes.",
    "bands": "How finely a pass can thin: bands of priority for every factor of two. 1 to 16.",
    "group_by": "Columns (string, integer or boolean, with few values) for whose values exact aggregates are kept as "
    "well.",
}
LANDED = "landed"
BROKER = "broker"
NO_ID = "none"
_DIGITS = re.compile(r"decimal *\( *[0-9]+ *(, *[0-9]+ *)?\)", re.ASCII | re.IGNORECASE)
# What an id of several columns may be made of; that of one is a string or an integer.
_ID_TYPES = ("string", "integer", "boolean", "timestamp", "date")


@dataclass(frozen=True)
class Clock:
    """The pipeline's times that streams refer to; None if they could not be read."""

    interval_s: int | None
    tick_s: int | None
    horizon_s: int | None


@dataclass
class StreamSection:
    """Reads one stream; everything wrong goes into the report."""

    report: Report
    name: str
    section: Section
    folder: Path
    clock: Clock
    columns: dict[str, Column] = field(default_factory=dict)
    columns_known: bool = True
    format: str | None = None
    source: SourceRead = SourceRead(None)
    noun: str = "stream"

    @property
    def cells(self) -> bool:
        """Whether records are cells in a row."""
        return has_cells(self.format or "")

    @property
    def landed(self) -> bool:
        """Whether the stream comes through Spark."""
        return self.source.kind in ("kafka", "spark")

    def schema(self) -> StreamSchema:
        """The columns for the queries, None if any of them is in doubt."""
        known = {column.name: column.type for column in self.columns.values()}
        event_time = self.section.read("event_time", str.strip, required=False)
        return StreamSchema(self.name, known if known and self.columns_known else None, event_time)

    def read(self) -> Stream | None:
        """The stream, or None after a mistake."""
        before = len(self.report.mistakes)
        read = self.section.read
        self.source = read_source_section(self.section, self.name, self.folder, self._path)
        self.format = self._format()
        csv = self._csv()
        self._read_columns(csv)
        values: dict[str, Any] = {
            "name": self.name,
            "description": (read("description", str, "", required=False) or "").strip(),
            "format": self.format,
            "path": "" if self.landed else self.source.path,
            "source": self.source.source,
            "checkpoint": self._checkpoint(),
            "csv": csv,
            "other_columns": read("other_columns", one_of("ignore", "refuse"), "ignore", required=False),
            "id": self._id(),
            "event_time": self._role("event_time", ("timestamp",)),
            "arrival_time": self._role("arrival_time", ("timestamp",), instead=self._stamps()),
            "rate": read("rate", read_rate),
            "max_early_s": read("max_early", read_seconds, 0, required=False),
            "max_late_s": read("max_late", read_seconds, self.clock.horizon_s, required=False),
            "max_width_s": read("max_width", self._width, required=False),
            "missing_file": read("missing_file", one_of("error", "warn", "ignore"), "warn", required=False),
            "history": self._history(),
        }
        check_values(self.section, self.source, self.format)
        self._check_column_clashes(values)
        # A misspelt key is one mistake, not two, so its value may be missing without a new one.
        needed = ("format", "path", "id", "event_time", "arrival_time", "rate", "max_late_s")
        if len(self.report.mistakes) > before or any(values[key] is None for key in needed):
            return None
        if values["arrival_time"] not in self.columns:
            values["arrival_stamp"], values["arrival_time"] = values["arrival_time"], None
        return Stream(columns=tuple(self.columns.values()), **values)

    def _csv(self) -> CsvDialect:
        node = self.section.node("csv", required=False)
        if node is None:
            return CsvDialect()
        if self.format is not None and not self.cells:
            message = f"'csv' in {self.noun} '{self.name}', whose format is {self.format}"
            self.report.add(node.start_mark.index, message, "format: csv")
        return read_csv_section(Section(self.report, node, f"csv of {self.noun} '{self.name}'", CSV_KEYS))

    def _format(self) -> str | None:
        """The format of the files, or of the values; "" of a source that has columns."""
        kind = self.source.kind
        if kind == "kafka":
            written = self.section.read("format", one_of(*MESSAGE_FORMATS))
        elif kind == "spark":
            written = self.section.read("format", one_of("jsonl", "json"), "", required=False)
        else:
            return self.section.read("format", one_of(*FILE_FORMATS))
        return "jsonl" if written == "json" else written

    def _checkpoint(self) -> str | None:
        if "checkpoint" in self.section and self.source.kind == "files":
            message = f"'checkpoint' in stream '{self.name}', which does not come through Spark"
            self.report.add(self.section.value_offset("checkpoint"), message, "source: {kafka: …} or {spark: …}")
        return self.section.read("checkpoint", self._place, required=False)

    def _place(self, text: str) -> str:
        """A folder, relative to the pipeline's, or a URI of any store that Spark knows."""
        place = text.strip()
        scheme, uri, rest = place.partition("://")
        if not uri:
            return os.path.normpath(os.path.join(self.folder, place))
        if not re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme) or not rest.strip("/"):
            raise UnreadableError(f"{shown(place)} is no URI of a folder", "such as s3a://bucket/checkpoints")
        if scheme in ("s3", "s3a", "gs") and "@" in rest.partition("/")[0]:
            raise UnreadableError(NO_KEYS)
        return place.rstrip("/")

    def _stamps(self) -> tuple[str, ...]:
        """What may be said instead of a column that holds the arrival."""
        return (LANDED, BROKER) if self.source.kind == "kafka" else (LANDED,)

    def _read_columns(self, csv: CsvDialect) -> None:
        node = self.section.node("columns")
        if node is None:
            self.columns_known = False
            return
        columns = Section(self.report, node, f"columns of {self.noun} '{self.name}'")
        lower: dict[str, str] = {}
        for name, offset, value in columns.items():
            problem = refusal(name, "column")
            if problem:
                self.report.add(offset, *problem)
                self.columns_known = False
                continue
            if name.lower() in lower:
                self.report.add(offset, f"columns '{lower[name.lower()]}' and '{name}' differ in letter case only")
                continue
            lower[name.lower()] = name
            column = self._column(name, value)
            if column is None:
                self.columns_known = False
            else:
                self.columns[name] = self._placed(column, csv, value)
        if not lower and self.columns_known:
            self.report.add(columns.offset, f"{self.noun} '{self.name}' has no columns", "at least one 'name: type'")
            self.columns_known = False

    def _column(self, name: str, node: yaml.Node) -> Column | None:
        title = f"column '{name}'"
        if not isinstance(node, yaml.MappingNode):
            kind = read_scalar(self.report, node, title, column_type)
            return Column(name=name, type=kind) if kind else None
        section = Section(self.report, node, title, COLUMN_KEYS)
        kind = section.read("type", column_type)
        nullable = section.read("nullable", one_of("true", "false"), "true", required=False)
        description = section.read("description", str, "", required=False)
        part, path = section.read("from", self._steps, required=False) or ("value", ())
        written = section.read("format", read_time_format, "iso", required=False)
        zone = section.read("zone", read_zone, "UTC", required=False)
        for key in ("format", "zone"):
            if kind and key in section and kind not in ("timestamp", "date"):
                message = f"'{key}' in {title}: a column of type {kind} is no time"
                self.report.add(section.value_offset(key), message, "a column of type timestamp or date")
        if kind == "timestamp" and written in EPOCH_UNITS_US and "zone" in section:
            message = f"'zone' in {title}: a count since 1970 is the same everywhere"
            self.report.add(section.value_offset("zone"), message, f"{written} alone")
        if not kind:
            return None
        return Column(
            name=name,
            type=kind,
            nullable=nullable != "false",
            description=description or "",
            path=path,
            part=part,
            format=written or "iso",
            zone=zone or "UTC",
        )

    def _steps(self, text: str) -> tuple[Part, tuple[PathStep, ...]]:
        """Of which part of a record the value is, and where in it."""
        path = text.strip()
        if self.source.kind == "kafka":
            return read_part(path)
        if self.cells:
            return "value", read_cell(path)
        if is_part(path) and self.source.kind is not None:
            expected = "a field; one of that name in backticks"
            raise UnreadableError(f"{shown(path)} is a part of Kafka's records", expected)
        return "value", read_path(path)

    def _placed(self, column: Column, csv: CsvDialect, node: yaml.Node) -> Column:
        """The column with its place in the line, where CSV files have no header to find it by."""
        if not self.cells or csv.header:
            return column
        if not column.path:
            return column.model_copy(update={"path": (len(self.columns),)})
        if not isinstance(column.path[0], int):
            message = f"column '{column.name}': without a header no cell is called {shown(column.path[0])}"
            self.report.add(node.start_mark.index, message, "from: '[n]', the place in the line from 0")
        return column

    def _id(self) -> tuple[str, ...] | None:
        """The columns that identify a record; none: its place does."""
        node = self.section.node("id", required=False)
        if node is None or isinstance(node, yaml.ScalarNode):
            name = self._role("id", ("string", "integer"), instead=(NO_ID,))
            return None if name is None else () if name == NO_ID and NO_ID not in self.columns else (name,)
        items = node.value if isinstance(node, yaml.SequenceNode) else []
        return self._columns_named(
            "id", "stream", node, items, _ID_TYPES, "a list of columns, such as [order_id, line]"
        )

    def _columns_named(
        self, key: str, section: str, node: yaml.Node, items: Sequence[yaml.Node], types: Sequence[str], expected: str
    ) -> tuple[str, ...] | None:
        """The declared columns that a key lists, of one of the types (decimals without their digits)."""
        if not items or not all(isinstance(item, yaml.ScalarNode) for item in items):
            message = f"'{key}' in {section} '{self.name}' is no list of columns"
            self.report.add(node.start_mark.index, message, expected)
            return None
        names: list[str] = []
        for item in items:
            name, at = str(item.value).strip(), item.start_mark.index
            column = self.columns.get(name)
            if column is None and self.columns_known:
                message = f"'{key}': {shown(name)} is not a declared column"
                self.report.add(at, message, expected, Misspelt(name, list(self.columns)))
            elif column is not None and column.type.partition("(")[0] not in types:
                message = f"'{key}': column '{name}' is of type {column.type}"
                self.report.add(at, message, f"columns of type {', '.join(types)}")
            elif name in names:
                self.report.add(at, f"'{key}' names '{name}' twice", "each once")
            names.append(name)
        return tuple(names)

    def _role(self, key: str, types: tuple[ColumnType, ...], instead: tuple[str, ...] = ()) -> str | None:
        """The declared column that plays a role, of one of the types that the role takes; or a word of ``instead``."""
        name = self.section.read(key, str.strip)
        if name is None or not self.columns_known or (name in instead and name not in self.columns):
            return name
        offset = self.section.value_offset(key)
        free = "".join(f", or '{word}'" for word in instead if word not in self.columns)
        expected = f"a declared column of type {' or '.join(types)}{free}"
        column = self.columns.get(name)
        if column is None:
            misspelt = Misspelt(name, [*self.columns, *instead])
            self.report.add(offset, f"'{key}': {shown(name)} is not a declared column", expected, misspelt)
        elif column.type not in types:
            self.report.add(offset, f"'{key}': column '{name}' is of type {column.type}", expected)
        return name

    def _check_column_clashes(self, values: dict[str, Any]) -> None:
        """Columns that Tidegate adds to a stream's tables must not meet declared ones of another meaning."""
        own = dict(zip(EVENT_COLUMNS, ("id", "event_time", "arrival_time"), strict=True))
        columns = self.section.node("columns", required=False)
        if not isinstance(columns, yaml.MappingNode):
            return
        for key_node, _ in columns.value:
            name = key_node.value
            if not isinstance(name, str):
                continue
            offset, lower = key_node.start_mark.index, name.lower()
            if lower == PARTITION_COLUMN:
                continue  # refused already: a reserved word
            if lower in own and values[own[lower]] not in (None, name, (name,)):
                role = own[lower]
                names = values[role] if isinstance(values[role], str) else ", ".join(values[role])
                holds = f"'{names}'" if names else "a record's place in its file"
                message = f"column '{name}' would clash with the column '{lower}' that holds {holds}"
                self.report.add(offset, message, f"another name, such as '{self.name}_{lower}', or '{role}: {name}'")
            elif lower in own and name != lower:
                message = f"column '{name}' would clash with the column '{lower}' of the stream's table"
                self.report.add(offset, message, f"'{lower}', or another name, such as '{self.name}_{lower}'")
            elif lower in SAMPLE_COLUMNS and "history" in self.section:
                message = f"column '{name}' would clash with the column '{lower}' of the history samples"
                self.report.add(offset, message, f"another name, such as '{self.name}_{lower}'")

    def _path(self, text: str) -> str:
        """The file pattern, relative to the pipeline's folder; its directives must tell the intervals apart."""
        path = text.strip()
        if "**" in path:
            raise UnreadableError(
                f"'**' in {shown(path)} is not read", "a '*' for each folder, such as landing/*/*.jsonl"
            )
        directives = set(re.findall(r"%(.?)", path.replace("%%", "")))
        unknown = sorted(directives - set("YmdjHMS"))
        if unknown:
            raise UnreadableError(f"unknown directive '%{unknown[0]}' in {shown(path)}", "%Y, %m, %d, %j, %H, %M or %S")
        if directives and self.clock.interval_s:
            needed = ["Y"] + ([] if "j" in directives else ["m", "d"])
            needed += [d for d, unit_s in (("H", 86_400), ("M", 3_600)) if self.clock.interval_s % unit_s]
            missing = [f"%{d}" for d in needed if d not in directives]
            if missing:
                raise UnreadableError(
                    f"{shown(path)} names the same file for several intervals", f"{', '.join(missing)} in it as well"
                )
        scheme, uri, _ = path.partition("://")
        if uri:
            if scheme not in STORES:
                raise UnreadableError(f"{shown(path)} is no URI that is read", f"a path, or {', '.join(STORES)}://…")
            if scheme == "s3" and "@" in path.split("/")[2]:
                raise UnreadableError(NO_KEYS)
            return path
        # The folder is no part of the pattern: a percent sign or a bracket in its name stands for itself.
        folder = glob.escape(str(self.folder)).replace("%", "%%")
        return os.path.normpath(os.path.join(folder, path))

    def _width(self, text: str) -> int:
        seconds, tick_s = read_positive_seconds(text), self.clock.tick_s
        if tick_s and seconds % tick_s:
            expected = f"a multiple of {show_duration(tick_s)}"
            raise UnreadableError(f"{shown(text)} is not a multiple of the tick", expected)
        return seconds

    def _history(self) -> History | None:
        node = self.section.node("history", required=False)
        if node is None:
            return None
        section = Section(self.report, node, f"history of stream '{self.name}'", HISTORY_KEYS)
        if not isinstance(node, yaml.MappingNode):
            return None
        leaf_s = section.read("leaf", read_positive_seconds)
        capacity = section.read("capacity", lambda text: read_integer(text, 1, 10**12))
        most = section.read("max_fraction", read_share, 0.9, required=False)
        least = section.read("min_fraction", read_fraction, 0.001, required=False)
        merge_leaves = section.read("merge_leaves", lambda text: read_integer(text, 2, 10_000), 6, required=False)
        seed = section.read("seed", lambda text: read_integer(text, 0, 2**53), 0, required=False)
        law = section.read("law", one_of("exponential", "inverse_age"), "exponential", required=False)
        reserve = section.read("reserve", read_share, 0.1, required=False)
        bands = section.read("bands", lambda text: read_integer(text, 1, 16), 2, required=False)
        group_by = self._history_groups(section)
        if least is not None and most is not None and least > most:
            offset = section.value_offset("min_fraction")
            self.report.add(offset, "'min_fraction' is larger than 'max_fraction'", f"at most {most * 100:.6g}%")
        if None in (leaf_s, capacity, most, least, merge_leaves, seed, law, reserve, bands, group_by):
            return None
        return History(
            leaf_s=leaf_s,  # type: ignore[arg-type]
            capacity_tuples=capacity,  # type: ignore[arg-type]
            max_fraction=most,  # type: ignore[arg-type]
            min_fraction=least,  # type: ignore[arg-type]
            merge_leaves=merge_leaves,  # type: ignore[arg-type]
            seed=seed,  # type: ignore[arg-type]
            law=law,  # type: ignore[arg-type]
            reserve=reserve,  # type: ignore[arg-type]
            bands=bands,  # type: ignore[arg-type]
            group_by=group_by,  # type: ignore[arg-type]
        )

    def _history_groups(self, section: Section) -> tuple[str, ...] | None:
        """The columns whose values have aggregates of their own; None after a mistake."""
        node = section.node("group_by", required=False)
        if node is None:
            return ()
        offset = node.start_mark.index
        expected = "a list of columns with few values, such as [carrier]"
        if not isinstance(node, yaml.SequenceNode) or not all(isinstance(n, yaml.ScalarNode) for n in node.value):
            self.report.add(offset, f"'group_by' in history of stream '{self.name}' is not a list", expected)
            return None
        names: list[str] = []
        for item in node.value:
            name = str(item.value)
            column = self.columns.get(name)
            at = item.start_mark.index
            if column is None and self.columns_known:
                message = f"'group_by' in history of stream '{self.name}': '{name}' is not a declared column"
                self.report.add(at, message, expected, Misspelt(name, list(self.columns)))
            elif column is not None and column.type not in ("string", "integer", "boolean"):
                message = f"'group_by' in history of stream '{self.name}': column '{name}' is of type {column.type}"
                self.report.add(at, message, "a column of type string, integer or boolean")
            elif name in names:
                self.report.add(at, f"'group_by' in history of stream '{self.name}' names '{name}' twice", "each once")
            else:
                names.append(name)
                continue
            return None
        return tuple(names)


def column_type(text: str) -> ColumnType:
    """A converter that takes the types of columns."""
    word = text.strip()
    kind = read_type(word)
    if kind is None and re.fullmatch(r"decimal\(\s*[0-9]+", word):
        message = f"{shown(word)} is cut off: within braces a comma ends a value"
        raise UnreadableError(message, f"quotes around it: '{word}, 2)'")
    if kind is None:
        if _DIGITS.fullmatch(word):
            expected = f"decimal(p, s): p digits in all, 1 to {MAX_PRECISION}, of them s after the point"
            raise UnreadableError(f"{shown(word)} is no type", expected)
        known = (*SIMPLE_TYPES, "decimal(10, 2)")
        expected = f"one of {', '.join(SIMPLE_TYPES)}, or decimal(p, s) of at most {MAX_PRECISION} digits"
        raise UnreadableError(f"{shown(word)} is not a known value", expected, Misspelt(word, known))
    return kind


def one_of(*words: str) -> Callable[[str], str]:
    """A converter that takes exactly the given words."""

    def convert(text: str) -> str:
        word = text.strip()
        if word not in words:
            expected = f"one of {', '.join(words)}"
            raise UnreadableError(f"{shown(word)} is not a known value", expected, Misspelt(word, words))
        return word

    return convert


def read_streams(
    report: Report, node: yaml.Node, folder: Path, clock: Clock
) -> tuple[tuple[Stream, ...], dict[str, StreamSchema]]:
    """All streams that are free of mistakes, and the schemas of all that are named."""
    streams: list[Stream] = []
    schemas: dict[str, StreamSchema] = {}
    section = Section(report, node, "streams")
    names = list(section.items())
    if isinstance(node, yaml.MappingNode) and not names:
        report.add(section.offset, "the pipeline has no streams", "at least one stream")
    for name, offset, value in names:
        problem = identifier_refusal(name, "stream")
        if problem:
            report.add(offset, *problem)
        own = StreamSection(report, name, Section(report, value, f"stream '{name}'", STREAM_KEYS), folder, clock)
        stream = own.read() if isinstance(value, yaml.MappingNode) else None
        schemas[name] = own.schema()
        if stream is not None and not problem:
            streams.append(stream)
    return tuple(streams), schemas
