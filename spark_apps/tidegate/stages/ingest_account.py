"""The account of an ingest: that every record of every file is in exactly one place, before anything is committed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Pipeline, Stream, from_us
from tidegate.engine.context import StageRun
from tidegate.sources.files import SourceFile
from tidegate.sources.parse import IgnoredFields, PieceReport
from tidegate.sources.settle import Sighting
from tidegate.store.intervals import Interval


class RecordsLostError(UserError):
    """Records were counted that are nowhere: a fault of ours, and nothing is committed."""

    exit_status = 1


@dataclass
class FileFacts:
    """What the pieces' reports say of the files.

    ``status``: file → ok, empty, or unreadable. ``errors``: of those that cannot be read. ``good``: stream → number of
    the interval → good records. ``by_file``: the same by file. ``sightings``: file → when it was seen how long.
    ``first_lines``: file, and start of a piece → lines before it. ``refused``: file → how many of its records are.
    ``ignored``: stream → fields that no column is read from. ``columns``, ``names``: stream → columns of which any
    record has a value, and the names of fields. ``arrived``, ``late``: of streams that come through Spark, stream →
    number of the interval → records, and those of them that landed late.
    """

    status: dict[str, str] = field(default_factory=dict)
    errors: dict[str, tuple[str, SourceFile, str]] = field(default_factory=dict)
    good: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    by_file: Counter[tuple[str, int]] = field(default_factory=Counter)
    sightings: dict[str, tuple[Sighting, ...]] = field(default_factory=dict)
    first_lines: dict[tuple[str, int], int] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)
    ignored: dict[str, IgnoredFields] = field(default_factory=lambda: defaultdict(dict))
    columns: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    names: dict[str, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))
    arrived: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    late: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))

    def since(self, file: SourceFile, interval: Interval) -> dict[str, Any]:
        """What ``source_files`` says of a file that the interval was the first to see so long; else 0 bytes."""
        for one in self.sightings.get(file.name, ()) if file.period_start_us is None else ():
            if interval.start_us <= one.start_us < interval.end_us:
                row = {"since": from_us(one.start_us), "since_bytes": one.bytes}
                if one.first_us <= one.last_us:
                    row |= {"first_arrival": from_us(one.first_us), "last_arrival": from_us(one.last_us)}
                return row
        return {"since_bytes": 0}

    @property
    def broken(self) -> frozenset[str]:
        """Files of which nothing is taken."""
        return frozenset(self.errors)

    def broken_rows(self, stream: Stream, intervals: Sequence[Interval]) -> tuple[tuple[int, str, str], ...]:
        """(start of the interval, file, what there is to say) of files that cannot be read, in all their intervals."""
        rows = []
        for name, (own, file, error) in sorted(self.errors.items()):
            for interval in intervals if own == stream.name else ():
                start_us, end_us = file.period_start_us, file.period_end_us
                if start_us is None or end_us is None or (start_us < interval.end_us and end_us > interval.start_us):
                    rows.append((interval.start_us, name, f"{name}: {error}"))
        return tuple(rows)


def facts_of(reports: Sequence[PieceReport], seen: Mapping[str, Sequence[Sighting]], run_start_us: int) -> FileFacts:
    """Put the reports on all pieces together, file by file.

    Args:
        reports: on all pieces of all files.
        seen: file → when it was first seen how long, as ``source_files`` has it.
        run_start_us: start of the first interval that is being run.
    """
    together = FileFacts()
    by_file: dict[str, list[PieceReport]] = defaultdict(list)
    for report in reports:
        by_file[report.file.name].append(report)
    for name, pieces in by_file.items():
        file, errors = pieces[0].file, [r.error for r in pieces if r.error is not None]
        if errors:
            together.status[name] = "unreadable"
            together.errors[name] = pieces[0].stream, file, errors[0]
            continue
        together.status[name] = pieces[0].status
        _check(file, pieces)
        lines = 0
        for report in sorted(pieces, key=lambda r: r.start):
            together.first_lines[name, report.start] = lines
            lines += report.lines
            _add(together, name, report)
        together.sightings[name] = _sightings(file, pieces, seen.get(name, ()), run_start_us)
    return together


def _add(together: FileFacts, name: str, report: PieceReport) -> None:
    together.good[report.stream].update(report.by_interval)
    together.by_file.update({(name, number): rows for number, rows in report.by_interval.items()})
    together.refused[name] += report.refused
    together.arrived[report.stream].update(report.arrived)
    together.late[report.stream].update(report.late)
    together.columns[report.stream] |= report.columns
    together.names[report.stream].update(dict.fromkeys(report.names))
    ignored = together.ignored[report.stream]
    for key, more in report.ignored.items():
        ignored[key] = ignored[key].and_others(more) if key in ignored else more


def _sightings(
    file: SourceFile, reports: Sequence[PieceReport], seen: Sequence[Sighting], run_start_us: int
) -> tuple[Sighting, ...]:
    """What decides to which intervals the file's refused records belong.

    A file's period says which arrivals its records can have. Where its name says none, those of its good records do.
    Only of plain text it is known which records came later.
    """
    if file.period_start_us is not None and file.period_end_us is not None:
        return (Sighting(file.bytes, file.period_start_us, file.period_start_us, file.period_end_us - 1),)
    first = min((r.first_us for r in reports if r.first_us is not None), default=1)
    last = max((r.last_us for r in reports if r.last_us is not None), default=0)
    if not seen:
        return (Sighting(file.bytes, run_start_us, first, last),)
    if not all(r.plain for r in reports):
        return (seen[0]._replace(first_us=first, last_us=last),)
    longer = (Sighting(file.bytes, run_start_us, first, last),) if file.bytes > seen[-1].bytes else ()
    return (*seen, *longer)


def cut_inside(reports: Sequence[PieceReport]) -> frozenset[str]:
    """Files of which a piece ends elsewhere than the next one begins: a cut was inside a record."""
    by_file: dict[str, list[PieceReport]] = defaultdict(list)
    for report in reports:
        if report.first is not None:
            by_file[report.file.name].append(report)
    apart = set()
    for name, pieces in by_file.items():
        pieces.sort(key=lambda r: r.start)
        if any(a.last != b.first for a, b in zip(pieces, pieces[1:], strict=False)):
            apart.add(name)
    return frozenset(apart)


def _check(file: SourceFile, reports: Sequence[PieceReport]) -> None:
    """That what was counted is what was judged, and that the pieces are the file."""
    sums = zip(*((r.counted, r.read, r.records, r.accepted + r.refused) for r in reports), strict=True)
    counted, read, records, judged = (sum(n) for n in sums)
    if counted != read or records != judged:
        raise RecordsLostError(
            f"{file.name}: {counted} records were counted and {read} read, {judged} of {records} were judged: nothing "
            "was ingested; this is a fault of ours, please report it with the file"
        )
    ends = [r for r in reports if r.last is not None]
    if not ends or not all(r.plain for r in ends):
        return
    octets = sum((r.last or 0) - (r.first or 0) for r in ends)
    if octets != file.bytes and not file.changed():
        raise RecordsLostError(
            f"{file.name}: {octets} bytes of {file.bytes} were read: nothing was ingested; "
            "this is a fault of ours, please report it with the file"
        )


def reconcile(
    pipeline: Pipeline,
    stage: StageRun,
    facts: FileFacts,
    by_file: Counter[tuple[str, int]],
    intervals: Sequence[Interval],
) -> None:
    """That the rows of the files that are about to be committed are the records that were judged, by interval.

    Rows are counted by the written files' footers, so a worker whose files are not here is noticed too.
    """
    tables = ["quarantine", *(f"events_{s.name}" for s in pipeline.streams)]
    for interval in intervals:
        number = interval.start_us // (interval.end_us - interval.start_us)
        files = sum(len(facts.broken_rows(stream, [interval])) for stream in pipeline.streams)
        judged = sum(facts.good[s.name][number] for s in pipeline.streams) + files
        judged += sum(rows for (_, own), rows in by_file.items() if own == number)
        written = sum(
            stage.commit.rows(file) for table in tables for file in stage.commit.written(table, interval.label)
        )
        if written != judged:
            raise RecordsLostError(
                f"interval {interval.label}: {judged} records were judged, {written} rows are in the files that were "
                f"written under {stage.commit.warehouse.folder}: nothing was ingested; do all workers see this folder?"
            )
