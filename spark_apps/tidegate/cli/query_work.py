"""The part of ``tidegate explain`` that tells how each query is worked out: keys, joins, panes, state, cost."""

from __future__ import annotations

import math
import textwrap

from tidegate.declarations.models import Pipeline, Query, Window
from tidegate.operators.arrivals import is_text
from tidegate.operators.window_sizing import longest_wait_s
from tidegate.queries.questions import held_schemas
from tidegate.readable import format_bytes, format_seconds

_LABEL = 10
_TEXT_BYTES = 16


def query_work(pipeline: Pipeline, columns: int = 100) -> str:
    """How every query runs, at the declared rates, as plain text."""
    lines = ["How each query runs (at the declared rates)"]
    for query in pipeline.queries:
        lines += ["", f"  {query.id}"]
        for label, text in _facts(pipeline, query):
            wrapped = textwrap.wrap(text, columns - _LABEL - 4) or [""]
            lines.append(f"    {label:<{_LABEL}}{wrapped[0]}")
            lines += [" " * (_LABEL + 4) + line for line in wrapped[1:]]
    return "\n".join(lines) + "\n"


def _facts(pipeline: Pipeline, query: Query) -> list[tuple[str, str]]:
    facts = [("keys", _keys(query)), ("joins", _joins(query))] if len(query.windows) > 1 else []
    facts += [("panes", _panes(pipeline, query)), ("state", _state(pipeline, query)), ("cost", _cost(pipeline, query))]
    return facts


def _keys(query: Query) -> str:
    joined = [" = ".join(f"{alias}.{column}" for alias, column in c.columns) for c in query.join_classes]
    return "; ".join(joined) if joined else "none: every tuple is paired with every other"


def _joins(query: Query) -> str:
    """The tree in which the sides' totals are joined, and by what each result is summed up before the next."""
    sides = {
        w.alias: {j.slot for j in query.join_classes if w.alias in {a for a, _ in j.columns}} for w in query.windows
    }
    bounded = query.bounded
    if bounded is not None and bounded.bound is not None:
        return f"{bounded.bound.to} and {bounded.alias} matched key by key within the bound, as they arrive: one stream"
    names = {j.slot: j.columns[0][1] for j in query.join_classes}
    wanted = {g.alias: g.words for g in query.group_by}
    if all(keys == next(iter(sides.values())) for keys in sides.values()):
        per = ", ".join(dict.fromkeys(g.words for g in query.group_by))
        return f"{' × '.join(sides)} key by key" + (f", then summed up per {per}" if per else ", then summed up")
    left = list(sides)
    done, keys = left.pop(0), set(sides[next(iter(sides))])
    held = [done]
    while left:
        alias = next((a for a in left if sides[a] & keys), left[0])
        left.remove(alias)
        on = ", ".join(sorted(names[s] for s in sides[alias] & keys)) or "nothing in common"
        held.append(alias)
        later = {slot for a in left for slot in sides[a]}
        keys = (keys | sides[alias]) & later
        kept = [names[s] for s in sorted(keys)] + [wanted[a] for a in held if a in wanted]
        done = f"({done} ⋈ {alias} on {on}{' per ' + ', '.join(kept) if kept else ''})"
    return done[1:-1]


def _panes(pipeline: Pipeline, query: Query) -> str:
    tick = format_seconds(pipeline.tick_s)
    parts = [f"{w.alias} {math.ceil(w.range_s / pipeline.tick_s)}" for w in query.windows]
    return f"{', '.join(parts)} of {tick}; window widths change at pane boundaries" if parts else ""


def _state(pipeline: Pipeline, query: Query) -> str:
    slack_s = longest_wait_s(pipeline, query, pipeline.initial_slack_s if query.promised is not None else 0)
    if query.kind == "top_k":
        panes = math.ceil((query.windows[0].range_s + slack_s) / pipeline.tick_s)
        tuples = _tuples(pipeline, query.windows[0], slack_s)
        if query.group_by:
            groups = ", ".join(g.column for g in query.group_by)
            return f"at most {tuples:.4g} candidates, the {query.limit} best of each pane and group ({groups})"
        tuples = min(float(query.limit or 0) * panes, tuples)
        return f"at most {tuples:.4g} candidates, the {query.limit} best of each pane"
    held = [_tuples(pipeline, w, slack_s + query.due_after_s(w)) for w in query.windows]
    total = sum(count * _bytes(pipeline, query, i) for i, count in enumerate(held))
    tuples = sum(held)
    until = " until the last update" if query.emit_every_s is not None else ""
    waits = f" and a wait of {format_seconds(slack_s)}{until}" if slack_s else ""
    told = f"about {format_bytes(total)}: {tuples:.4g} tuples in whole windows{waits}"
    if query.bounded is not None:
        return f"{told}, once to be matched and once in the result; further pairs come on top"
    return f"{told}; independent of the number of joined pairs"


def _tuples(pipeline: Pipeline, window: Window, slack_s: float) -> float:
    rate = sum(pipeline.stream(source.stream).rate for source in window.sources)
    return float(rate * (window.range_s + slack_s))


def _bytes(pipeline: Pipeline, query: Query, side: int) -> float:
    schemas = held_schemas(query, query.windows[side].alias)
    kinds = [field.type for schema in schemas for field in schema]
    return sum(_TEXT_BYTES if is_text(kind) else kind.bit_width / 8 for kind in kinds) + len(kinds) / 8


def _cost(pipeline: Pipeline, query: Query) -> str:
    if query.sessions is not None:
        return "tuples are sorted by key and time once; a session's are aggregated when it is answered"
    if query.kind == "top_k":
        return "one comparison per tuple; windows are answered from the candidates of their panes, many at once"
    extremes = dict.fromkeys(a.function.upper() for a in query.aggregates if a.called.extreme is not None)
    if query.bounded is not None:
        cost = "a look at each pair of equal keys within the bound, once; then as of one stream: "
    else:
        cost = ""
    cost += "a tuple updates its key's running totals twice, on arrival and on expiry, however wide the window is"
    if extremes:
        cost += f"; {' and '.join(extremes)}: times the logarithm of the windows answered at once"
    ranked = dict.fromkeys(a.function.upper() for a in query.aggregates if a.called.of_ranks)
    if ranked:
        cost += f"; {' and '.join(ranked)}: an answer, and each change of a value's number, times the logarithm of the "
        cost += "values of its group"
    listed = dict.fromkeys(a.function.upper() for a in query.aggregates if a.called.is_listed)
    if listed:
        cost += f"; {' and '.join(listed)}: each different value of a window is looked at when it is answered"
    slots = {
        frozenset(j.slot for j in query.join_classes if w.alias in {a for a, _ in j.columns}) for w in query.windows
    }
    if len(slots) > 1:
        cost += "; each update is applied to the matching totals of the other sides"
    if query.emit_every_s is not None:
        count = math.ceil(pipeline.horizon_s / query.emit_every_s)
        cost += f"; EMIT: up to {count + 1} further answers of each window, each at that cost"
    return cost
