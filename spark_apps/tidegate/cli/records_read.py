"""What an ingest says at its end: files and records seen, how many were refused and why, and what would mend it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence

from tidegate.cli.hints import hint
from tidegate.cli.newest_answers import TIED, show, wrapped
from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Pipeline, from_us
from tidegate.readable import duration
from tidegate.sources.parse import Example
from tidegate.stages.ingest_summary import Refusal, Summary
from tidegate.store.warehouse import Warehouse

EXAMPLES_SHOWN = 3
_HINTS_SHOWN = 6
_FREQUENT = 0.1
_MOST_SHOWN = 40


class AllRefusedError(UserError):
    """Records came, and every one of them was refused."""

    exit_status = 1


def records_read(warehouse: Warehouse, labels: Sequence[str], summary: Summary | None, width: int) -> tuple[str, bool]:
    """The account of the intervals' records, and whether all of them were refused.

    ``width``: columns of the screen. Cost: reads the partitions of the intervals' quarantine.
    """
    streams = warehouse.pipeline.streams
    accepted = sum(warehouse.rows(f"events_{s.name}", label) for s in streams for label in labels)
    reasons = Counter(warehouse.read_arrow("quarantine", labels, ["reason"]).column("reason").to_pylist())
    broken = reasons.pop("broken_file", 0)
    refused = reasons.total()
    if not accepted and not refused and not broken:
        lines = wrapped(_nothing(summary), width)
    else:
        read = f"{_files(summary)}{_records(accepted + refused)} read, {accepted:,} accepted{_why(reasons)}"
        lines = wrapped(read, width)
    elsewhere = ""
    if summary is not None:
        elsewhere = _elsewhere(summary, summary.records - accepted - refused) if accepted or refused else ""
        lines += wrapped(elsewhere, width) if elsewhere else []
        lines += [line for part in _details(warehouse.pipeline, summary) for line in wrapped(part, width, "  ")]
    return _text(lines), bool(refused or broken) and not accepted and not elsewhere


def account_of(pipeline: Pipeline, summary: Summary, width: int) -> tuple[str, bool]:
    """The account of files that were tried without a warehouse, and whether any record would be refused."""
    reasons: Counter[str] = Counter()
    for one in summary.refusals():
        reasons[one.reason] += one.records
    broken = reasons.pop("broken_file", 0)
    accepted = summary.records - reasons.total()
    text = f"{_files(summary)}{_records(summary.records)} read, {accepted:,} would be accepted{_why(reasons, '')}"
    lines = wrapped(text, width)
    arrived = _arrived(summary)
    lines += wrapped(f"{arrived}; duplicates were not looked for", width, "  ") if arrived else []
    for path in summary.missing:
        folder = f": it is a folder, {path}/* are its files" if os.path.isdir(path) else ""
        lines += wrapped(f"no file {path}{folder}", width, "  ")
    lines += [line for part in _details(pipeline, summary) for line in wrapped(part, width, "  ")]
    return _text(lines), bool(reasons or broken or summary.missing)


def _text(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n".replace(TIED, " ") for line in lines)


def _records(count: int) -> str:
    return f"{count:,} record{'s' if count != 1 else ''}"


def _why(reasons: Counter[str], table: str = " (table quarantine)") -> str:
    if not reasons:
        return ""
    # A reason and its number stay on one line.
    each = ",".join(f" {reason}{TIED}{count:,}" for reason, count in sorted(reasons.items()))
    return f", {reasons.total():,} refused{table}:{each}"


def _files(summary: Summary | None) -> str:
    if summary is None:
        return ""
    count, broken = len(summary.files), sum(file.status == "unreadable" for file in summary.files.values())
    lost = f" ({broken:,} of them cannot be read)" if broken else ""
    return f"{count:,} file{'s' if count != 1 else ''}{lost}, "


def _nothing(summary: Summary | None) -> str:
    """Why there are no records: there are none, or they arrived at other times."""
    if summary is None or not summary.records:
        missing = summary.missing if summary else []
        where = f": no file {missing[0]}" if missing else ""
        where += f" (it is a folder: {missing[0]}/* are its files)" if missing and os.path.isdir(missing[0]) else ""
        where += f", and {len(missing) - 1} more are missing" if missing[1:] else ""
        return f"No records arrived in these intervals{where}."
    text = f"{_files(summary)}{_records(summary.records)} read, none of them of these intervals"
    return f"{text}: {_arrived(summary) or 'they are refused in the interval that saw them first'}."


def _elsewhere(summary: Summary, records: int) -> str:
    """That files hold records of other intervals, and of when."""
    arrived = _arrived(summary) if records > 0 else ""
    return f"{_records(records)} of these files belong to other intervals: {arrived}." if arrived else ""


def _arrived(summary: Summary) -> str:
    spans = [(f.first_us, f.last_us) for f in summary.files.values() if f.first_us is not None]
    if not spans:
        return ""
    first, last = min(a for a, _ in spans), max(b for _, b in spans if b is not None)
    return f"what they hold arrived from {show(from_us(first))} to {show(from_us(last))} UTC"


def _details(pipeline: Pipeline, summary: Summary) -> Iterator[str]:
    """The first examples, what would mend them, and columns without values."""
    several = len(pipeline.streams) > 1
    absent = {(stream, column): near for stream, column, near in summary.columns_without_values(pipeline)}
    refusals = list(summary.refusals())
    for refusal, (name, line, example) in _first(refusals):
        column = f" {refusal.column}" if refusal.column else ""
        place = f"{os.path.basename(name)}:{line}" if line else os.path.basename(name)
        yield f"{place}: {refusal.reason}{column}: {_shown(refusal, example)}"
    records: Counter[str] = Counter()
    for file in summary.files.values():
        records[file.stream] += file.records
        records[file.stream] += file.status == "unreadable"
    # A few odd records are what refusing is for: only what befalls many is a mistake of the declaration.
    frequent = [one for one in refusals if one.records >= _FREQUENT * records[one.stream]]
    hints = [(one, hint(pipeline, one, absent.get((one.stream, one.column), ""))) for one in frequent]
    for one, text in [pair for pair in hints if pair[1]][:_HINTS_SHOWN]:
        name = f"{one.stream}.{one.column}" if several and one.column else one.column or one.stream
        yield f"{name} ({one.records:,} {one.reason}): {text}"
    hinted = {(one.stream, one.column) for one, text in hints if text and one.reason == "missing_value"}
    for (stream, column), near in absent.items():
        # Where nothing could be read, no column has a value: that is not what is wrong.
        if (stream, column) not in hinted and summary.columns.get(stream):
            near = f"; did you mean from: {near}?" if near else ""
            yield f"warning: no record of {stream} has a value for column {column}{near}"


def _shown(refusal: Refusal, example: Example) -> str:
    """A refused value, or the record, cut to a line."""
    if refusal.reason in ("wrong_type", "non_finite") and example.detail is not None:
        return example.detail
    if refusal.reason in ("too_early", "too_late") and example.detail is not None:
        distance = duration(int(example.detail))
        return f"arrived {distance} {'before' if refusal.reason == 'too_early' else 'after'} it happened"
    text = example.text.strip()
    if refusal.reason == "broken_file":
        return text
    return text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "…"


def _first(refusals: Sequence[Refusal]) -> Iterator[tuple[Refusal, tuple[str, int, Example]]]:
    """The first examples, one of each reason before a second of any."""
    shown = 0
    for turn in range(EXAMPLES_SHOWN):
        for refusal in refusals:
            if len(refusal.examples) > turn and shown < EXAMPLES_SHOWN:
                shown += 1
                yield refusal, refusal.examples[turn]
