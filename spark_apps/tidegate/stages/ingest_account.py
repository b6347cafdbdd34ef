"""The account of an ingest: that every record of every file is in exactly one place, before anything is committed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Pipeline, Stream
from tidegate.engine.context import StageRun
from tidegate.sources.files import PACKED, SourceFile
from tidegate.sources.intake import Report
from tidegate.sources.settle import Span
from tidegate.store.intervals import Interval


class RecordsLostError(UserError):
    """Records were counted that are nowhere: a fault of ours, and nothing is committed."""

    exit_status = 1


@dataclass
class Found:
    """What the pieces' reports say of the files.

    ``status``: file → ok, empty, unreadable, or unplaced: its name says no time, and its records are all refused.
    ``errors``: of those that cannot be read. ``good``: stream → number of the interval → good records. ``by_file``: the
    same by file. ``spans``: file → arrivals that its records may have.
    """

    status: dict[str, str] = field(default_factory=dict)
    errors: dict[str, tuple[str, SourceFile, str]] = field(default_factory=dict)
    good: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    by_file: Counter[tuple[str, int]] = field(default_factory=Counter)
    spans: dict[str, Span] = field(default_factory=dict)

    @property
    def broken(self) -> frozenset[str]:
        """Files of which nothing is taken."""
        return frozenset(self.errors)

    def broken_rows(self, stream: Stream, intervals: Sequence[Interval]) -> tuple[tuple[int, str], ...]:
        """(start of the interval, what there is to say) of the files that cannot be read, in all their intervals."""
        rows = []
        for name, (own, file, error) in sorted(self.errors.items()):
            for interval in intervals if own == stream.name else ():
                start_us, end_us = file.period_start_us, file.period_end_us
                if start_us is None or end_us is None or (start_us < interval.end_us and end_us > interval.start_us):
                    rows.append((interval.start_us, f"{name}: {error}"))
        return tuple(rows)


def found(reports: Sequence[Report], interval_us: int) -> Found:
    """Put the reports on all pieces together, file by file."""
    together = Found()
    by_file: dict[str, list[Report]] = defaultdict(list)
    for report in reports:
        by_file[report.file.name].append(report)
    for name, own in by_file.items():
        file, errors = own[0].file, [r.error for r in own if r.error is not None]
        if errors:
            together.status[name] = "unreadable"
            together.errors[name] = own[0].stream, file, errors[0]
            continue
        refused_all = file.period_start_us is None and any(r.refused for r in own) and not any(r.accepted for r in own)
        together.status[name] = "unplaced" if refused_all else own[0].status
        _check(file, own)
        for report in own:
            together.good[report.stream].update(report.by_interval)
            together.by_file.update({(name, number): rows for number, rows in report.by_interval.items()})
        together.spans[name] = _span(file, own, interval_us)
    return together


def _span(file: SourceFile, reports: Sequence[Report], interval_us: int) -> Span:
    """The arrivals that the file's records may have, and where those belong that have none of these.

    A file's period says both. Where its name says none: the arrivals of its good records, and the interval that has
    most of them (one forged clock does not move it); where there are none, when it landed.
    """
    if file.period_start_us is not None and file.period_end_us is not None:
        return file.period_start_us, file.period_start_us, file.period_end_us - 1
    by_interval = sum((Counter(r.by_interval) for r in reports), Counter[int]())
    if not by_interval:
        return file.modified_us, file.modified_us, file.modified_us
    fullest = min(by_interval, key=lambda number: (-by_interval[number], number))
    first = min(r.first_us for r in reports if r.first_us is not None)
    return fullest * interval_us, first, max(r.last_us for r in reports if r.last_us is not None)


def _check(file: SourceFile, reports: Sequence[Report]) -> None:
    """That what was counted is what was judged, and that the pieces are the file."""
    raw, judged = (sum(n) for n in zip(*((r.raw, r.accepted + r.refused) for r in reports), strict=True))
    if raw != judged:
        raise RecordsLostError(
            f"{file.name}: {raw} records were counted, {judged} were judged: nothing was ingested; "
            "this is a fault of ours, please report it with the file"
        )
    octets = sum(r.octets for r in reports)
    text = any(r.octets for r in reports) and file.path.suffix.lower() not in PACKED
    if text and octets != file.bytes and not file.changed():
        raise RecordsLostError(
            f"{file.name}: {octets} octets of {file.bytes} were read: nothing was ingested; "
            "this is a fault of ours, please report it with the file"
        )


def reconcile(
    pipeline: Pipeline,
    stage: StageRun,
    found: Found,
    by_file: Counter[tuple[str, int]],
    intervals: Sequence[Interval],
) -> None:
    """That the rows of the files that are about to be committed are the records that were judged, by interval.

    Rows are counted by the written files' footers, so a worker whose files are not here is noticed too.
    """
    tables = ["quarantine", *(f"events_{s.name}" for s in pipeline.streams)]
    for interval in intervals:
        number = interval.start_us // (interval.end_us - interval.start_us)
        files = sum(len(found.broken_rows(stream, [interval])) for stream in pipeline.streams)
        judged = sum(found.good[s.name][number] for s in pipeline.streams) + files
        judged += sum(rows for (_, own), rows in by_file.items() if own == number)
        written = sum(
            stage.commit.rows(file) for table in tables for file in stage.commit.written(table, interval.label)
        )
        if written != judged:
            raise RecordsLostError(
                f"interval {interval.label}: {judged} records were judged, {written} rows are in the files that were "
                f"written under {stage.commit.warehouse.folder}: nothing was ingested; do all workers see this folder?"
            )
