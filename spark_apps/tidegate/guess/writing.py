"""A proposal as the files of a pipeline's folder, each guess with what was seen beside it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from tidegate.declarations.models import CsvDialect
from tidegate.declarations.source_paths import show_path
from tidegate.declarations.units import show_bytes, show_duration
from tidegate.guess.clock import limits_s, rate_words
from tidegate.guess.columns import Seen
from tidegate.guess.first_queries import FirstQuery
from tidegate.guess.kinds import Kind
from tidegate.guess.naming import column_name
from tidegate.guess.proposal import Proposal, StreamProposal, type_of
from tidegate.guess.records import Steps
from tidegate.values.types import digits_of

_WIDTH = 120
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*", re.ASCII)
_FORMATS = {
    "jsonl": "one JSON object a line",
    "json": "JSON documents, or lists of them",
    "csv": "cells between delimiters",
    "parquet": "Parquet",
    "avro": "an Avro container",
}
_README = """\
# {name}

Proposed by `tidegate init --from`: what was seen in the data stands beside each guess in `pipeline.yml`. Change what is
wrong, then `tidegate validate .` says whether it is a pipeline. All commands below are run in this folder.

{streams}
{remarks}
## Answers

    tidegate run . --warehouse warehouse {range} --stage answers

runs all that has arrived, one interval of {interval} after the other, and ends with the newest answer to each question
in `queries/`:

{queries}

Below an answer's title stands when its window ended, how long it waited for late records, and how much of the window
was held in memory. All answers are in `warehouse/{name}/answers_<query>/`, Delta tables. Records that could not be read
are in the table `quarantine`, each with its reason; fields that are not declared are counted in `unknown_columns`.

## What else there is

| | |
|---|---|
| `tidegate explain .` | streams and queries, and how much memory each level of support needs |
| `tidegate explain . --warehouse warehouse` | the same, and how accurate answers would be with other memory and waits |
| `tidegate report . --warehouse warehouse` | one HTML page: promises kept or missed, waiting times, memory |
| `tidegate run . --warehouse warehouse {range}` | all stages, data quality and dbt models, too |
| `tidegate sql . --warehouse warehouse --duckdb > views.sql` | every table as a view: `duckdb -init views.sql` |
| `dags/{name}.py` | the same in Airflow (`tidegate[airflow]`): copy it into Airflow's `dags` folder |
"""


def range_of(proposal: Proposal) -> tuple[str, str]:
    """The range to run first, as arguments of a command."""
    clock = proposal.clock
    start, end = (datetime.fromtimestamp(s, UTC) for s in (clock.from_s, clock.to_s))
    if clock.interval_s % 86_400 == 0 and clock.from_s % 86_400 == 0 and clock.to_s % 86_400 == 0:
        return f"{start:%Y-%m-%d}", f"{end:%Y-%m-%d}"
    form = "%Y-%m-%dT%H" if clock.interval_s % 3600 == 0 else "%Y-%m-%dT%H:%M"
    return start.strftime(form), end.strftime(form)


def pipeline_file(proposal: Proposal) -> str:
    """The text of pipeline.yml."""
    clock = proposal.clock
    start = datetime.fromtimestamp(clock.from_s, UTC)
    behind = max((stream.late.most_s for stream in proposal.streams), default=0.0)
    keys = [
        ("name", proposal.name, "the folder's name"),
        ("description", f"Proposed from {_origins(proposal)}", ""),
        ("owner", "nobody", "who answers for it: change it"),
        ("start", f"{start:%Y-%m-%dT%H:%M:%SZ}", "the interval of the first arrival seen"),
        ("interval", show_duration(clock.interval_s), _why_interval(proposal)),
        ("tick", show_duration(clock.tick_s), "every EVERY and range of a query is a multiple of it"),
        ("horizon", show_duration(clock.horizon_s), f"a window is final so long after its end; {_behind(behind)}"),
        (
            "memory_budget",
            show_bytes(proposal.memory_budget_bytes),
            "what all windows may hold",
        ),
        ("process_budget", "3 GiB", "what the process may take, measured"),
    ]
    if clock.slack_s:
        keys.append(("initial_slack", show_duration(clock.slack_s), "19 of 20 records arrive within it"))
    lines = [
        "# Proposed by `tidegate init --from`; beside each guess stands what was seen. Change what is wrong.",
        *_aligned([(f"{key}: {value}", comment) for key, value, comment in keys]),
        "",
        "streams:",
    ]
    for stream in proposal.streams:
        lines += _stream(stream, proposal)
    return "\n".join(lines) + "\n"


def _origins(proposal: Proposal) -> str:
    files = sum(len(stream.kind.files) for stream in proposal.streams)
    topics = sum(stream.kind.topic is not None for stream in proposal.streams)
    return " and ".join(_count(number, what) for number, what in ((files, "file"), (topics, "topic")) if number)


def _behind(seconds: float) -> str:
    return f"arrivals were up to {_rough(seconds)} late" if seconds >= 1 else "no record was late"


def _rough(seconds: float) -> str:
    unit = 86_400 if seconds >= 172_800 else 3600 if seconds >= 7200 else 60 if seconds >= 120 else 1
    return show_duration(-(-seconds // unit) * unit) if seconds >= 1 else f"{seconds * 1000:.0f} milliseconds"


def _why_interval(proposal: Proposal) -> str:
    if any(stream.pattern.unit_s for stream in proposal.streams):
        return "as the files are named"
    first = min(stream.span[0] for stream in proposal.streams)
    last = max(stream.span[1] for stream in proposal.streams)
    return f"one run, one partition; what was seen arrived within {_rough(max((last - first) / 1e6, 1))}"


def _aligned(rows: Sequence[tuple[str, str]], indent: str = "") -> list[str]:
    """Lines of YAML with their comments below each other, or ahead of a line that has no room for its comment."""
    short = [len(text) for text, comment in rows if comment and len(text) <= 64]
    column = max(short, default=0) + 2
    lines: list[str] = []
    for text, comment in rows:
        if not comment:
            lines.append(indent + text)
        elif len(indent) + max(column, len(text) + 2) + len(comment) + 2 <= _WIDTH:
            lines.append(
                f"{indent}{text:<{column}}# {comment}" if len(text) < column else f"{indent}{text}  # {comment}"
            )
        else:
            lines += [*comment_lines(comment, indent), indent + text]
    return lines


def comment_lines(text: str, indent: str = "") -> list[str]:
    """A comment on as many lines as it needs.

    >>> comment_lines("seen", "  ")
    ['  # seen']
    """
    lines, line = [], f"{indent}#"
    for word in text.split():
        if len(line) + len(word) + 1 > _WIDTH and not line.endswith("#"):
            lines.append(line)
            line = f"{indent}#"
        line += f" {word}"
    return [*lines, line]


def _stream(stream: StreamProposal, proposal: Proposal) -> list[str]:
    lines = [f"  {stream.name}:", *comment_lines(_seen(stream), "    ")]
    for remark in stream.remarks:
        lines += comment_lines(f"LOOK: {remark}", "    ")
    lines += _aligned(_where(stream), "    ")
    if stream.csv is not None and (dialect := _dialect(stream.csv)):
        lines.append(f"    csv: {{{dialect}}}")
    lines.append("    columns:")
    lines += _aligned([_column(stream, column) for column in stream.schema.columns], "      ")
    lines += _parts(stream.kind)
    lines += _left_out(stream.schema.left_out)
    early_s, late_s = limits_s(stream.late, proposal.clock)
    names = [stream.column(column) for column in stream.identity.columns]
    identity = names[0] if len(names) == 1 else f"[{', '.join(names)}]" if names else "none"
    early = f"arrivals were up to {_rough(stream.late.early_s)} early" if stream.late.early_s else "no record was early"
    times = stream.times
    seconds = (stream.span[1] - stream.span[0]) / 1e6
    rows = [
        (f"id: {identity}", stream.identity.why),
        (f"event_time: {stream.column(times.event)}", times.why_event),
        (f"arrival_time: {stream.column(times.arrival)}", times.why_arrival),
        (f"rate: {rate_words(stream.rate)}", f"about {_count(stream.records, 'record')} in {_rough(max(seconds, 1))}"),
        (f"max_early: {show_duration(early_s)}", early),
        (f"max_late: {show_duration(late_s)}", _behind(stream.late.most_s)),
    ]
    return [*lines, *_aligned(rows, "    ")]


def _seen(stream: StreamProposal) -> str:
    """How much of the stream was read."""
    kind = stream.kind
    read = sum(len(s.records) + len(s.tail) for s in kind.samples)
    if kind.topic is not None:
        partitions = _count(kind.topic.partitions, "partition")
        return (
            f"seen: {_count(read, 'record')}, the first and the newest, of about {kind.topic.records:,} in {partitions}"
        )
    seen = f"seen: {_count(read, 'record')} of {_count(len(kind.samples), 'file')}"
    if round(stream.records) > read or len(kind.files) > len(kind.samples):
        seen += f", of about {stream.records:,} in {_count(len(kind.files), 'file')}"
    return seen


def _where(stream: StreamProposal) -> list[tuple[str, str]]:
    """Where the records are, and how they are written."""
    topic = stream.kind.topic
    if topic is not None:
        return [
            (f"source: {{kafka: {{servers: {yaml_text(topic.servers)}, topic: {yaml_text(topic.name)}}}}}", ""),
            (f"format: {stream.format}", "a value is one JSON object"),
        ]
    packed = ", packed" if any(s.packed for s in stream.kind.samples) else ""
    return [
        (f"format: {stream.format}", f"{_FORMATS[stream.format]}{packed}"),
        (f"path: {yaml_text(stream.pattern.text)}", stream.pattern.why),
    ]


def _parts(kind: Kind) -> list[str]:
    """Comments on what else a topic's records have, ready to be columns."""
    if kind.topic is None:
        return []
    lines = []
    for part in kind.topic.parts:
        name, origin = str(part.path[0]).removeprefix("$headers.").removeprefix("$"), str(part.path[0])
        written = [f"type: {part.type}", f"from: {yaml_text(origin)}"]
        if part.time is not None and part.time.format != "iso":
            written.append(f"format: {yaml_text(part.time.format)}")
        filled = "" if part.fill >= 0.995 else f"; in {part.fill:.0%} of the records"
        lines += comment_lines(f"{column_name((name,))}: {{{', '.join(written)}}}  # {part.seen}{filled}", "      ")
    places = "shard: {type: integer, from: $partition}, place: {type: integer, from: $offset}"
    return [*lines, *comment_lines(f"{places}: where a record is", "      ")]


def _column(stream: StreamProposal, column: Seen) -> tuple[str, str]:
    """A column's line, and what was seen of it."""
    name, kind = stream.column(column), type_of(column, stream.times)
    digits = digits_of(kind)
    kind = f"'decimal({digits.precision}, {digits.scale})'" if digits else kind
    parts = [f"type: {kind}"]
    origin = path_text(column.path, stream.format, stream.kind.topic is not None)
    if origin != name:
        parts.append(f"from: {yaml_text(origin)}")
    comment = column.seen
    if column.time is not None:
        if column.time.format != "iso":
            parts.append(f"format: {yaml_text(column.time.format)}")
        if column.zone != "UTC":
            parts.append(f"zone: {column.zone}")
        if column.time.local and not column.time.day_only and stream.zone_note:
            comment += f"; {stream.zone_note}"
    if column.fill < 0.995:
        comment += f"; in {column.fill:.0%} of the records"
    line = f"{name}: {parts[0].removeprefix('type: ')}" if len(parts) == 1 else f"{name}: {{{', '.join(parts)}}}"
    return line, comment


def path_text(path: Steps, format: str, topic: bool = False) -> str:
    """A path as the key ``from`` has it. ``topic``: a field of a value in a topic, where `$key` is no field.

    >>> path_text(("a b", "c.d"), "jsonl"), path_text(("c.d",), "csv"), path_text((3,), "csv")
    ('a b.`c.d`', 'c.d', '[3]')
    """
    if topic and path != ("$timestamp",) and str(path[0]).startswith("$"):
        first, *rest = show_path(path).split(".")
        return ".".join([f"`{first}`", *rest])
    if format != "csv":
        return show_path(path)
    return f"[{path[0]}]" if isinstance(path[0], int) else str(path[0])


def yaml_text(text: str) -> str:
    """A text as a scalar of YAML, in quotes where it needs them.

    >>> yaml_text("actor.login"), yaml_text("[3]"), yaml_text("%d.%m.%Y")
    ('actor.login', "'[3]'", "'%d.%m.%Y'")
    """
    if _PLAIN.fullmatch(text):
        return text
    if text.isprintable():
        return "'" + text.replace("'", "''") + "'"
    return json.dumps(text)


def _dialect(csv: CsvDialect) -> str:
    """The keys of a dialect that are not the usual ones."""
    usual, parts = CsvDialect(), []
    if csv.delimiter != usual.delimiter:
        parts.append(f"delimiter: {'tab' if csv.delimiter == chr(9) else yaml_text(csv.delimiter)}")
    parts += ["header: false"] if not csv.header else []
    parts += [
        f"{key}: {yaml_text(getattr(csv, key) or 'none')}"
        for key in ("decimal", "quote", "encoding", "comment")
        if getattr(csv, key) != getattr(usual, key)
    ]
    nulls = [yaml_text(word) for word in csv.nulls if word]
    parts += [f"nulls: [{', '.join(nulls)}]"] if nulls else []
    return ", ".join(parts)


def _left_out(left_out: Mapping[Steps, str]) -> list[str]:
    """Comments on the fields that are not declared, by the reason."""
    reasons: dict[str, list[str]] = {}
    for path, reason in left_out.items():
        place = show_path(path) if isinstance(path[0], str) else f"[{path[0]}]"
        fields = reasons.setdefault("always the same" if reason.startswith("always ") else reason, [])
        fields.append(f"{place} ({reason})" if reason.startswith("always ") else place)
    lines: list[str] = []
    for reason, fields in reasons.items():
        more = f" and {len(fields) - 30} more" if len(fields) > 30 else ""
        shown = ", ".join(field if field.isprintable() else ascii(field) for field in fields[:30])
        lines += comment_lines(f"not declared, {reason}: {shown}{more}", "      ")
    return lines


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _place(stream: StreamProposal) -> str:
    topic = stream.kind.topic
    return f"the topic {topic.name}" if topic else _count(len(stream.kind.files), "file")


def readme(proposal: Proposal, queries: Sequence[FirstQuery]) -> str:
    """The text of README.md."""
    start, end = range_of(proposal)
    streams = "".join(
        f"- `{s.name}`: about {_count(s.records, 'record')} in {_place(s)} of format {s.format}"
        + (f", `{s.pattern.text}`\n" if s.pattern.text else "\n")
        for s in proposal.streams
    )
    remarks = "".join(f"- {remark}\n" for remark in proposal.remarks)
    return _README.format(
        name=proposal.name,
        streams=streams,
        remarks=f"What to look at:\n\n{remarks}" if remarks else "",
        range=f"--from {start} --to {end}",
        interval=show_duration(proposal.clock.interval_s),
        queries="\n".join(
            f"- `{query.id}`: {query.text.splitlines()[0].removeprefix('-- ').rstrip('.')}"
            f"{'; it promises an error of at most 10 %' if query.promises else ''}."
            for query in queries
        ),
    )


def summary(proposal: Proposal) -> list[str]:
    """What was seen, for the screen: a line for each thing."""
    lines: list[str] = []
    for stream in proposal.streams:
        times, names = stream.times, [stream.column(column) for column in stream.identity.columns]
        first, last = (datetime.fromtimestamp(us // 10**6, UTC) for us in stream.span)
        lines += [
            f"{stream.name}: {stream.format}, about {_count(stream.records, 'record')} in "
            f"{_place(stream)}, {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC",
            f"  {_count(len(stream.names), 'column')}; id {', '.join(names) or 'none'}; event time "
            f"{stream.column(times.event)}; arrival time {stream.column(times.arrival)}",
        ]
    lines += [f"  look at: {remark}" for remark in proposal.remarks]
    notes = dict.fromkeys(stream.zone_note for stream in proposal.streams if stream.zone_note)
    return [*lines, *(f"  local times: {note}" for note in notes)]
