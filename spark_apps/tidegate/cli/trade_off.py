"""The warehouse's part of ``tidegate explain``: which accuracy memory and waiting buy, by the pipeline's own past."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tidegate.declarations.models import Pipeline
from tidegate.declarations.promises import terms_of
from tidegate.operators.accuracy import Support
from tidegate.operators.accuracy.support import SHARES
from tidegate.operators.window_sizing import Footprint, Room, Want
from tidegate.operators.window_sizing.waits import together
from tidegate.readable import format_bytes, format_seconds
from tidegate.stages.calibrate_slacks import supports_after
from tidegate.stages.calibrate_waits import Row, footprints_at, room_of, wants_of
from tidegate.store.intervals import interval_labelled
from tidegate.store.warehouse import Warehouse

_STEPS = 5
_PART_OF_K = (1 / 8, 1 / 4, 1 / 2, 2)
_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0
_ROUND_S = (1, 2, 5, 10, 15, 30, *(_MINUTE * n for n in (1, 2, 5, 10, 15, 30)), *(_HOUR * n for n in (1, 2, 3, 6, 12)))


@dataclass(frozen=True, eq=False)
class TradeOff:
    """Of a query with a promise: the accuracy of the last day's windows, had memory and wait been others.

    ``slacks_s`` ascending, ``budgets_bytes`` descending: of the whole pipeline, the other queries as planned.
    ``accuracy`` float64[budget, slack]: the hit rate, or the part of the windows within ERROR; 0 where nothing fits.
    ``least``: what was promised of it. ``slack_s``, ``budget_bytes``: those in force.
    """

    query: str
    promise: str
    least: float
    slacks_s: tuple[float, ...]
    budgets_bytes: tuple[float, ...]
    accuracy: np.ndarray
    slack_s: float
    budget_bytes: float


def trade_offs(warehouse: Warehouse) -> list[TradeOff]:
    """One for each query with a promise of which past windows are known.

    **Cost.** Reads ``needed_slack`` of a day (or a promise's period), and states of the newest calibrated interval.
    """
    labels = warehouse.labels("slack_plan")
    if not labels:
        return []
    pipeline, interval = warehouse.pipeline, interval_labelled(warehouse.pipeline, labels[-1])
    rows = warehouse.read_arrow("slack_plan", [interval.label]).to_pylist()
    supports = supports_after(warehouse, interval)
    footprints = footprints_at(warehouse, interval.label)
    if not any(footprint.peaks for footprint in footprints.values()):
        return []
    wants = wants_of(pipeline, interval, rows, supports, supports)
    return [
        _trade_off(pipeline, want, [w for w in wants if w is not want], row, supports[want.query], footprints)
        for want in wants
        for row in rows
        if row["query"] == want.query and supports[want.query].known
    ]


def _trade_off(
    pipeline: Pipeline,
    want: Want,
    others: Sequence[Want],
    row: Row,
    support: Support,
    footprints: Mapping[str, Footprint],
) -> TradeOff:
    room, slack_s = room_of(pipeline, footprints), row["slack_s"]
    reserved = together(*(room.heights(other, other.slack_s, 1.0) for other in others))
    slacks_s = _slacks(pipeline, slack_s, row["slack_needed_s"])
    longest = room.taken(together(reserved, room.heights(want, slacks_s[-1], 1.0)))
    budgets = _budgets(room, room.taken(reserved), longest)
    terms = terms_of(pipeline, pipeline.query(want.query))
    assert terms is not None
    accuracy = [
        [_most_accurate(support, want, reserved, replace(room, budget_bytes=b), k) for k in slacks_s] for b in budgets
    ]
    return TradeOff(
        want.query,
        terms.promise,
        terms.accuracy,
        tuple(slacks_s),
        tuple(budgets),
        np.array(accuracy),
        slack_s,
        room.budget_bytes,
    )


def _slacks(pipeline: Pipeline, now_s: float, needed_s: float | None) -> list[float]:
    """None, K, what the promise asks for, and round waits near parts and multiples of it."""
    unit = max(now_s, needed_s or 0.0) or pipeline.tick_s * 4
    tried = {0.0, now_s, needed_s or 0.0, *(_round(unit * part) for part in _PART_OF_K)}
    return sorted(s for s in tried if s <= max(pipeline.horizon_s, now_s))


def _round(seconds: float) -> float:
    """The nearest wait, by ratio, that people say: up to 12 hours, then whole days."""
    if seconds >= _DAY * 3 / 4:
        return round(seconds / _DAY) * _DAY
    return float(min(_ROUND_S, key=lambda s: abs(math.log(seconds / s))))


def _budgets(room: Room, others: float, longest: float) -> list[float]:
    """The budget in force, and even steps from what the other queries' windows take to what the longest wait takes."""
    steps = (others + (longest - others) * k / _STEPS for k in range(_STEPS + 1))
    return sorted({room.budget_bytes, *(float(math.ceil(max(step, 1.0) / 512) * 512) for step in steps)}, reverse=True)


def _most_accurate(support: Support, want: Want, reserved: Mapping[str, int], room: Room, slack_s: float) -> float:
    """The accuracy with the widest window that fits beside the others'."""
    fitting = [
        share
        for share in SHARES[1:]
        if room.taken(together(reserved, room.heights(want, slack_s, share))) <= room.budget_bytes
    ]
    return support.accuracy(slack_s, fitting[-1]) if fitting else 0.0


def render(trade_off: TradeOff) -> str:
    """The picture as text: a row a memory budget, a column a wait; those in force in brackets."""

    def marked(text: str, now: bool) -> str:
        return f"[{text}]" if now else f" {text} "

    lines = [f"  {trade_off.query}: {trade_off.promise}", ""]
    header = [marked(format_seconds(s), s == trade_off.slack_s) for s in trade_off.slacks_s]
    label = max(len(format_bytes(b)) for b in trade_off.budgets_bytes) + 2
    width = max(12, *(len(text) for text in header))
    lines.append("  " + "memory \\ wait".ljust(label + 4) + "".join(text.rjust(width) for text in header))
    for budget, own in zip(trade_off.budgets_bytes, trade_off.accuracy, strict=True):
        now = budget == trade_off.budget_bytes
        cells = "".join(_cell(value, trade_off.least, width) for value in own)
        lines.append("  " + marked(format_bytes(budget), now).rjust(label + 4) + cells)
    return "\n".join(lines)


def _cell(accuracy: float, least: float, width: int) -> str:
    """A bar of eight steps and the figure; with a star where the promise would be kept."""
    text = "-" if accuracy <= 0 else f"{'▁▂▃▄▅▆▇█'[min(int(accuracy * 8), 7)] * 2} {accuracy:4.0%}"
    return (text + ("*" if accuracy >= least else " ")).rjust(width)


def described(warehouse: Warehouse) -> str:
    """All of a warehouse's trade-offs, with their legend; why there are none where nothing is known."""
    found = trade_offs(warehouse)
    title = "What memory and waiting buy, by the windows of late"
    if not found:
        return f"{title}\n\n  Nothing is known yet: no window of a query with a promise is final.\n"
    legend = (
        "  Accuracy with the whole pipeline's memory at the left and the wait above, the other queries as planned.\n"
        "  [in force]   * the promise would be kept   - no window fits"
    )
    return "\n\n".join([title, *map(render, found), legend]) + "\n"
