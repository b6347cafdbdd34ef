"""Ingest: the tuples that arrived in an interval, valid or quarantined; rates; every window plan that took effect.

Files are cut into slices, each parsed and judged by a task that writes what it keeps to files of its own. Then every
part is known, ids that came again are refused, and tuples are sorted and written, in slices too. How the files were cut
influences nothing: duplicates, rates and triggers are decided from all tuples in order of arrival.

Before anything is committed, records are counted again, by other means: those of the files, and those of what was
written (:mod:`tidegate.stages.ingest_account`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tidegate.declarations.models import from_us
from tidegate.engine.context import RunContext, StageRun
from tidegate.queries import planner
from tidegate.sources.files import SLICE_BYTES, packed
from tidegate.sources.parse import ParseResult, ParseTask, parse_pieces
from tidegate.sources.settle import (
    Again,
    Refusals,
    Rows,
    Sorted,
    Written,
    find_again,
    write_refusals,
    write_sorted,
)
from tidegate.stages import ingest_account as account
from tidegate.stages.id_memory import memory_us, remembered, state_of
from tidegate.stages.ingest_listing import (
    Listing,
    changed_since,
    file_rows,
    listed,
    refuse_changed,
    seen_before,
    sources,
)
from tidegate.stages.ingest_summary import Summary
from tidegate.stages.launcher import launch
from tidegate.stages.reference_versions import put_versions
from tidegate.store.intervals import Interval
from tidegate.store.references import References

STAGE = "ingest"
_FILE_ROWS = 1 << 21
# Of text that is parsed, and of rows that are read, in the same time.
_BYTES_A_ROW = 40
# Of the tuples that are told apart by a slice: at least so many are worth one; each takes so many bytes meanwhile.
_HASHES_WORTH, _HASH_BYTES = 1 << 20, 80


def run(context: RunContext, intervals: Sequence[Interval]) -> None:
    """Read the intervals' tuples, then plan their windows."""
    read(context, intervals)
    plan(context, intervals)


def plan(context: RunContext, intervals: Sequence[Interval]) -> None:
    """Write the rates and every plan that took effect in the intervals, with what had been learnt before each."""
    with context.stage("plan_windows", intervals) as stage:
        planner.plan(context, stage, intervals)


def read(context: RunContext, intervals: Sequence[Interval], slice_bytes: int = SLICE_BYTES) -> None:
    """Ingest the intervals, all in one pass; each one's partitions are the same as if it were run alone."""
    context.require_predecessor("source_files", intervals, STAGE)
    with context.stage(STAGE, intervals) as stage:
        references = put_versions(context, stage.commit, intervals)
        source = sources(context, intervals)
        listings = [listed(stream, source[stream.name], intervals, slice_bytes) for stream in context.pipeline.streams]
        for listing in listings:
            landed = sum(file.bytes for file in listing.files)
            context.progress(f"ingest: {listing.stream.name}: {len(listing.files)} files, {landed} bytes")
        parsed = _parse(context, stage, listings, intervals, slice_bytes)
        apart = account.cut_inside(parsed.reports)
        if apart:
            # Cells with line ends were cut: these files are read as a whole, all of them again, which is rare.
            listings = [
                listed(stream, source[stream.name], intervals, slice_bytes, whole=apart)
                for stream in context.pipeline.streams
            ]
            parsed = _parse(context, stage, listings, intervals, slice_bytes)
        refuse_changed(listings)
        facts = account.facts_of(parsed.reports, seen_before(context, listings), intervals[0].start_us)
        _summarize(context, listings, parsed, facts)
        again = _again(context, parsed, facts, intervals)
        counts = _write_tuples(context, stage, parsed, facts, again, references, intervals)
        refused, by_file = _write_quarantine(context, stage, parsed, facts, again, intervals)
        _write_source_files(context, stage, listings, facts, by_file, intervals)
        _write_unknown_columns(context, stage, facts, intervals)
        account.reconcile(context.pipeline, stage, facts, by_file, intervals)
        planner.put_arrivals(context, stage, intervals, counts)
        for interval in intervals:
            number = refused[_number(interval)]
            late = sum(facts.late[stream.name][_number(interval)] for stream in context.pipeline.landed_streams)
            stage.record(interval, rows_in=number, rows_quarantined=number, rows_landed_late=late)
        context.progress(f"ingest: {stage.total('rows_out')} tuples, {stage.total('rows_quarantined')} quarantined")


def _summarize(context: RunContext, listings: Sequence[Listing], parsed: ParseResult, facts: account.FileFacts) -> None:
    """Keep what there is to say at the end of the run; say at once which columns no record has."""
    summary: Summary = context.memory.setdefault(STAGE, Summary())
    summary.add(parsed.reports, facts, [one.pattern for x in listings for one in x.expected if not one.files])
    for stream, column, near in summary.columns_without_values(context.pipeline):
        hint = f"; did you mean from: {near}?" if near else ""
        context.progress(f"ingest: {stream}: no record has a value for column {column}{hint}")


def _number(interval: Interval) -> int:
    return interval.start_us // (interval.end_us - interval.start_us)


def _parse(
    context: RunContext, stage: StageRun, listings: Sequence[Listing], intervals: Sequence[Interval], slice_bytes: int
) -> ParseResult:
    """Parse and judge everything."""
    folder = stage.commit.scratch / "parts"
    folder.mkdir(exist_ok=True)
    pieces = [piece for listing in listings for piece in listing.pieces]
    length_us = context.pipeline.interval_s * 1_000_000
    span = intervals[0].start_us, intervals[-1].end_us
    slices = [ParseTask(some, *span, str(folder), length_us) for some in packed(pieces, slice_bytes)]
    parts = context.run_slices(parse_pieces, slices, sum(piece.cost for piece in pieces) // _BYTES_A_ROW)
    together = ParseResult()
    for part in parts:
        together.reports += part.reports
        together.tuples += part.tuples
        together.refused += part.refused
    return together


def _again(
    context: RunContext, parsed: ParseResult, facts: account.FileFacts, intervals: Sequence[Interval]
) -> dict[str, Rows]:
    """Stream → the rows of its parts that bear an id of an accepted tuple that arrived in the last ``max_late``."""
    pipeline = context.pipeline
    every = sum(part.rows for part in parsed.tuples)
    most = context.most_slices(every)
    # Half of the budget for all slices at work at once; Python, Spark and what they read have the rest.
    at_once = max(pipeline.process_budget_bytes // 2 // (_HASH_BYTES * most), _HASHES_WORTH)
    slices: list[Again] = []
    owners: list[str] = []
    for stream in pipeline.streams:
        parts = tuple(part for part in parsed.tuples if part.stream == stream.name)
        if not stream.id:
            continue  # a place in a file is there once
        past = remembered(context.warehouse, stream, intervals[0].start_us) if parts else ()
        again = Again(parts, facts.broken, past, pipeline.interval_s * 1_000_000, memory_us(pipeline, stream))
        rows = sum(part.rows for part in parts)
        ranges = max(-(-rows // at_once), min(rows // _HASHES_WORTH, most), 1 if parts else 0)
        cuts = [2**64 * i // ranges for i in range(ranges + 1)] if ranges else []
        slices += [replace(again, first=a, last=b - 1) for a, b in zip(cuts, cuts[1:], strict=False)]
        owners += [stream.name] * ranges
    met: dict[str, dict[str, list[int]]] = {stream.name: defaultdict(list) for stream in pipeline.streams}
    done = context.run_slices(find_again, slices, every)
    for owner, one in zip(owners, done, strict=True):
        for path, own in one.items():
            met[owner][path] += own.tolist()
    return {
        stream: {path: pa.array(sorted(own), pa.int64()).to_numpy() for path, own in rows_of.items() if own}
        for stream, rows_of in met.items()
    }


def _write_tuples(
    context: RunContext,
    stage: StageRun,
    parsed: ParseResult,
    facts: account.FileFacts,
    again: dict[str, Rows],
    references: References,
    intervals: Sequence[Interval],
) -> pa.Table:
    """Write ``events_<stream>``, and what is remembered of their ids; what arrived (``planner.ARRIVALS_SCHEMA``)."""
    pipeline, commit = context.pipeline, stage.commit
    items: list[tuple[Interval, Sorted]] = []
    for stream in pipeline.streams:
        parts = tuple(part for part in parsed.tuples if part.stream == stream.name)
        held = planner.held(pipeline, stream)
        for interval in intervals:
            rows = facts.good[stream.name][_number(interval)]
            folder = commit.stage_folder(f"events_{stream.name}", interval.label)
            ids = commit.state_folder(state_of(stream), interval.label)
            # A function of the interval and of how much arrived in it: how the work was cut has no say.
            files = max(-(-rows // _FILE_ROWS), 1)
            cuts = [interval.start_us + (interval.end_us - interval.start_us) * i // files for i in range(files + 1)]
            for number, (start_us, end_us) in enumerate(zip(cuts, cuts[1:], strict=False)):
                name = f"part-{number:05d}-{commit.id}.parquet"
                own = tuple(p for p in parts if p.first_us < end_us and p.last_us >= start_us)
                refused = {p.path: again[stream.name][p.path] for p in own if p.path in again[stream.name]}
                paths = str(folder / name), str(ids / name)
                tick_us = pipeline.tick_s * 1_000_000
                item = Sorted(stream, own, facts.broken, refused, start_us, end_us, *paths, held, tick_us)
                item = replace(item, references=references, lookups=pipeline.lookups(stream.name))
                items.append((interval, item))
    written = _packed_run(context, items, facts)
    counts = []
    for (interval, item), one in zip(items, written, strict=True):
        stage.record(interval, rows_in=one.rows, rows_out=one.rows, rows_late=one.late)
        names = pa.array([item.stream.name] * one.counts.num_rows, pa.string())
        counts.append(one.counts.append_column("stream", names).select(planner.ARRIVALS_SCHEMA.names))
    together = pa.concat_tables(counts).cast(planner.ARRIVALS_SCHEMA)
    keys = ["stream", "slot_us", "pane_us"]
    summed = together.group_by(keys, use_threads=False).aggregate([("tuples", "sum"), ("bytes", "sum")])
    return summed.rename_columns(planner.ARRIVALS_SCHEMA.names)


def _packed_run(
    context: RunContext, items: Sequence[tuple[Interval, Sorted]], facts: account.FileFacts
) -> list[Written]:
    slices: list[list[Sorted]] = [[]]
    gathered = 0
    for interval, item in items:
        rows = facts.good[item.stream.name][_number(interval)]
        if slices[-1] and gathered + rows > _FILE_ROWS:
            slices.append([])
            gathered = 0
        slices[-1].append(item)
        gathered += min(rows, _FILE_ROWS)
    tuples = sum(good.total() for good in facts.good.values())
    done = context.run_slices(write_sorted, [tuple(own) for own in slices], tuples)
    return [one for part in done for one in part]


def _write_quarantine(
    context: RunContext,
    stage: StageRun,
    parsed: ParseResult,
    facts: account.FileFacts,
    again: dict[str, Rows],
    intervals: Sequence[Interval],
) -> tuple[Counter[int], Counter[tuple[str, int]]]:
    """Write ``quarantine``: rows by interval, and by file and interval without those refused for their id."""
    commit = stage.commit
    folders = {_number(i): commit.stage_folder("quarantine", i.label) for i in intervals}
    slices = []
    # A file a stream, in the order of the streams' names: the table is sorted by stream first.
    for place, stream in enumerate(sorted(context.pipeline.streams, key=lambda s: s.name)):
        to = {number: str(f / f"part-{place + 1:05d}-{commit.id}.parquet") for number, f in folders.items()}
        slices.append(
            Refusals(
                stream,
                tuple(part for part in parsed.refused if part.stream == stream.name),
                tuple(part for part in parsed.tuples if part.path in again[stream.name]),
                again[stream.name],
                facts.broken,
                facts.sightings,
                facts.first_lines,
                facts.broken_rows(stream, intervals),
                context.pipeline.interval_s * 1_000_000,
                to,
            )
        )
    busy = [s for s in slices if s.parts or s.again or s.files]
    rows, by_file = Counter[int](), Counter[tuple[str, int]]()
    records = sum(part.rows for s in busy for part in (*s.parts, *s.tuples))
    for one in context.run_slices(write_refusals, busy, records):
        rows += one[0]
        by_file += one[1]
    nothing = context.warehouse.schema("quarantine").empty_table()
    for interval in intervals:
        if not rows[_number(interval)]:
            commit.put_arrow("quarantine", interval, nothing)
    return rows, by_file


def _write_source_files(
    context: RunContext,
    stage: StageRun,
    listings: Sequence[Listing],
    facts: account.FileFacts,
    by_file: Counter[tuple[str, int]],
    intervals: Sequence[Interval],
) -> None:
    told: list[dict[str, Any]] = []
    for interval in intervals:
        rows = [row for listing in listings for row in file_rows(listing, facts, by_file, interval, _number(interval))]
        told += rows
        if interval == intervals[0]:
            rows += changed_since(context, interval)
        data = pa.Table.from_pylist(rows, schema=context.warehouse.schema("source_files"))
        stage.commit.put_arrow("source_files", interval, data.sort_by([("stream", "ascending"), ("path", "ascending")]))
    _tell_of_files(context, told)


def _write_unknown_columns(
    context: RunContext, stage: StageRun, facts: account.FileFacts, intervals: Sequence[Interval]
) -> None:
    """Write which fields of accepted records no column is read from."""
    for interval in intervals:
        rows = [
            {"stream": stream, "column": name, "records": one.records, "first_seen": from_us(one.first_us)}
            for stream, fields in sorted(facts.ignored.items())
            for (number, name), one in sorted(fields.items())
            if number == _number(interval)
        ]
        data = pa.Table.from_pylist(rows, schema=context.warehouse.schema("unknown_columns"))
        stage.commit.put_arrow("unknown_columns", interval, data)


def _tell_of_files(context: RunContext, rows: Sequence[dict[str, Any]]) -> None:
    """A line for the missing files of a stream, unless it ignores them, and one for those of which nothing is taken."""
    for stream in context.pipeline.streams:
        for status in ("missing", "unreadable"):
            paths = [row["path"] for row in rows if (row["stream"], row["status"]) == (stream.name, status)]
            if not paths or (status == "missing" and stream.missing_file == "ignore"):
                continue
            more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
            context.progress(f"ingest: {stream.name}: {status} file {paths[0]}{more}")


if __name__ == "__main__":
    launch(STAGE)
