"""A pipeline, told in plain text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil
from textwrap import wrap

from tidegate.declarations.models import (
    REFERENCE_SHARE,
    Branch,
    Column,
    DerivedStream,
    KafkaSource,
    Lookup,
    OnMiss,
    Pipeline,
    Query,
    ReferenceTable,
    Stream,
    Window,
)
from tidegate.declarations.promises import GROUPS_WITHIN, SENTENCE
from tidegate.declarations.units import SECOND_US, show_bytes, show_duration

_WIDTH = 90


def describe(pipeline: Pipeline) -> str:
    """Streams and queries of a pipeline as aligned plain text: what is read, what is promised, how often."""
    facts = [
        ("owner", pipeline.owner),
        ("start", f"{pipeline.start:%Y-%m-%d %H:%M} UTC"),
        ("interval", show_duration(pipeline.interval_s)),
        ("tick", show_duration(pipeline.tick_s)),
        ("horizon", f"{show_duration(pipeline.horizon_s)} after a window's end, its answer is final"),
        ("memory budget", f"{show_bytes(pipeline.memory_budget_bytes)} for all windows"),
        ("process budget", f"{show_bytes(pipeline.process_budget_bytes)} for the JVM and its Python workers"),
        ("initial slack", show_duration(pipeline.initial_slack_s)),
        ("promise period", "\n".join([show_duration(pipeline.promise_period_s), *wrap(SENTENCE, _WIDTH)])),
        ("new plan", f"when a stream's rate changes by more than {pipeline.rate_change * 100:.6g}%"),
    ]
    title = f"Pipeline {pipeline.name}" + (f": {pipeline.description}" if pipeline.description else "")
    parts = ["\n".join([title, *_aligned(facts)])]
    parts += ["\n".join(_stream_lines(pipeline, stream)) for stream in pipeline.streams]
    parts += ["\n".join(_table_lines(pipeline, table)) for table in pipeline.tables]
    parts += ["\n".join(_derived_lines(stream)) for stream in pipeline.derived]
    parts += ["\n".join(_query_lines(pipeline, query)) for query in pipeline.queries]
    return "\n\n".join(parts) + "\n"


def _aligned(facts: Iterable[tuple[str, str]]) -> list[str]:
    rows = [(label, text) for label, text in facts if text]
    width = max(len(label) for label, _ in rows)
    indent = "\n" + " " * (width + 4)
    return [f"  {label:<{width}}  {text}".replace("\n", indent) for label, text in rows]


def _stream_lines(pipeline: Pipeline, stream: Stream) -> list[str]:
    columns = [
        (column.name, column.type + ("" if column.nullable else ", never null"), _about(column))
        for column in stream.columns
    ]
    facts = [
        ("source", _source(stream)),
        ("checkpoint", stream.checkpoint or ""),
        (
            "id",
            ", ".join(stream.id) or f"none: a record's place in its {'file' if stream.source is None else 'source'}",
        ),
        ("event time", stream.event_time),
        ("arrival time", stream.arrival_time or _stamp(stream)),
        ("expected rate", f"{stream.rate * 3600:.6g} tuples per hour"),
        ("accepted", _accepted(stream)),
        ("widest window", _widest(pipeline, stream)),
        (
            "missing file" if stream.source is None else "no record",
            {"error": "an error", "warn": "a warning", "ignore": "ignored"}[stream.missing_file],
        ),
        ("history", _history(stream)),
        ("columns", "\n".join(_table(columns))),
    ]
    title = f"Stream {stream.name}" + (f": {stream.description}" if stream.description else "")
    return [title, *_aligned(facts)]


def _table_lines(pipeline: Pipeline, table: ReferenceTable) -> list[str]:
    columns = [(c.name, c.type + ("" if c.nullable else ", never null"), c.description) for c in table.columns]
    valid = ""
    if table.valid_from:
        until = table.valid_to or f"the next {table.valid_from} of the key"
        valid = f"from {table.valid_from} to before {until}; a tuple meets the row valid at its event time"
    most = show_bytes(pipeline.process_budget_bytes // REFERENCE_SHARE)
    facts = [
        ("source", f"{table.format}, {table.path}, read by every interval's ingest"),
        ("key", ", ".join(table.key)),
        ("valid", valid),
        ("in effect", "a tuple meets the version of the interval that ingests it; runs that are repeated keep it"),
        ("memory", f"kept by every process that reads tuples; all tables together at most {most}"),
        ("columns", "\n".join(_table(columns))),
    ]
    return [f"Reference table {table.name}" + (f": {table.description}" if table.description else ""), *_aligned(facts)]


def _derived_lines(stream: DerivedStream) -> list[str]:
    through = "" if stream.reads == stream.stream else f", through {stream.reads}"
    names = " and ".join(stream.streams)
    is_union = stream.stream == stream.name
    facts = [
        (
            "tuples of",
            f"{names}: no copy, with their event times and arrival times, and their ids behind the SELECT's number"
            if is_union
            else f"{stream.stream}{through}: no copy, with their ids, event times and arrival times",
        ),
        ("looked up", _lookups(stream.lookups)),
        ("where", stream.predicate or ""),
        ("columns", "\n".join(_table([(c.name, c.type, "" if is_union else c.expression) for c in stream.columns]))),
        *((branch.stream, _branch(branch)) for branch in (stream.branches if is_union else ())),
        ("history", f"that of {names}"),
    ]
    about = stream.description.split("\n\n")[0].replace("\n", " ")
    return [f"Derived stream {stream.name}" + (f": {about}" if about else ""), *_aligned(facts)]


def _branch(branch: Branch) -> str:
    """What a union has of a declared stream, line by line."""
    lines = [f"looked up {_lookups(branch.lookups)}"] if branch.lookups else []
    lines += [f"where {branch.predicate}"] if branch.predicate else []
    columns = [*((c.name, f"= {c.expression}") for c in branch.columns), ("event_id", f"= {branch.id}")]
    return "\n".join([*lines, *_table(columns)])


def _source(stream: Stream) -> str:
    """What the records come from; options by their names alone."""
    source = stream.source
    if source is None:
        return f"{stream.format}, {stream.path}"
    options = f"; {', '.join(source.options)}" if source.options else ""
    if isinstance(source, KafkaSource):
        by = f", schemas by {source.registry}" if source.registry else ""
        by = f", schema {source.schema_file.name}" if source.schema_file else by
        return f"{stream.format}, the topic {source.topic} of Kafka at {source.servers}{by}{options}"
    return f"Spark's {source.format}{f', {stream.format}' if stream.format else ''}{options}"


def _stamp(stream: Stream) -> str:
    if stream.arrival_stamp == "broker":
        return "Kafka's timestamp"
    return "when its file landed" if stream.source is None else "when it landed"


def _about(column: Column) -> str:
    part = "" if column.part == "value" else f"from ${'.'.join((column.part, *map(str, column.path)))}"
    return "; ".join(text for text in (part, column.description) if text)


def _widest(pipeline: Pipeline, stream: Stream) -> str:
    default = "" if stream.max_width_s is not None else " (no max_width: the widest range and the horizon)"
    return show_duration(pipeline.max_width_s(stream.name)) + default


def _accepted(stream: Stream) -> str:
    early, late = show_duration(stream.max_early_s), show_duration(stream.max_late_s)
    return f"arrivals from {early} before to {late} after their event time"


def _history(stream: Stream) -> str:
    history = stream.history
    if history is None:
        return "none"
    return (
        f"leaves of {show_duration(history.leaf_s)}, at most {history.capacity_tuples} sampled tuples, "
        f"fraction {history.max_fraction:.6g} down to {history.min_fraction:.6g}, {history.merge_leaves} leaves merged"
        f", by the law {history.law}, reserve {history.reserve:.6g}"
        + (f", exact for each {', '.join(history.group_by)}" if history.group_by else "")
    )


def _query_lines(pipeline: Pipeline, query: Query) -> list[str]:
    windows = [(w.alias, _bounded(w) if w.bound else f"{_window(query, w)} of {_read(w)}") for w in query.windows]
    joins = [" = ".join(f"{alias}.{column}" for alias, column in joined.columns) for joined in query.join_classes]
    slots = {g.slot: g.words for g in query.group_by}
    slots |= {a.slot: a.words(_argument(a.alias, a.expression)) for a in query.aggregates}
    order = [f"{o.expression} {'descending' if o.descending else 'ascending'}" for o in query.order_by]
    facts = [
        ("kind", "sessions" if query.sessions is not None else query.kind.replace("_", "-")),
        ("windows", "\n".join([*_table(windows), *_sessions(query)])),
        ("looked up", "\n".join(f"{w.alias}: {_lookups(w.lookups)}" for w in query.windows if w.lookups)),
        ("where", "\n".join(f"{alias}: {predicate}" for alias, predicate in query.predicates.items())),
        ("joined on", "\n".join(joins)),
        ("of these", "\n".join(condition.words for condition in query.conditions)),
        ("result", _result(query)),
        ("groups", ", ".join(f"{g.slot} = {slots[g.slot]}" for g in query.group_by)),
        ("aggregates", ", ".join(f"{a.slot} = {slots[a.slot]}" for a in query.aggregates)),
        ("having", query.having or ""),
        ("best", f"{query.limit}{_of_each(query)} by {', '.join(order)}" if order else ""),
        ("answer", "\n".join(_table([(o.name, o.type, o.expression) for o in query.outputs]))),
        ("promise", _promise(query)),
        ("every", _every(query)),
        ("also", _also(pipeline, query)),
        ("active", _active(query)),
        ("priority", str(query.priority) if query.priority else ""),
    ]
    about = query.description.split("\n\n")[0].replace("\n", " ")
    return [f"Query {query.id}" + (f": {about}" if about else ""), *_aligned(facts)]


def _lookups(lookups: Sequence[Lookup]) -> str:
    return ", ".join(f"{lookup.table} by {', '.join(lookup.keys)}" for lookup in lookups)


def _bounded(window: Window) -> str:
    """Which tuples of a window without RANGE match one of the other."""
    assert window.bound is not None
    ends = [
        f"{show_duration(abs(end_s))} {'before' if end_s < 0 else 'after'}" if end_s else "the time of"
        for end_s in (window.bound.low_s, window.bound.high_s)
    ]
    return f"{_read(window)} from {ends[0]} to {ends[1]} each {window.bound.to}"


def _result(query: Query) -> str:
    """What a join with a bound has, and when it is known."""
    bounded = query.bounded
    if bounded is None or bounded.bound is None:
        return ""
    of, alias = bounded.bound.to, bounded.alias
    told = {
        "inner": f"{of} with each {alias} that matches",
        "left": f"{of} with each {alias} that matches, or with NULLs where none does",
        "semi": f"each {of} that has a match, once",
        "anti": f"each {of} that has no match",
    }[bounded.bound.kind]
    notes = [told]
    if query.lag_s:
        lag = show_duration(query.lag_s)
        notes = [f"{told}; answered {lag} and K after a window's end, and final {lag} and the horizon after it"]
    if bounded.bound.is_optional:
        notes.append(
            f"An {of} whose match is later than K counts as one without: its error is that of K like any other."
        )
    notes.append("Held whole or not at all: a window that does not fit into memory has no answer, and is missed.")
    return "\n".join(line for note in notes for line in wrap(note, _WIDTH))


def _read(window: Window) -> str:
    return f"{window.derived}, from {' and '.join(window.streams)}" if window.derived else window.stream


def _of_each(query: Query) -> str:
    """Of what a ranked answer has the best."""
    if not query.ranks_groups:
        return " of each group" if query.group_by else ""
    return f" groups for each {', '.join(query.within)}" if query.within else " groups"


_ON_MISS: dict[OnMiss, str] = {
    "warn": "a warning",
    "fail": "the check of data quality fails",
    "omit": "the marts leave the answer out",
    "correct": "corrections are written",
}


def _argument(alias: str | None, expression: str | None) -> str:
    return "*" if expression is None else f"{alias}: {expression}"


def _promise(query: Query) -> str:
    if query.promised is None:
        return "none"
    promised = "an error of at most" if query.error is not None else "a mean accuracy of at least"
    told = f"{promised} {query.promised * 100:.6g}%"
    if query.sessions is not None:
        told += ", of each session, by its bounds and its groups; another one, or none, counts 1"
    told += "".join(f", or of {floor:.16g} in {name}" for name, floor in query.floors.items())
    if query.groups_within < 1:
        told += f", for {query.groups_within * 100:.6g}% of a window's groups"
    if query.for_each:
        told += f" for each {', '.join(query.for_each)}"
    return "\n".join([f"{told}; on a miss: {_ON_MISS[query.on_miss]}", *_by_group(query)])


def _by_group(query: Query) -> list[str]:
    """What a promise that tells groups apart means, line by line."""
    notes = []
    if query.groups_within < 1:
        least = ceil(1 / (1 - query.groups_within) - 1e-9)
        spared = f"{100 - query.groups_within * 100:.6g}%"
        notes.append(
            f"A window's error is that of its worst group but for {spared} of them; with fewer than {least} groups, of "
            "the worst. A group so small that one late tuple breaks the promise is within it only if nothing of it is "
            f"late: where most are, K is as long as all but {spared} of them take."
        )
    if query.floors:
        alone = [o.name for o in query.outputs if o.name not in query.floors and o.name not in query.group_outputs]
        missing = f"counts 1, as {', '.join(alone)} has no floor" if alone else "counts as 0 in each column"
        notes.append(f"A group that is missing or too many {missing}.")
    if query.for_each:
        each = ", ".join(query.for_each)
        notes.append(
            f"A period is kept if at least {GROUPS_WITHIN * 100:.0f} of 100 values of {each} reach that mean, each "
            "over the windows in which it has true best."
        )
    return [line for note in notes for line in wrap(note, _WIDTH)]


def _window(query: Query, window: Window) -> str:
    """What a window is, as it is told before the name of its stream."""
    if query.sessions is None:
        return f"last {_range(window)}"
    return f"sessions, a gap of more than {show_duration(query.sessions.gap_us / SECOND_US)} apart,"


def _sessions(query: Query) -> list[str]:
    """How sessions are held and cut, line by line."""
    if query.sessions is None:
        return []
    longest, (window,) = show_duration(query.sessions.longest_us / SECOND_US), query.windows
    streams, reach = " and ".join(window.streams), show_duration(window.range_s)
    text = (
        f"A session that has lasted for {longest} is cut at the next multiple of it since 1970. Sessions are never "
        f"narrowed: the window of {streams} has to hold {reach} and K; a session of "
        "which something has been let go is not answered, and counts as missed."
    )
    return wrap(text, _WIDTH)


def _range(window: Window) -> str:
    """How far back a window reaches: ``7 days``, or ``day (at most 25 hours)``."""
    if window.calendar is None:
        return show_duration(window.range_s)
    longest = "" if window.calendar.usual_us == window.range_s * 1e6 else f" (at most {show_duration(window.range_s)})"
    return f"{window.calendar.name}{longest}"


def _every(query: Query) -> str:
    if query.sessions is not None:
        return "session, K after its last event and the gap; and anew where a later tuple makes another one of it"
    if query.calendar is None:
        return show_duration(query.every_s)
    ends = {"day": "at midnight", "week": "on Mondays at midnight", "month": "on the first at midnight"}
    return f"{query.calendar.name}, {ends[query.calendar.name]}, by the clocks of {query.calendar.zone}"


def _also(pipeline: Pipeline, query: Query) -> str:
    """Which further answers a window has, and what memory is planned for them."""
    texts = []
    if query.emit_early:
        texts.append("an early answer at the window's end, where the promised one waits; not at level C")
    if query.emit_every_s is not None:
        horizon = show_duration(pipeline.horizon_s)
        ranges = ", ".join(f"{w.alias}: {show_duration(w.range_s + pipeline.horizon_s)}" for w in query.windows)
        texts.append(f"updates every {show_duration(query.emit_every_s)} after the promised answer, and the final one")
        texts.append(f"memory is planned for range + horizon ({ranges}), as tuples count until {horizon} after the end")
    return "\n".join(line for text in texts for line in wrap(text, _WIDTH))


def _active(query: Query) -> str:
    if query.active_from is None or query.active_to is None:
        return "always"
    return f"from {query.active_from:%Y-%m-%d %H:%M} to before {query.active_to:%Y-%m-%d %H:%M} UTC"


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
