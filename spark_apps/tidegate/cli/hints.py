"""What in pipeline.yml would mend it that records are refused: a guess from how the refused values are written."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation

from tidegate.declarations.file_formats import has_cells
from tidegate.declarations.models import Column, Pipeline, Stream
from tidegate.declarations.time_formats import EPOCH_UNITS_US, ISO
from tidegate.declarations.units import show_duration
from tidegate.guess.clock import up
from tidegate.guess.csv_dialect import NULL_WORDS
from tidegate.guess.written_times import time_format
from tidegate.sources.formats import format_named
from tidegate.stages.ingest_summary import Refusal
from tidegate.values.types import decimal_type, digits_of, is_number

_UNITS = {"epoch_s": "seconds", "epoch_ms": "milliseconds", "epoch_us": "microseconds", "epoch_ns": "nanoseconds"}


def hint(pipeline: Pipeline, refusal: Refusal, near: str = "") -> str:
    """The key that would mend it, and why; empty if nothing can be seen.

    Args:
        pipeline: what is declared.
        refusal: why records were refused, with examples.
        near: of the fields that no column is read from the one whose name is nearest to the column's.
    """
    stream = pipeline.stream(refusal.stream)
    of_reason: dict[str, Callable[[Stream, Refusal], str]] = {
        "wrong_type": _wrong_type,
        "too_early": _untimely,
        "too_late": _untimely,
        "broken_record": _broken,
        "broken_file": _broken,
        "unknown_column": lambda stream, refusal: "other_columns: ignore",
        "outside_file_interval": lambda stream, refusal: (
            f"files are not of the interval that their names say: a path without %, such as "
            f"{stream.path.rpartition('/')[0].partition('%')[0]}…/*, tells records apart by their arrival"
        ),
    }
    if refusal.reason == "missing_value" and "[0]" in near:
        wrapping = near.partition("[")[0]
        return f"records hold a list {wrapping}: its objects are no records of their own; write each as one"
    if refusal.reason == "missing_value":
        path = f"{refusal.column}: {{from: {near}}}"
        return f"no record has a value for it; {path} if that is what is meant" if near else ""
    make = of_reason.get(refusal.reason)
    return make(stream, refusal) if make else ""


def _details(refusal: Refusal) -> list[str]:
    return [example.detail for _, _, example in refusal.examples if example.detail]


def _wrong_type(stream: Stream, refusal: Refusal) -> str:
    column, values = stream.column(refusal.column), _details(refusal)
    if not values:
        return ""
    if all(value[:1] in "{[" for value in values):
        return f"it is an object or a list: from: {_path(column)}.… picks a field of it, type: string keeps it as text"
    if has_cells(stream.format):
        nulls = sorted({value for value in values if value in NULL_WORDS})
        if nulls and len(nulls) == len(set(values)):
            return f"csv: {{nulls: [{', '.join(map(repr, nulls))}]}} takes {' and '.join(nulls)} for no value"
    return _time(column, values) if column.type in ("timestamp", "date") else _number(stream, column, values)


def _path(column: Column) -> str:
    return ".".join(map(str, column.steps))


def _time(column: Column, values: Sequence[str]) -> str:
    seen = time_format(values, named_so=True)
    if seen is None or seen.format == column.format:
        return ""
    if seen.format in EPOCH_UNITS_US:
        return f"looks like {_UNITS[seen.format]} since 1970: format: {seen.format}"
    if seen.format == ISO:
        return "looks like ISO 8601: format: iso" if column.format != ISO else ""
    zone = ", zone: … if it is not UTC" if seen.local else ""
    return f"looks like format: '{seen.format}'{zone}"


def _number(stream: Stream, column: Column, values: Sequence[str]) -> str:
    if not is_number(column.type):
        return ""
    if has_cells(stream.format) and stream.csv.decimal == ".":
        pointed = [value.replace(",", ".") for value in values]
        if all("," in value and _number_of(p) is not None for value, p in zip(values, pointed, strict=True)):
            return "looks like a decimal comma: csv: {decimal: ','}"
    numbers = [_number_of(value) for value in values]
    if any(number is None for number in numbers):
        thousands = all(re.fullmatch(r"[+-]?\d{1,3}([.,' ]\d{3})+([.,]\d+)?", value) for value in values)
        return "has signs between thousands, which are not read" if thousands else "is not a number: type: string"
    digits = [number for number in numbers if number is not None]
    if column.type == "integer":
        return "has a fraction or more than 64 bits: type: double, or decimal(p, s)"
    declared = digits_of(column.type)
    if declared is None:
        return ""
    scale = max(declared.scale, *(max(-int(number.as_tuple().exponent), 0) for number in digits))
    whole = max(declared.precision - declared.scale, *(max(number.adjusted() + 1, 1) for number in digits))
    return f"has more digits than {column.type}: type: {decimal_type(min(whole + scale, 38), min(scale, 38))}"


def _number_of(text: str) -> Decimal | None:
    try:
        number = Decimal(text.strip())
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def _untimely(stream: Stream, refusal: Refusal) -> str:
    if stream.source is not None and refusal.column in ("", stream.arrival_time) and not _details(refusal):
        return "say that they arrived later than they landed: the clock that says so is ahead, or max_early: …"
    most = max((int(value) for value in _details(refusal)), default=0)
    key, when = ("max_early", "before") if refusal.reason == "too_early" else ("max_late", "after")
    return f"arrive up to {show_duration(up(most + 1))} {when} they happen: {key}: {show_duration(up(most + 1))}"


def _broken(stream: Stream, refusal: Refusal) -> str:
    if refusal.reason == "broken_file" and not has_cells(stream.format):
        return ""
    if stream.source is not None:
        return _broken_value(stream, refusal)
    return format_named(stream.format).advice(stream, [example.text for _, _, example in refusal.examples])


def _broken_value(stream: Stream, refusal: Refusal) -> str:
    """Of a message: how values are written that are not what the format says."""
    texts = [example.text for _, _, example in refusal.examples]
    framed = bool(texts) and all(text.startswith("\0") for text in texts)
    if stream.format == "jsonl" and framed:
        return "begins as Confluent's framing does: format: avro, registry: http://…"
    if stream.format == "avro" and texts and all(text.lstrip()[:1] == "{" for text in texts):
        return "looks like JSON: format: jsonl"
    return ""
