"""The second half of ingest, once every part is known: ids that came again are refused, the rest sorted and written.

Three kinds of slices, each of which reads of the parts what it needs: :class:`Again` (which tuples to refuse, by a
range of hashes), :class:`Sorted` (a stream's tuples of a range of arrival), :class:`Refusals` (a stream's quarantine).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.declarations.models import Lookup, Stream
from tidegate.declarations.tables import common_schema, event_schema
from tidegate.engine import Slice
from tidegate.operators import duplicates
from tidegate.operators.schedule import instants_us
from tidegate.operators.tuple_bytes import Held, tuple_bytes
from tidegate.sources.parse import FILE, HASH, Part
from tidegate.sources.records import LINE, POSITION
from tidegate.sources.source import reader_of
from tidegate.store import parquet as stored
from tidegate.store.references import References
from tidegate.values.types import TIMESTAMP

ROW_GROUP_ROWS = 1 << 17
_QUARANTINE_ORDER = ("arrival_time", "reason", "record", "column", "source", "position")
Rows = Mapping[str, npt.NDArray[np.int64]]
"""A part's path → numbers of rows in it, ascending."""


class Sighting(NamedTuple):
    """How long a file was when an interval (``start_us``: any instant of it) first saw it so long.

    ``first_us``, ``last_us``: the arrivals that its records could have then; first > last: none.
    """

    bytes: int
    start_us: int
    first_us: int = 1
    last_us: int = 0


def intervals_of_refused(
    sightings: Sequence[Sighting], arrival_us: npt.NDArray[np.int64], positions: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """An instant of the interval to which each refused record of a file belongs: int64[n].

    It is that of its arrival, if records could have it when the file was first seen so long, else the interval that
    saw it so. What was seen later changes neither: each record stays in one interval.

    Args:
        sightings: ascending; the last one has what is behind it, too.
        arrival_us: µs since 1970, int64[n]; an instant that no record can have where it cannot be read.
        positions: bytes of the file, int64[n].
    """
    sizes, starts, first, last = np.array(sightings, np.int64).T
    step = np.minimum(np.searchsorted(sizes, positions, side="right"), len(sizes) - 1)
    within = (arrival_us >= first[step]) & (arrival_us <= last[step])
    return np.asarray(np.where(within, arrival_us, starts[step]), np.int64)


@dataclass(frozen=True)
class Remembered:
    """What an interval of the past accepted: its start, its files of tuples, and of hashes of their ids, if there."""

    start_us: int
    tuples: tuple[str, ...]
    hashes: tuple[str, ...]

    def read(self) -> duplicates.Hashes:
        """The hashes of the ids."""
        if self.hashes:
            return np.concatenate([stored.opened(f).read(columns=[HASH]).column(0).to_numpy() for f in self.hashes])
        ids = [stored.opened(f).read(columns=["event_id"]).column(0).combine_chunks() for f in self.tuples]
        return np.concatenate([np.empty(0, np.uint64), *map(duplicates.hashes, ids)])


@dataclass(frozen=True)
class Again:
    """Which of a stream's tuples bear an id that came before.

    Of the hashes in [first, last], and of the arrivals in [start, end); ``broken``: files to leave out.
    """

    parts: tuple[Part, ...]
    broken: frozenset[str]
    past: tuple[Remembered, ...]
    interval_us: int
    memory_us: int
    first: int = 0
    last: int = 2**64 - 1
    start_us: int = -(2**62)
    end_us: int = 2**62


def find_again(one: Slice) -> Rows:
    """The rows of the parts that are refused for their id (of a slice of :class:`Again`).

    **Memory**: some 80 bytes a tuple in the range (hash, owner and place, twice while they are put together, and what
    :func:`duplicates.suspects` sorts), and the tuples whose hashes agree with another's.
    """
    again: Again = one.of
    found, owner, place = [], [], []
    for number, part in enumerate(again.parts):
        table = part.read([HASH, FILE])
        own = table.column(HASH).to_numpy()
        wanted = kept(part, table, again.broken)
        if (again.first, again.last) != (0, 2**64 - 1):
            wanted = wanted & (own >= np.uint64(again.first)) & (own <= np.uint64(again.last))
        wanted &= arrived(part, again.start_us, again.end_us)
        rows = np.flatnonzero(wanted)
        found.append(own[rows])
        owner.append(np.full(len(rows), number, np.int32))
        place.append(rows)
    if not found:
        return {}
    new, owners, places = np.concatenate(found), np.concatenate(owner), np.concatenate(place)
    same, met = duplicates.suspects(new, (one.read() for one in again.past))
    if not len(same):
        return {}
    ids, turns = _looked_at(again.parts, owners[same], places[same])
    last_us = _last_accepted(again, ids, met)
    refused = same[duplicates.repeated(ids, turns, last_us, again.interval_us, again.memory_us)]
    return {part.path: np.sort(places[refused][owners[refused] == n]) for n, part in enumerate(again.parts)}


def _looked_at(
    parts: Sequence[Part], owners: np.ndarray, places: np.ndarray
) -> tuple[list[str], list[duplicates.Turn]]:
    ids = np.empty(len(owners), dtype=object)
    turns = np.empty(len(owners), dtype=object)
    for number, part in enumerate(parts):
        mine = np.flatnonzero(owners == number)
        if not len(mine):
            continue
        names = ["event_id", "arrival_time", "event_time", FILE, POSITION, LINE]
        table = part.read(names).take(pa.array(places[mine]))
        ids[mine] = table.column("event_id").to_pylist()
        times = (instants_us(table.column(name)).tolist() for name in ("arrival_time", "event_time"))
        others = (table.column(name).to_pylist() for name in (FILE, POSITION, LINE))
        for i, arrival_us, event_us, number, position, line in zip(mine, *times, *others, strict=True):
            turns[i] = (arrival_us, *part.files[number].turn(event_us, line), position)
    return ids.tolist(), turns.tolist()


def _last_accepted(again: Again, ids: Sequence[str], met: duplicates.Hashes) -> dict[str, int]:
    """Id → start of the interval in which it was last accepted before, of those whose hash was met there."""
    last: dict[str, int] = {}
    if not len(met):
        return last
    known = pa.array(sorted(set(ids)), pa.string())
    known = known.filter(pa.array(np.isin(duplicates.hashes(known), met)))
    for one in sorted(again.past, key=lambda past: past.start_us):
        if one.tuples:
            source = stored.dataset(one.tuples, pa.schema([("event_id", pa.string())]))
            found = source.to_table(filter=pc.field("event_id").isin(known), use_threads=False)
            last |= dict.fromkeys(found.column("event_id").to_pylist(), one.start_us)
    return last


def kept(part: Part, table: pa.Table, broken: frozenset[str]) -> npt.NDArray[np.bool_]:
    """Which rows are not of a file that was found broken elsewhere."""
    gone = [n for n, file in enumerate(part.files) if file.name in broken]
    if not gone:
        return np.ones(table.num_rows, dtype=bool)
    return ~np.isin(table.column(FILE).to_numpy(), gone)


def arrived(part: Part, start_us: int, end_us: int) -> npt.NDArray[np.bool_]:
    """Which tuples arrived in [start, end)."""
    if part.first_us >= start_us and part.last_us < end_us:
        return np.ones(part.rows, dtype=bool)
    arrival_us = instants_us(part.read(["arrival_time"]).column(0))
    return (arrival_us >= start_us) & (arrival_us < end_us)


@dataclass(frozen=True)
class Sorted:
    """A stream's tuples that arrived in [start, end), but for ``refused``: to ``tuples``; their hashes to ``hashes``.

    ``held``: what the queries' operators hold of a tuple, with ``lookups`` in ``references``. ``tick_us``: length of
    panes.
    """

    stream: Stream
    parts: tuple[Part, ...]
    broken: frozenset[str]
    refused: Rows
    start_us: int
    end_us: int
    tuples: str
    hashes: str
    held: tuple[Held, ...]
    tick_us: int
    references: References = References()
    lookups: tuple[Lookup, ...] = ()

    def extended(self, rows: pa.Table) -> pa.Table:
        """Tuples with all that queries look up for them."""
        extended: pa.Table = self.references.extended(rows, self.lookups)
        return extended


@dataclass(frozen=True)
class Written:
    """``counts``: slot_us, pane_us → tuples, bytes, late. ``interval_us``: any instant of the interval."""

    rows: int
    late: int
    counts: pa.Table


def write_sorted(one: Slice) -> list[Written]:
    """Write the tuples of each :class:`Sorted` of the slice in the order of their table: arrival, then id."""
    return [_write_sorted(item) for item in one.of]


def in_table_order(item: Sorted) -> pa.Table:
    """The tuples in the order of their table, with ``_hash``."""
    tables = list(_within(item))
    names = [*event_schema(item.stream).names, HASH]
    empty = pa.schema([*event_schema(item.stream), pa.field(HASH, pa.uint64())]).empty_table()
    table = pa.concat_tables([t.select(names) for t in tables]) if tables else empty
    return table.take(pa.array(in_order(table)))


def _write_sorted(item: Sorted) -> Written:
    table = in_table_order(item)
    rows = table.drop_columns(HASH)
    codes = [f.name for f in rows.schema if pa.types.is_string(f.type) and f.name != "event_id"]
    stored.write(rows, item.tuples, row_group_size=ROW_GROUP_ROWS, use_dictionary=codes)
    stored.write(table.select([HASH]), item.hashes, use_dictionary=False, compression="none")
    late = instants_us(rows.column("arrival_time")) > instants_us(rows.column("event_time"))
    return Written(rows.num_rows, int(late.sum()), counted(item.extended(rows), item.held, item.tick_us))


def _within(item: Sorted) -> Iterator[pa.Table]:
    for part in item.parts:
        if part.last_us < item.start_us or part.first_us >= item.end_us:
            continue
        table = part.read()
        wanted = kept(part, table, item.broken)
        wanted[item.refused.get(part.path, [])] = False
        wanted &= arrived(part, item.start_us, item.end_us)
        yield table if wanted.all() else table.filter(pa.array(wanted))


def in_order(table: pa.Table) -> npt.NDArray[np.int64]:
    """The rows in order of arrival, then of id: int64[n]. **Cost**: text is compared only where arrivals are equal."""
    arrival_us = instants_us(table.column("arrival_time"))
    order = np.argsort(arrival_us, kind="stable")
    ranked = arrival_us[order]
    equal = np.zeros(len(ranked), dtype=bool)
    tied = ranked[1:] == ranked[:-1]
    equal[1:] |= tied
    equal[:-1] |= tied
    if equal.any():
        some = order[equal]
        keys = table.select(["arrival_time", "event_id"]).take(pa.array(some))
        order[equal] = some[pc.sort_indices(keys, [(name, "ascending") for name in keys.column_names]).to_numpy()]
    return order


def counted(rows: pa.Table, held: Sequence[Held], tick_us: int) -> pa.Table:
    """Tuples and bytes per tick of arrival (``slot_us``) and pane of event time (``pane_us``)."""
    slots, panes = (instants_us(rows.column(name)) // tick_us * tick_us for name in ("arrival_time", "event_time"))
    table = pa.table({"slot_us": slots, "pane_us": panes, "bytes": tuple_bytes(held, rows)})
    grouped = table.group_by(["slot_us", "pane_us"], use_threads=False).aggregate([([], "count_all"), ("bytes", "sum")])
    return pa.table(
        {
            "slot_us": grouped.column("slot_us"),
            "pane_us": grouped.column("pane_us"),
            "tuples": grouped.column("count_all"),
            "bytes": grouped.column("bytes_sum").cast(pa.float64()),
        }
    )


@dataclass(frozen=True)
class Refusals:
    """A stream's refused records: of ``parts``, and the tuples ``again`` that bear an id that came before.

    ``sightings``: by file's name. ``first_lines``: file's name and start of a piece → how many lines are before it.
    ``files``: broken_file, (start of the interval, file's name, what there is to say). ``to``: number of the interval
    since 1970 → where its rows go.
    """

    stream: Stream
    parts: tuple[Part, ...]
    tuples: tuple[Part, ...]
    again: Rows
    broken: frozenset[str]
    sightings: Mapping[str, Sequence[Sighting]]
    first_lines: Mapping[tuple[str, int], int]
    files: tuple[tuple[int, str, str], ...]
    interval_us: int
    to: Mapping[int, str]


def write_refusals(one: Slice) -> tuple[Counter[int], Counter[tuple[str, int]]]:
    """Write the stream's refused records by interval, sorted; how many there are, also by file and interval.

    The second count leaves out what was refused for its id, which is counted among the good records.
    """
    item: Refusals = one.of
    tables, by_file = [], Counter[tuple[str, int]]()
    for part in item.parts:
        table = part.read()
        table = table.filter(pa.array(kept(part, table, item.broken)))
        homes = homes_us(table, part, item.sightings) // item.interval_us
        tables.append(_rows(item, table, homes, _places(item, part, table)))
        names = [part.files[n].name for n in table.column(FILE).to_pylist()]
        by_file.update((name, n) for name, n in zip(names, homes.tolist(), strict=True) if n in item.to)
    for part in item.tuples:
        rows = item.again.get(part.path, ())
        if len(rows):
            tables.append(
                _duplicates(item, part, part.read(["arrival_time", FILE, POSITION, LINE]).take(pa.array(rows)))
            )
    if item.files:
        tables.append(_broken_files(item))
    counts = Counter[int]()
    if not tables:
        return counts, by_file
    table = pa.concat_tables(tables)
    for number, path in item.to.items():
        rows_of = table.filter(pc.equal(table.column("_home"), number)).drop_columns("_home")
        if rows_of.num_rows:
            order = pc.sort_indices(rows_of, [(name, "ascending", "at_start") for name in _QUARANTINE_ORDER])
            stored.write(rows_of.take(order), path)
            counts[number] = rows_of.num_rows
    return counts, by_file


def _duplicates(item: Refusals, part: Part, table: pa.Table) -> pa.Table:
    arrival_us = instants_us(table.column("arrival_time"))
    rows = {
        "arrival_us": arrival_us,
        "reason": ["duplicate_id"] * table.num_rows,
        "column": [", ".join(item.stream.id)] * table.num_rows,
        "record": _texts(item.stream, part, table),
    }
    return _rows(item, pa.table(rows), arrival_us // item.interval_us, _places(item, part, table))


def _broken_files(item: Refusals) -> pa.Table:
    rows = [{"arrival_us": None, "reason": "broken_file", "column": None, "record": text} for _, _, text in item.files]
    schema = pa.schema([("arrival_us", pa.int64()), *[(n, pa.string()) for n in ("reason", "column", "record")]])
    starts = np.array([us for us, _, _ in item.files])
    places = [name for _, name, _ in item.files], [None] * len(rows)
    return _rows(item, pa.Table.from_pylist(rows, schema), starts // item.interval_us, places)


def _places(item: Refusals, part: Part, table: pa.Table) -> tuple[list[str], list[int | None]]:
    """Of each record the file, and the line or row, from 1; of what has landed, the partition and the offset."""
    before = [item.first_lines.get((f.name, start), 0) for f, start in zip(part.files, part.starts, strict=True)]
    numbers = table.column(FILE).to_pylist()
    names = [part.files[n].name for n in numbers]
    if item.stream.source is not None:
        return names, table.column(POSITION).to_pylist()
    lines = table.column(LINE).to_pylist()
    return names, [before[n] + x + 1 for n, x in zip(numbers, lines, strict=True)]


def homes_us(table: pa.Table, part: Part, sightings: Mapping[str, Sequence[Sighting]]) -> npt.NDArray[np.int64]:
    """An instant of the interval to which each refused record belongs: int64[n]; ``sightings``: by file's name."""
    files = table.column(FILE).to_numpy()
    arrival_us = table.column("arrival_us").fill_null(-(2**62)).to_numpy()
    positions = table.column(POSITION).to_numpy()
    instants = np.zeros(len(files), np.int64)
    for number in np.unique(files).tolist():
        rows = np.flatnonzero(files == number)
        file = part.files[number]
        if file.by_arrival:
            instants[rows] = arrival_us[rows]
            continue
        of_file = sightings.get(file.name) or (Sighting(file.bytes, file.modified_us),)
        instants[rows] = intervals_of_refused(of_file, arrival_us[rows], positions[rows])
    return instants


def _rows(
    item: Refusals, table: pa.Table, numbers: np.ndarray, places: tuple[Sequence[str], Sequence[int | None]]
) -> pa.Table:
    columns = {
        "stream": [item.stream.name] * table.num_rows,
        "arrival_time": table.column("arrival_us").cast(TIMESTAMP),
        **{name: table.column(name).cast(pa.string()) for name in ("reason", "column", "record")},
        "source": places[0],
        "position": places[1],
    }
    rows = pa.table(columns, schema=common_schema("quarantine"))
    return rows.append_column("_home", pa.array(numbers, pa.int64()))


def _texts(stream: Stream, part: Part, table: pa.Table) -> list[str]:
    """Records as their files have them, looked up again: they were taken for tuples."""
    texts: list[str] = [""] * table.num_rows
    files, places = table.column(FILE).to_pylist(), table.column(POSITION).to_pylist()
    for number in sorted(set(files)):
        mine = sorted((at, i) for i, (file, at) in enumerate(zip(files, places, strict=True)) if file == number)
        found = reader_of(stream).texts_at(stream, part.files[number], [at for at, _ in mine])
        for (_, i), text in zip(mine, found, strict=True):
            texts[i] = text
    return texts
