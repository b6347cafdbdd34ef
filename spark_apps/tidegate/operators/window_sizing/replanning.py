"""From one live plan to the next: the slots in effect, who waits for them, and the rows of the new plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tidegate.operators.window_sizing.live_planning import LivePlan, SwingingQuery
from tidegate.operators.window_sizing.needs import Needs
from tidegate.operators.window_sizing.query_support import promised_from_us
from tidegate.operators.window_sizing.rows import PlanRow, Trigger
from tidegate.operators.window_sizing.spec import SizedQuery
from tidegate.operators.window_sizing.state import QueryState, StreamState, slot_of
from tidegate.operators.window_sizing.triggers import Widths


def plan_in_effect(streams: Sequence[StreamState], t_us: int) -> LivePlan | None:
    """The plan of level C in effect, its offsets from t; None if no window swings."""
    slots = [slot_of(stream) for stream in streams]
    if not any(slots):
        return None
    width = np.array([stream.width_s or 0.0 for stream in streams])
    slot, period, offset = np.zeros(len(slots)), np.full(len(slots), np.inf), np.zeros(len(slots))
    group = np.full(len(slots), -1, dtype=np.int64)
    for i, (own, stream) in enumerate(zip(slots, streams, strict=True)):
        if own is not None and stream.plan_from_us is not None:
            end = stream.plan_from_us + own[0] + own[1] - t_us
            end += max(0, -(-(1 - end) // own[2])) * own[2]  # the next slot end after t
            slot[i], period[i], offset[i] = own[1] / 1e6, own[2] / 1e6, (end - own[1]) / 1e6
            group[i] = -1 if stream.group_id is None else stream.group_id
    return LivePlan("C", width, slot, offset, period, group)


def waiting_queries(
    plan: LivePlan,
    streams: Sequence[StreamState],
    queries: Sequence[SizedQuery],
    widths: Mapping[str, Widths],
    before: Mapping[str, QueryState],
    t_us: int,
) -> list[SwingingQuery]:
    """The queries that rely on the plan's slots from t on, and by when they need the next one.

    Arguments: ``streams`` as just before t; ``widths``: query → what it needs; ``before``: what queries got until t.
    """
    at = {stream.stream: i for i, stream in enumerate(streams)}
    bound = [stream.held_from_us for stream in streams]
    found = []
    for query in queries:
        own = {at[stream]: least for stream, (_, least) in widths[query.id].items() if least}
        short = [i for i, least in own.items() if least > round(plan.width_s[i] * 1e6)]
        if not short:
            continue
        ready = max(bound[i] + least for i, least in own.items())
        promised = promised_from_us(before.get(query.id), t_us, held=ready <= t_us)
        deadline = promised + round(query.delay_s * 1e6)
        found.append(SwingingQuery(short[0], (ready - t_us) / 1e6, (deadline - t_us) / 1e6))
    return found


def plan_rows(
    plan: LivePlan, needs: Needs, streams: Sequence[StreamState], t_us: int, trigger: Trigger
) -> dict[int, PlanRow]:
    """The rows of ``window_plan`` for a plan from t on: index of the stream → row."""
    size, width = plan.planned_bytes(needs.byte_rate), plan.targets_s(needs)
    rows = {}
    for i, stream in enumerate(streams):
        swings = plan.slot_s[i] > 0
        rows[i] = PlanRow(
            stream=stream.stream,
            effective_from_us=t_us,
            support_level=plan.support_level,
            width_s=float(width[i]),
            min_width_s=float(needs.min_t[i]),
            max_width_s=float(needs.max_t[i]),
            byte_rate=float(needs.byte_rate[i]),
            planned_bytes=float(size[i]),
            trigger=trigger,
            group_id=int(plan.group[i]) if swings else None,
            slot_offset_s=float(plan.slot_offset_s[i]) if swings else None,
            slot_s=float(plan.slot_s[i]) if swings else None,
            period_s=float(plan.period_s[i]) if swings else None,
        )
    return rows
