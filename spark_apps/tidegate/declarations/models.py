"""What a pipeline declares, as frozen models.

These are the only shapes that the rest of Tidegate knows about a user's pipeline: the parser makes them out of
``pipeline.yml`` and ``queries/*.sql``, everything else reads them. All times are UTC; durations are whole microseconds
under the hood and seconds (``_s``) where a bare number crosses a boundary.
"""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from tidegate.aggregates import AGGREGATES, AggregateFunction
from tidegate.declarations.rewriting import rewritten
from tidegate.values.calendar import Calendar
from tidegate.values.types import ColumnType, is_number

QueryKind = Literal["aggregate", "join_aggregate", "top_k"]
JoinKind = Literal["inner", "left", "semi", "anti"]
OnMiss = Literal["warn", "fail", "omit", "correct"]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_us(instant: datetime) -> int:
    """Microseconds since 1970-01-01 UTC, exactly (a float of seconds would lose some)."""
    return (instant - EPOCH) // timedelta(microseconds=1)


def from_us(microseconds: int) -> datetime:
    """The UTC instant so many microseconds after 1970-01-01."""
    return EPOCH + timedelta(microseconds=microseconds)


class Model(BaseModel):
    """Frozen and closed: an unknown key is an error, a declared thing never changes."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


PathStep = str | int
"""A step of a path into a record: the name of a field, or the number of a list's element, from 0."""


Part = Literal["value", "key", "headers", "topic", "partition", "offset", "timestamp"]
"""Of a Kafka record: which part of it."""


class Column(Model):
    """One declared column of a stream.

    ``path``: the steps that lead to its value in a record; empty: the field of the column's name. ``part``: which part
    of a Kafka record holds it; of ``headers`` the path is the header's name. ``format``: how a
    timestamp or date is written: ``iso``, ``epoch_s``, ``epoch_ms``, ``epoch_us``, ``epoch_ns``, or a pattern of
    ``strptime``. ``zone``: the IANA time zone of times that do not say theirs.
    """

    name: str
    type: ColumnType
    nullable: bool = True
    description: str = ""
    path: tuple[PathStep, ...] = ()
    part: Part = "value"
    format: str = "iso"
    zone: str = "UTC"

    @property
    def steps(self) -> tuple[PathStep, ...]:
        """The path to the value, that of a column without one too."""
        return self.path or (self.name,)


class CsvDialect(Model):
    """How CSV files are written.

    ``decimal``: the sign before a number's fraction. ``nulls``: cells, not quoted, that stand for no value.
    ``comment``: a line that begins so is no record; empty: there are no comments.
    """

    delimiter: str = ","
    header: bool = True
    decimal: str = "."
    quote: str = '"'
    encoding: str = "utf-8"
    nulls: tuple[str, ...] = ("",)
    comment: str = ""


class KafkaSource(Model):
    """A topic of Kafka.

    ``servers``, ``registry`` and the values of ``options`` (Spark's, of its Kafka source) may hold ``${NAME}``, which
    is looked up in the environment where the stream is read, and nowhere else. ``schema_file``: the Avro schema of the
    values, ``schema_text``: what it says; ``registry``: the URL of a schema registry whose ids are in the values
    (Confluent's framing).
    """

    servers: str
    topic: str
    options: dict[str, str] = {}
    schema_file: Path | None = None
    schema_text: str = ""
    registry: str | None = None

    def __hash__(self) -> int:
        return hash((self.servers, self.topic, self.schema_text, self.registry, *self.options.items()))


class SparkSource(Model):
    """Any source of Spark's Structured Streaming.

    ``format``, ``options`` (may hold ``${NAME}``) and ``columns``, its schema in DDL (the key ``schema``), as
    ``spark.readStream`` takes them.
    """

    format: str
    options: dict[str, str] = {}
    columns: str | None = None

    def __hash__(self) -> int:
        return hash((self.format, self.columns, *self.options.items()))


class History(Model):
    """How a stream's past is kept.

    ``leaf_s``: length of one leaf in seconds of event time. ``capacity_tuples``: D, the most tuples that the store of
    samples holds. ``max_fraction``: f_max, the share of leaving tuples that is sampled at first. ``min_fraction``:
    leaves whose target falls below lose their samples and keep their exact aggregates. ``merge_leaves``: C, how many
    consecutive leaves one recursive pass merges. ``seed`` enters the priority hash. ``law``: how the target fraction
    falls with age. ``reserve``: the share of D for what enters between two passes. ``bands``: how many bands of
    priority for every factor of two. ``group_by``: columns whose values have exact aggregates of their own.
    """

    leaf_s: int
    capacity_tuples: int
    max_fraction: float = 0.9
    min_fraction: float = 0.001
    merge_leaves: int = 6
    seed: int = 0
    law: Literal["exponential", "inverse_age"] = "exponential"
    reserve: float = 0.1
    bands: int = 2
    group_by: tuple[str, ...] = ()


class Stream(Model):
    """One declared stream of tuples.

    ``path``: a file pattern, relative paths already resolved against the pipeline's folder, environment variables
    already expanded. ``strftime`` directives in it (``%Y-%m-%dT%H``) name the arrival interval whose tuples a file
    holds; without any, every file is read in every interval and its records are told apart by their arrival time.
    ``arrival_time``: the column that holds it, or None: stamped with the time at which the file landed.
    ``rate``: expected tuples per second, for the plan before anything has been measured.
    ``max_early_s``: an arrival further before its event time is quarantined. ``max_late_s``: an event time further
    before its arrival is quarantined. ``max_width_s``: surplus memory never widens the window past it; without it,
    see ``Pipeline.max_width_s``. ``id``: the columns that identify a record; none: its place in its source does.
    ``other_columns``: whether fields that no column is read from are ignored (and counted), or refuse the record.
    ``missing_file``: whether an interval without a file is an error of data quality, a warning, or nothing at all.
    ``source``: of a stream that comes through Spark, what it comes from; None: files. Such a stream has no ``path``;
    its ``format`` is that of its values, empty where a source of Spark has columns. ``arrival_stamp``: what says when a
    record arrived, if no column does: its landing, or Kafka's timestamp. ``checkpoint``: a place for the
    checkpoints of the stream's landing, None: in the warehouse.
    """

    name: str
    description: str = ""
    format: str
    path: str = ""
    source: KafkaSource | SparkSource | None = None
    checkpoint: str | None = None
    csv: CsvDialect = CsvDialect()
    other_columns: Literal["ignore", "refuse"] = "ignore"
    columns: tuple[Column, ...]
    event_time: str
    arrival_time: str | None
    arrival_stamp: Literal["landed", "broker"] = "landed"
    id: tuple[str, ...]
    rate: float
    max_early_s: int
    max_late_s: int
    max_width_s: int | None = None
    missing_file: Literal["error", "warn", "ignore"] = "warn"
    history: History | None = None

    def column(self, name: str) -> Column:
        """The declared column of that name; KeyError if there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    @property
    def required(self) -> frozenset[str]:
        """The columns without whose values a record is no tuple, whatever ``nullable`` says."""
        return frozenset(name for name in (*self.id, self.event_time, self.arrival_time) if name is not None)

    @property
    def numeric_columns(self) -> tuple[str, ...]:
        """Names of the columns of numbers, in declared order; not ``event_id``, which is stored as text."""
        return tuple(c.name for c in self.columns if is_number(c.type) and c.name != "event_id")


REFERENCE_SHARE = 8
"""Reference tables may take this part of the process budget, together."""


class ReferenceTable(Model):
    """A table that tuples are looked up in: a file, read anew by every interval's ingest.

    ``path``: absolute, or a URI. ``format``: csv, parquet or delta. ``key``: the columns by which rows are looked up.
    ``valid_from``, ``valid_to``: the columns that bound when a row is valid, half-open, or None.
    """

    name: str
    description: str = ""
    path: str
    format: str
    csv: CsvDialect = CsvDialect()
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    valid_from: str | None = None
    valid_to: str | None = None

    def column(self, name: str) -> Column:
        """The declared column of that name; KeyError if there is none."""
        return {column.name: column for column in self.columns}[name]


_PLAIN_KEY = re.compile(r"`?\w+`?")


class Lookup(Model):
    """Columns of a reference table that tuples have besides their own: those of the row that their keys name.

    ``keys``: for each column of the table's key, in its order, Spark SQL over the tuples' columns, those of lookups
    before among them. Without a row the columns are NULL. Equal lookups give columns of equal names.
    """

    table: str
    keys: tuple[str, ...]

    def name_of(self, column: str) -> str:
        """What the tuples call a column of the table.

        >>> Lookup(table="goods", keys=("shop", "`product`")).name_of("price")
        'goods[shop, product].price'
        """
        keys = ", ".join(self.keys).replace("`", "")
        if not all(map(_PLAIN_KEY.fullmatch, self.keys)):  # names are compared without regard to letter case
            keys = f"{keys} {hashlib.sha256('|'.join(self.keys).encode()).hexdigest()[:8]}"
        return f"{self.table}[{keys}].{column}"


class DerivedColumn(Model):
    """A column of a derived stream; ``expression``: Spark SQL over the bare column names of the declared stream."""

    name: str
    type: ColumnType
    expression: str


class Branch(Model):
    """What a window reads of one declared stream: its tuples, or of a union those of one branch.

    ``columns``: what the union's columns are of these tuples, and ``id`` what their ``event_id`` is, as Spark SQL;
    empty where the tuples are read as they are. ``predicate``: Spark SQL that must be true of a tuple, or None.
    ``lookups``: what is looked up for it, each after those that it needs. ``renamed``: of lookups by columns of the
    union, how their columns' names begin there, and how of these tuples.
    """

    stream: str
    columns: tuple[DerivedColumn, ...] = ()
    id: str = ""
    predicate: str | None = None
    lookups: tuple[Lookup, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()

    def over(self, sql: str) -> str:
        """SQL over the union's columns as SQL over the columns of these tuples.

        >>> column = DerivedColumn(name="amount", type="double", expression="price * 2E0")
        >>> Branch(stream="orders", columns=(column,), id="'1:' || event_id").over("amount > 9 AND event_id <> '1:7'")
        "(price * 2E0) > 9 AND ('1:' || event_id) <> '1:7'"
        """
        return rewritten(sql, self._meant) if self.columns and sql else sql

    def looking_up(self, lookups: tuple[Lookup, ...]) -> Branch:
        """The same, with what is looked up for the union's tuples."""
        own = self
        for lookup in lookups:
            meant = lookup.model_copy(update={"keys": tuple(map(own.over, lookup.keys))})
            renamed = (*own.renamed, (lookup.name_of(""), meant.name_of("")))
            every = tuple(dict.fromkeys((*own.lookups, meant)))
            own = own.model_copy(update={"lookups": every, "renamed": renamed})
        return own

    def _meant(self, name: str) -> str | None:
        """What a column of the union stands for."""
        for before, here in self.renamed:
            if name.lower().startswith(before.lower()):
                return f"`{here}{name[len(before) :]}`"
        expressions = {column.name.lower(): column.expression for column in self.columns}
        sql = expressions.get(name.lower(), self.id if name.lower() == "event_id" else "")
        return f"({sql})" if sql and not _PLAIN_KEY.fullmatch(sql) else sql or None


class Bound(Model):
    """When the tuples of a window without RANGE match one of ``to``, the alias that has a window, and what comes of it.

    ``kind``: ``inner`` pairs tuples that match; ``left`` those, and tuples of ``to`` without a match with NULLs;
    ``semi`` and ``anti`` have the tuples of ``to`` with a match, and without one, each once.
    ``low_us``, ``high_us``: least and greatest distance of the event time from that of the tuple of ``to``.
    ``low_s``, ``high_s``: the same in whole ticks, as the window of all tuples that may match reaches.
    """

    to: str
    kind: JoinKind
    low_us: int
    high_us: int
    low_s: float
    high_s: float

    @property
    def is_optional(self) -> bool:
        """Whether tuples of ``to`` without a match are in the result, so that a late match takes some of it back."""
        return self.kind in ("left", "anti")


class Window(Model):
    """One window that a query reads: ``stream [RANGE range_s] AS alias``.

    ``calendar``: of a range of local days or months what it spans; ``range_s`` is then the longest of them.
    ``derived``: the derived stream that the query names; ``stream`` is then the one whose tuples it has. ``lookups``:
    what is looked up for a tuple, each after those that it needs. ``bound``: of a window without RANGE, from which it
    follows: with [t − T, t) the window of ``bound.to``, it is [t − T + low, t + high), and ``range_s`` its length.
    ``branches``: of a union, whose name ``stream`` is then, and over whose columns all is that is said of the window.
    """

    alias: str
    stream: str
    range_s: float
    calendar: Calendar | None = None
    derived: str | None = None
    lookups: tuple[Lookup, ...] = ()
    bound: Bound | None = None
    branches: tuple[Branch, ...] = ()

    @property
    def sources(self) -> tuple[Branch, ...]:
        """What it reads, stream by stream; of a union branch by branch, which may be of one stream."""
        if not self.branches:
            return (Branch(stream=self.stream, lookups=self.lookups),)
        return tuple(branch.looking_up(self.lookups) for branch in self.branches)

    @property
    def streams(self) -> tuple[str, ...]:
        """Names of the declared streams whose tuples it holds, each once."""
        return tuple(dict.fromkeys(branch.stream for branch in self.branches)) or (self.stream,)


class Aggregate(Model):
    """One aggregate that a query needs, in a slot ``a0``, ``a1`` …

    ``alias`` and ``expression`` are None for COUNT(*); otherwise ``expression`` is Spark SQL over the bare column
    names of that one alias. ``function`` names an aggregate of ``tidegate.aggregates``, ``type`` is its result's type,
    ``measured_type`` that of the values that are read for it, None: the same. ``by``: SQL of what it chooses by, of
    ``by_type``; ``parameters``: its numbers.
    """

    slot: str
    function: str
    alias: str | None
    expression: str | None
    type: ColumnType
    measured_type: ColumnType | None = None
    by: str | None = None
    by_type: ColumnType = "timestamp"
    parameters: tuple[float, ...] = ()

    @property
    def called(self) -> AggregateFunction:
        """What the aggregate is."""
        return AGGREGATES[self.function]

    @property
    def measured(self) -> ColumnType:
        """The type of the values that are read for it."""
        return self.measured_type or self.type

    @property
    def held_type(self) -> pa.DataType:
        """The type of what the operator is given."""
        return self.called.held_type(self.measured)

    def words(self, argument: str) -> str:
        """The aggregate of an argument, as it is told."""
        return self.called.called(argument, self.by or "", self.parameters)


class GroupColumn(Model):
    """One GROUP BY (or PARTITION BY) column, in a slot ``g0``, ``g1`` …; ``shown_as``: the answer's column of it.

    ``computed``: whether ``column`` is no name, but Spark SQL over the bare column names of the alias.
    """

    slot: str
    alias: str
    column: str
    type: ColumnType
    shown_as: str
    computed: bool = False

    @property
    def sql(self) -> str:
        """The group as Spark SQL over the bare column names of its alias."""
        return self.column if self.computed else f"`{self.column}`"

    @property
    def words(self) -> str:
        """The group as it is told: ``alias.column``, or what is computed of the alias' columns."""
        return f"{self.alias}: {self.column}" if self.computed else f"{self.alias}.{self.column}"


class Output(Model):
    """One column of the answer.

    Aggregates and join-aggregates: ``expression`` is Spark SQL over the slots (``a0``, ``g0`` …). Top-k: over the bare
    column names of the one stream.
    """

    name: str
    expression: str
    type: ColumnType


class JoinClass(Model):
    """Columns that the WHERE clause equates, one or more an alias: ``j0: a.origin = b.origin``.

    ``computed``: those of them that are no names, but Spark SQL over the bare column names of the alias.
    """

    slot: str
    columns: tuple[tuple[str, str], ...]  # (alias, column)
    type: ColumnType
    computed: tuple[tuple[str, str], ...] = ()

    def sql(self, alias: str) -> list[str]:
        """The alias' columns as Spark SQL."""
        columns = [column for column in self.columns if column[0] == alias]
        return [f"({column[1]})" if column in self.computed else f"`{column[1]}`" for column in columns]


class ComparedColumn(Model):
    """A column that a condition over several aliases reads, in a slot ``c0``, ``c1`` …; ``sql``: over stored tuples."""

    slot: str
    alias: str
    sql: str
    type: ColumnType


class PairCondition(Model):
    """A condition over several aliases: Spark SQL over the slots of compared columns; ``words``: over alias.column."""

    expression: str
    words: str


class Order(Model):
    """One ORDER BY term: Spark SQL over a top-k's bare column names, or over the slots of groups. NULLs come last."""

    slot: str
    expression: str
    descending: bool
    type: ColumnType


class Sessions(Model):
    """The windows of a query by session: a key's tuples, none of which is more than ``gap_us`` before the next.

    A session that has lasted for ``longest_us`` is cut at the next multiple of it since 1970 (``operators.sessions``).
    """

    gap_us: int
    longest_us: int

    @property
    def reach_us(self) -> int:
        """How far before its end a session begins, at most."""
        return 2 * self.longest_us + self.gap_us


class Query(Model):
    """One continuous query.

    ``predicates``: alias → Spark SQL over that alias' bare column names, applied before the window.
    ``conditions``: of a join, which of the joined tuples count, over the slots of ``compared``.
    ``group_by``: of a top-k, the columns by whose values it has ``limit`` best each; its outputs show them all.
    ``limit``, ``order_by`` of an aggregate: its answer is its best groups; ``within``: the columns of the answer for
    each of whose values it has so many.
    ``having``: Spark SQL over the slots (values as emitted). ``error``/``accuracy``: the promise as a fraction (0.02,
    0.95) or None; ``on_miss``: what comes of a miss. ``groups_within``: the share of a window's groups for which ERROR
    is promised; ``floors``: column of the answer → the absolute error that is within ERROR whatever the truth;
    ``for_each``: columns of the answer for each of whose values ACCURACY is promised.
    ``every_s``: the tick, seconds. ``calendar``: the days, weeks or months at whose local begins windows end;
    ``every_s`` is then their usual length. ``active_from``/``active_to``: DURATION, half-open, or None.
    ``priority``: which queries are admitted first (largest) when they do not all fit.
    ``shows_window_start``: whether answers have a column ``window_start`` beside ``window_end``.
    ``sessions``: of a query whose windows are sessions of its groups; ``every_s`` then says nothing, and the range of
    its window is how far a session reaches back.
    ``emit_early``: whether each window has an answer at its end, too. ``emit_every_s``: how far apart the answers are
    that follow the promised one until the window is final; None: none follow.
    ``text`` is the SQL as written; ``description`` its leading comment.
    """

    id: str
    kind: QueryKind
    text: str
    description: str
    windows: tuple[Window, ...]
    predicates: dict[str, str]
    join_classes: tuple[JoinClass, ...] = ()
    compared: tuple[ComparedColumn, ...] = ()
    conditions: tuple[PairCondition, ...] = ()
    group_by: tuple[GroupColumn, ...] = ()
    aggregates: tuple[Aggregate, ...] = ()
    outputs: tuple[Output, ...]
    having: str | None = None
    order_by: tuple[Order, ...] = ()
    limit: int | None = None
    within: tuple[str, ...] = ()
    error: float | None = None
    accuracy: float | None = None
    groups_within: float = 1.0
    floors: dict[str, float] = {}
    for_each: tuple[str, ...] = ()
    on_miss: OnMiss = "warn"
    every_s: float
    calendar: Calendar | None = None
    active_from: datetime | None = None
    active_to: datetime | None = None
    priority: int = 0
    shows_window_start: bool = False
    sessions: Sessions | None = None
    emit_early: bool = False
    emit_every_s: float | None = None

    @property
    def streams(self) -> tuple[str, ...]:
        """Names of the streams read, each once, in order of first mention."""
        return tuple(dict.fromkeys(stream for w in self.windows for stream in w.streams))

    @property
    def sources(self) -> tuple[tuple[str, Branch], ...]:
        """What its windows read, each with its alias."""
        return tuple((window.alias, source) for window in self.windows for source in window.sources)

    @property
    def ranged(self) -> tuple[Window, ...]:
        """The windows that have a RANGE."""
        return tuple(window for window in self.windows if window.bound is None)

    @property
    def bounded(self) -> Window | None:
        """The window without RANGE, whose tuples match by their distance in time; None if there is none."""
        return next((window for window in self.windows if window.bound is not None), None)

    @property
    def is_narrowed(self) -> bool:
        """Whether answers may be given over a part of the ranges; with a bound they are held whole or not at all."""
        return self.bounded is None

    @property
    def lag_s(self) -> float:
        """How long after a window's end tuples that match may still happen: so much later its answer is due."""
        bounded = self.bounded
        return 0.0 if bounded is None or bounded.bound is None else max(bounded.bound.high_s, 0.0)

    @property
    def lag_us(self) -> int:
        """The same in microseconds."""
        return round(self.lag_s * 1e6)

    @property
    def longest_gap_s(self) -> float:
        """At support level C, how far apart two answers may be; 0: windows end where the calendar or tuples say."""
        is_regular = self.calendar is None and self.sessions is None and self.is_narrowed
        return self.every_s if is_regular else 0.0

    def ranges_s(self) -> dict[str, float]:
        """Stream → how far back from its answer, K aside, the query needs it at most, seconds: the widest range.

        With a bound answers are due ``lag_s`` later.
        """
        ranges: dict[str, float] = {}
        for window in self.windows:
            reach_s = window.range_s + self.due_after_s(window)
            ranges |= {stream: max(ranges.get(stream, 0.0), reach_s) for stream in window.streams}
        return ranges

    def due_after_s(self, window: Window) -> float:
        """How long after the end of one of its windows the answer is due, K aside: 0 without a bound."""
        return self.lag_s if window.bound is None else self.lag_s - window.bound.high_s

    @property
    def group_outputs(self) -> tuple[str, ...]:
        """Of each group column the name of the answer's column that shows it."""
        return tuple(group.shown_as for group in self.group_by)

    @property
    def ranks_groups(self) -> bool:
        """Whether the answer is an aggregate's best groups."""
        return self.kind != "top_k" and self.limit is not None

    @property
    def is_ranked(self) -> bool:
        """Whether the answer's rows have ranks, and its accuracy is a hit rate: of tuples, or of groups."""
        return self.limit is not None

    @property
    def row_keys(self) -> tuple[str, ...]:
        """Of a top-k, the answer's columns that tell a window's rows apart: its groups, then the rank."""
        return (*self.group_outputs, "rank")

    @property
    def answer_keys(self) -> tuple[str, ...]:
        """The answer's columns that tell a window's rows apart: a top-k's ``row_keys``, else the groups shown.

        Sessions that end at one instant are told apart by their starts, too.
        """
        if self.sessions is not None:
            return ("window_start", *self.group_outputs)
        return self.row_keys if self.kind == "top_k" else self.group_outputs

    @property
    def corrected(self) -> dict[str, ColumnType]:
        """The answer's other columns: what a correction is about."""
        own: dict[str, ColumnType] = {o.name: o.type for o in self.outputs if o.name not in self.answer_keys}
        return own if self.kind != "top_k" or "event_id" in own else {"event_id": "string", **own}

    @property
    def promised(self) -> float | None:
        """The promise as a fraction: the tolerated error, or the least accuracy."""
        return self.error if self.error is not None else self.accuracy

    @property
    def promises_by_group(self) -> bool:
        """Whether its promise tells groups apart: FOR … OF GROUPS, OR … IN or FOR EACH."""
        return self.groups_within < 1 or bool(self.floors) or bool(self.for_each)

    @property
    def emits_updates(self) -> bool:
        """Whether its windows have more answers than the promised one (EMIT)."""
        return self.emit_early or self.emit_every_s is not None

    @property
    def least_truths(self) -> dict[str, float]:
        """Column of the answer with a floor → the least number to which its error is relative."""
        return {} if self.error is None else {name: floor / self.error for name, floor in self.floors.items()}


class DerivedStream(Model):
    """A SELECT that queries read like a stream. It is no copy: its tuples are those of ``stream``, a declared one.

    ``reads``: the stream that it names, which may be derived too; of UNION ALL all that it names. ``predicate``: Spark
    SQL over the bare column names of ``stream``, with the conditions of all derived streams between, or None.
    ``branches``: of a union, and of what reads one. ``stream`` is then the union's name, and SQL is over its columns.
    """

    name: str
    description: str
    reads: str
    stream: str
    columns: tuple[DerivedColumn, ...]
    predicate: str | None
    lookups: tuple[Lookup, ...] = ()
    branches: tuple[Branch, ...] = ()

    @property
    def streams(self) -> tuple[str, ...]:
        """Names of the declared streams whose tuples it has, each once."""
        return tuple(dict.fromkeys(branch.stream for branch in self.branches)) or (self.stream,)


class Pipeline(Model):
    """One declared pipeline.

    ``interval_s``: length of one Airflow interval, ``tick_s``: spacing of the instants at which rates and triggers are
    evaluated (both divide a day; every EVERY and range is a multiple of the tick). ``horizon_s``: how long after its
    end a window is final, but for a bound's ``lag_s``. ``memory_budget_bytes``: M, what all windows may hold together.
    ``process_budget_bytes``: the most that the JVM and its Python workers may take together.
    ``initial_slack_s``: the least K before two promise periods are known. ``promise_period_s``: ERROR and ACCURACY
    are promised for each such period, since 1970. ``rate_change``: δ, the relative change of a stream's
    rate that makes a new plan. ``partitions``: the most slices that a query's work is cut into.
    ``start``: the first instant that Airflow schedules. ``retention_s``: kind of table → how long its rows stay.
    """

    name: str
    folder: Path
    description: str = ""
    owner: str
    start: datetime
    interval_s: int
    tick_s: int
    horizon_s: int
    memory_budget_bytes: int
    process_budget_bytes: int
    initial_slack_s: int = 0
    promise_period_s: int = 86_400
    rate_change: float = 0.5
    partitions: int = 10_000
    retention_s: dict[str, int] = {}
    streams: tuple[Stream, ...]
    queries: tuple[Query, ...]
    derived: tuple[DerivedStream, ...] = ()
    tables: tuple[ReferenceTable, ...] = ()

    def final_after_us(self, query: Query) -> int:
        """How long after its end a window of the query is final, microseconds."""
        return self.horizon_s * 1_000_000 + query.lag_us

    @property
    def landed_streams(self) -> tuple[Stream, ...]:
        """Those that come through Spark."""
        return tuple(stream for stream in self.streams if stream.source is not None)

    def stream(self, name: str) -> Stream:
        """The declared stream of that name; KeyError if there is none."""
        for stream in self.streams:
            if stream.name == name:
                return stream
        raise KeyError(name)

    def lookups(self, stream: str) -> tuple[Lookup, ...]:
        """What queries look up for the tuples of a declared stream, each once and after those that it needs."""
        sources = (source for query in self.queries for _, source in query.sources if source.stream == stream)
        return tuple(dict.fromkeys(lookup for source in sources for lookup in source.lookups))

    def max_width_s(self, stream: str) -> float:
        """The width in seconds past which surplus memory never widens the stream's window; finite for every stream.

        ``max_width``, or without it the widest range that any query names for the stream, plus the horizon: an answer
        waits at most the horizon for late tuples, so no declared query can ever use more.
        """
        declared = self.stream(stream).max_width_s
        if declared is not None:
            return float(declared)
        return max((q.ranges_s().get(stream, 0.0) for q in self.queries), default=0.0) + self.horizon_s

    def query(self, query_id: str) -> Query:
        """The declared query of that id; KeyError if there is none."""
        for query in self.queries:
            if query.id == query_id:
                return query
        raise KeyError(query_id)
