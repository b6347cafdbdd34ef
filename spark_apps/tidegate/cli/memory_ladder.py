"""The memory part of ``tidegate explain``: what each budget buys, as a table, a picture and a ladder of budgets."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tidegate.declarations.models import Pipeline
from tidegate.operators.window_sizing import ControllerSpec, ControllerState, Needs, SupportLevel, live_plan
from tidegate.operators.window_sizing.planning import admit
from tidegate.operators.window_sizing.slots import SlotSchedule, slot_schedule
from tidegate.operators.window_sizing.triggers import headroom, planning_budget
from tidegate.readable import format_bytes, format_seconds

MOST_LOSSES_SHOWN = 6


@dataclass(frozen=True)
class StreamSummary:
    """One stream of :class:`PlanSummary`: declared rate and size, what its queries need, what the plan gives it.

    ``width_s`` is always held; at level C the window grows by ``slot_s`` once every ``period_s``, if it swings.
    """

    stream: str
    rate: float
    tuple_bytes: float
    min_width_s: float
    max_width_s: float
    width_s: float
    slot_s: float
    period_s: float
    planned_bytes: float


@dataclass(frozen=True)
class Rung:
    """From this budget down to the next rung: what it buys. ``level``: A, B, C or infeasible."""

    budget_bytes: float
    level: SupportLevel
    meaning: str


@dataclass(frozen=True)
class PlanSummary:
    """Needed memory of a pipeline at its declared rates, all queries taken as active.

    ``needed_bytes``: level → the least memory budget with which the pipeline plans that level: what the windows hold,
    the arrivals of a tick and, for level C, a margin for chance. ``support_level``, ``streams``: the plan that it
    starts with. ``ladder``: budgets at which something changes, dearest first.
    """

    memory_budget_bytes: int
    needed_bytes: dict[str, float]
    support_level: SupportLevel
    planned_bytes: float
    streams: tuple[StreamSummary, ...]
    ladder: tuple[Rung, ...]


def needs(pipeline: Pipeline) -> PlanSummary:
    """What the pipeline's windows need at the declared rates, and the plan that this budget gives."""
    spec = ControllerSpec.from_pipeline(pipeline)
    rates = {s.name: s.rate * s.tuple_bytes for s in spec.streams}
    demand = spec.needs(spec.queries, rates)
    swinging = slot_schedule(demand, "joint", spec.tick_s, single_swing=True)
    bytes_of_level = {
        "A": demand.bytes_of(demand.max_t),
        "B": demand.bytes_of(demand.min_t),
        "C": min(swinging.peak_bytes, demand.bytes_of(demand.min_t)),
    }
    needed = {level: _budget_for(spec, demand, held, chance=level == "C") for level, held in bytes_of_level.items()}
    # Where turns and what chance adds take more than level B, nothing is planned in turns.
    needed["C"] = min(needed["C"], needed["B"])
    held, spared = _held_at_most(spec, demand, spec.memory_budget_bytes)
    planned = live_plan(demand, held, spec.tick_s, headroom_bytes=spared)
    shares = planned.planned_bytes(demand.byte_rate)
    return PlanSummary(
        memory_budget_bytes=pipeline.memory_budget_bytes,
        needed_bytes=needed,
        support_level=planned.support_level,
        planned_bytes=math.fsum(shares.tolist()),
        streams=tuple(
            StreamSummary(
                stream=s.name,
                rate=s.rate,
                tuple_bytes=s.tuple_bytes,
                min_width_s=float(demand.min_t[w]),
                max_width_s=float(demand.max_t[w]),
                width_s=float(planned.width_s[w]),
                slot_s=float(planned.slot_s[w]),
                period_s=float(planned.period_s[w]),
                planned_bytes=float(shares[w]),
            )
            for w, s in enumerate(spec.streams)
        ),
        ladder=_ladder(spec, demand, swinging, needed),
    )


def _held_at_most(spec: ControllerSpec, demand: Needs, budget_bytes: float) -> tuple[float, float]:
    """What the live planner lets the windows hold out of a budget, and what chance may add to it."""
    widest = zip(demand.window_ids, demand.max_t.tolist(), demand.min_t.tolist(), strict=True)
    extremes = {name: (round(max_t * 1e6), round(min_t * 1e6)) for name, max_t, min_t in widest}
    rates = dict(zip(demand.window_ids, demand.byte_rate.tolist(), strict=True))
    streams = ControllerState.initial(spec).streams
    given = replace(spec, memory_budget_bytes=budget_bytes)
    return planning_budget(given, extremes, rates, streams), headroom(given, extremes, rates, streams)


def _budget_for(spec: ControllerSpec, demand: Needs, held_bytes: float, chance: bool = True) -> float:
    """The least budget, to the byte, of which the windows may hold so much, with or without what chance may add."""

    def enough(budget_bytes: float) -> bool:
        held, spared = _held_at_most(spec, demand, budget_bytes)
        return max(held - spared * chance, 0.0) >= held_bytes

    low, high = 0.0, 1.0
    while not enough(high):
        low, high = high, high * 2
    while high - low > 0.5:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return float(math.ceil(high))


def _ladder(spec: ControllerSpec, demand: Needs, swinging: SlotSchedule, needed: dict[str, float]) -> tuple[Rung, ...]:
    rungs = [Rung(needed["A"], "A", "level A: every answer is exact")]
    if needed["B"] < needed["A"]:
        rungs.append(Rung(needed["B"], "B", "level B: every answer is within its tolerated error"))
    if needed["C"] < needed["B"]:
        short = demand.tolerable_s > swinging.static_s[demand.entry_window] + 1e-9
        waits: dict[float, list[str]] = {}
        for q, w in zip(demand.entry_query[short].tolist(), demand.entry_window[short].tolist(), strict=True):
            waits.setdefault(float(swinging.period_s[w]), []).append(demand.query_ids[q])
        only = [
            f"{_list(sorted(queries))} only at the ends of slots, once every {format_seconds(period)}"
            for period, queries in sorted(waits.items())
        ]
        rungs.append(Rung(needed["C"], "C", f"level C: answers within their errors, {_list(only)}"))
    # Below level C queries are admitted in order of priority: the budgets at which one more of them fits.
    budgets, fitting = set(), np.zeros(len(demand.window_ids))
    for q in sorted(range(len(demand.query_ids)), key=lambda q: (-demand.priority[q], demand.query_ids[q])):
        own = demand.entry_query == q
        np.maximum.at(fitting, demand.entry_window[own], demand.tolerable_s[own])
        budgets.add(demand.bytes_of(fitting))
    least_c = min(swinging.peak_bytes, demand.bytes_of(demand.min_t))
    most, spared = _held_at_most(spec, demand, needed["C"] - 1)
    most = max(min(most - spared, float(np.nextafter(least_c, 0.0))), 0.0)
    lost: tuple[str, ...] = ()
    for held in sorted({b for b in budgets if b < most} | {most}, reverse=True):
        _, refused = admit(demand, held)
        if refused and refused != lost:
            fresh = [q for q in refused if q not in lost]
            if len(rungs) < MOST_LOSSES_SHOWN + 3 and fresh:
                meaning = f"{_list(fresh)} {'loses' if len(fresh) == 1 else 'lose'} support"
                rungs.append(Rung(_budget_for(spec, demand, held), "infeasible", meaning))
            lost = refused
    return tuple(rungs)


def _list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def render(summary: PlanSummary, columns: int = 100) -> str:
    """The summary as text: streams, the budget against the need per level, and what other budgets would buy."""
    lines = ["Windows at the declared rates (all queries active)", "", *_table(summary)]
    lines += ["", "Memory budget against the need of each level", "", *_picture(summary, columns)]
    meaning = {
        "A": "at level A: every answer is exact",
        "B": "at level B: every answer is within its tolerated error",
        "C": "at level C: windows take turns, answers come at the ends of their slots",
        "infeasible": "below level C: not all queries are supported, and the answers say which",
    }
    planned = f"{format_bytes(summary.planned_bytes)} of {format_bytes(summary.memory_budget_bytes)} planned"
    starts = f"The pipeline starts {meaning[summary.support_level]} ({planned})."
    lines += ["", *(f"  {line}" for line in textwrap.wrap(starts, columns - 2))]
    lines += ["", "What other budgets would allow", "", *_ladder_lines(summary, columns)]
    return "\n".join(lines) + "\n"


def _table(summary: PlanSummary) -> list[str]:
    header = ("stream", "tuples/s", "bytes each", "least width", "exact width", "planned width", "planned bytes")
    rows = [
        (
            s.stream,
            f"{s.rate:.4g}",
            f"{s.tuple_bytes:.0f}",
            format_seconds(s.min_width_s),
            format_seconds(s.max_width_s),
            format_seconds(s.width_s) + (f" + {format_seconds(s.slot_s)}" if s.slot_s > 0 else ""),
            format_bytes(s.planned_bytes),
        )
        for s in summary.streams
    ]
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = []
    for row in [header, *rows]:
        numbers = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  " + "  ".join([row[0].ljust(widths[0]), *numbers]))
    for s in summary.streams:
        if s.slot_s > 0:
            grows = f"grows by {format_seconds(s.slot_s)} once every {format_seconds(s.period_s)}, then shrinks back"
            lines.append(f"  {s.stream} {grows}")
    return lines


def _picture(summary: PlanSummary, columns: int) -> list[str]:
    bars = [
        ("A exact", summary.needed_bytes["A"]),
        ("B in tolerance", summary.needed_bytes["B"]),
        ("C taking turns", summary.needed_bytes["C"]),
    ]
    label = max(len(name) for name, _ in bars) + 2
    longest = max(20, columns - label - 14)
    # A budget far beyond every need is drawn at the edge, so that the bars can still be told apart.
    most = max(min(float(summary.memory_budget_bytes), 2 * bars[0][1]), *(value for _, value in bars)) or 1.0

    def length(value: float) -> int:
        return min(longest, math.ceil(value / most * longest - 1e-9))

    mark = max(length(summary.memory_budget_bytes), 1)
    lines = []
    for name, value in bars:
        bar = ["█"] * length(value) + [" "] * (longest - length(value))
        bar[mark - 1] = "┃" if bar[mark - 1] == " " else "╂"
        lines.append(f"  {name.ljust(label)}{''.join(bar)} {format_bytes(value)}")
    budget = f"budget {format_bytes(summary.memory_budget_bytes)}"
    room = mark - 1 - len(budget) - 1
    lines.append("  " + " " * label + (f"{budget} ┃".rjust(mark) if room >= 0 else " " * (mark - 1) + f"┃ {budget}"))
    return lines


def _ladder_lines(summary: PlanSummary, columns: int) -> list[str]:
    """Each rung, and the declared budget between the rungs where it belongs."""
    budget = float(summary.memory_budget_bytes)
    words = [
        (f"{'from' if r.level != 'infeasible' else 'below'} {format_bytes(r.budget_bytes)}", r.meaning)
        for r in summary.ladder
    ]
    above = sum(budget < r.budget_bytes for r in summary.ladder)
    nearest = summary.ladder[above - 1] if above else None
    more = (
        f"{format_bytes(nearest.budget_bytes - budget)} short of the line above"
        if nearest
        else "more than any level needs"
    )
    words.insert(above, (f"→ {format_bytes(budget)}", f"this budget: {more}"))
    label = max(len(name) for name, _ in words)
    lines = []
    for name, meaning in words:
        first = "→ " + name[2:].rjust(label - 2) if name.startswith("→") else name.rjust(label)
        wrapped = textwrap.wrap(meaning, max(columns - label - 4, 30))
        lines += [f"  {first}  {wrapped[0]}", *(" " * (label + 4) + rest for rest in wrapped[1:])]
    return lines
