"""What each query gets from the windows at an instant: its level, its slot ends, and from when on it really holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tidegate.operators.window_sizing.bounds import UNBOUNDED_US, Slot
from tidegate.operators.window_sizing.rows import QueryPlanRow
from tidegate.operators.window_sizing.spec import ControllerSpec, SizedQuery
from tidegate.operators.window_sizing.state import QueryState


@dataclass(frozen=True)
class WindowNow:
    """A window from one instant on, all µs.

    ``width_us`` and ``slot`` as planned (offset from the instant). ``lower_us``: bound once the instant's evictions are
    done. ``before_us``: bound that an answer given at the instant finds.
    """

    width_us: int
    slot: Slot | None
    lower_us: int
    before_us: int


def query_support(
    spec: ControllerSpec, query: SizedQuery, windows: Mapping[str, WindowNow], before: QueryState | None, now_us: int
) -> QueryState:
    """What the query gets from ``now_us`` on, ``before`` being what it got until then (None: it begins now).

    Idea: a window planned wide enough holds enough only from the bound so far + need on. A query whose tolerable widths
    are always held answers regularly, and is supported from then on. One that relies on a window's slots answers at
    their ends; it is supported if the next of them at which everything is held comes within its delay of its last valid
    answer (of its beginning, if it begins). What is not supported yet is "unsupported" until it is: until the tick
    before the first good slot end, or until all widths are held.

    Between slots and regular answers it gives one answer more: when slots begin, at once, for until then all is held;
    when they end, at the next tick at which all is held, which is when the slot would have ended at the latest; when
    new slots would end too late for it, as soon as the first of them holds enough.
    """
    needs_us = spec.needs_us(query)
    state = QueryState(
        id=query.id,
        streams=tuple(needs_us),
        need_us=tuple(exact for exact, _ in needs_us.values()),
        tolerable_need_us=tuple(least for _, least in needs_us.values()),
        tolerable_us=tuple(round(query.tolerable_s(stream) * 1e6) for stream in needs_us),
        wait_us=spec.whole_ticks_us(query.slack_s),
        delay_us=round(query.delay_s * 1e6),
        since_us=now_us,
        last_valid_us=now_us if before is None else last_valid_us(before, now_us),
    )
    own = {stream: windows[stream] for stream in needs_us}
    ready_us = max((own[s].lower_us + least for s, (_, least) in needs_us.items() if least), default=UNBOUNDED_US)
    short = [s for s, (_, least) in needs_us.items() if own[s].width_us < least]
    if not short:
        exact = all(own[s].width_us >= whole for s, (whole, _) in needs_us.items())
        exact_us = max((own[s].lower_us + whole for s, (whole, _) in needs_us.items()), default=UNBOUNDED_US)
        return _regular(state, before, ready_us, exact_us if exact else None, spec.tick_us)
    slot = own[short[0]].slot
    carried = slot is not None and len(short) == 1 and own[short[0]].width_us + slot[1] >= needs_us[short[0]][1]
    if slot is None or not carried or slot[2] > state.delay_us:
        return state
    offset, length, period = slot
    slot_end = now_us + offset + length
    slot_end += -(-max(now_us + 1 - slot_end, ready_us - slot_end, 0) // period) * period
    # An answer at this very instant still comes K of before after its window's end.
    older_us = 0 if before is None else before.wait_us - state.wait_us
    held = all(own[s].before_us + least + older_us <= now_us for s, (_, least) in needs_us.items() if least)
    promised_us = promised_from_us(before, now_us, held)
    if before is not None and held and promised_us == now_us and before.period_us is None:
        state = replace(state, extra_answer_us=now_us, last_valid_us=now_us)
    in_time = slot_end <= promised_us + state.delay_us
    if not in_time:
        # The slot may hold enough before it ends: other queries need it longer.
        soonest_us = max(
            ready_us, slot_end - length - own[short[0]].width_us + needs_us[short[0]][1], now_us + spec.tick_us
        )
        if soonest_us <= min(slot_end, promised_us + state.delay_us):
            state, in_time = replace(state, extra_answer_us=soonest_us), True
    if in_time or slot_end <= now_us + spec.tick_us:
        return replace(state, support_level="C", valid_us=slot_end, slot_end_us=slot_end, period_us=period)
    return replace(state, valid_us=slot_end, extra_answer_us=None, change_us=slot_end - spec.tick_us)


def promised_from_us(before: QueryState | None, now_us: int, held: bool) -> int:
    """The instant within whose delay a query that swings from now on must answer next.

    ``held``: whether its tolerable widths are all held until now, so that it can answer at once.
    """
    if before is None:
        return now_us
    regular = before.period_us is None and before.support_level in ("A", "B")
    return now_us if regular and held else last_valid_us(before, now_us)


def _regular(
    state: QueryState, before: QueryState | None, ready_us: int, exact_us: int | None, tick_us: int
) -> QueryState:
    """The query with regular answers: its tolerable widths held from ``ready_us`` on, its ranges from ``exact_us``."""
    now_us = state.since_us
    extra_us = None
    if before is not None and before.period_us is not None:
        extra_us = max(ready_us, now_us + tick_us)
    elif before is not None and before.extra_answer_us is not None and before.extra_answer_us > now_us:
        extra_us = max(ready_us, before.extra_answer_us)
    if extra_us is not None and extra_us > state.last_valid_us + state.delay_us:
        extra_us = None
    state = replace(state, extra_answer_us=extra_us, valid_us=max(ready_us, now_us))
    # K is counted in whole ticks, so what is asked after this instant reaches a tick less far back.
    ready_us, exact_us = ready_us - tick_us, None if exact_us is None else exact_us - tick_us
    if exact_us is not None and exact_us <= now_us:
        return replace(state, support_level="A")
    if ready_us <= now_us or extra_us is not None:
        return replace(state, support_level="B", change_us=exact_us)
    return replace(state, change_us=ready_us)


def last_valid_us(state: QueryState, now_us: int) -> int:
    """The query's last answer within its error up to now, its beginning if none; never later than it really was."""
    known = [state.last_valid_us]
    if state.extra_answer_us is not None and state.extra_answer_us <= now_us:
        known.append(state.extra_answer_us)
    if state.valid_us is not None and state.support_level != "unsupported":
        if state.period_us is not None and state.slot_end_us is not None and state.slot_end_us <= now_us:
            known.append(now_us - (now_us - state.slot_end_us) % state.period_us)
        elif state.period_us is None and now_us - state.delay_us > max(state.since_us, state.valid_us):
            known.append(now_us - state.delay_us)  # at the earliest: regular answers are a delay apart
    return max(known)


def query_row(query: SizedQuery, state: QueryState) -> QueryPlanRow:
    """The row of ``query_plan`` that says what the query gets from now on."""
    return QueryPlanRow(
        query=query.id,
        effective_from_us=state.since_us,
        support_level=state.support_level,
        tolerable_s={stream: query.tolerable_s(stream) for stream in state.streams},
        slot_end_us=state.slot_end_us,
        period_s=None if state.period_us is None else state.period_us / 1e6,
        extra_answer_us=state.extra_answer_us,
    )


def says_the_same(state: QueryState, before: QueryState) -> bool:
    """Whether the row in effect still tells what the query gets."""
    if (state.support_level, state.period_us) != (before.support_level, before.period_us):
        return False
    if (state.streams, state.tolerable_us) != (before.streams, before.tolerable_us):
        return False
    if state.extra_answer_us is not None and state.extra_answer_us != before.extra_answer_us:
        return False
    if state.period_us is None or state.slot_end_us is None or before.slot_end_us is None:
        return True
    missed = max(0, state.since_us + 1 - before.slot_end_us)
    return state.slot_end_us == before.slot_end_us + -(-missed // state.period_us) * state.period_us


def going_on(before: QueryState, state: QueryState) -> QueryState:
    """What the query got before goes on; only what it needs, and when it gets more, is news."""
    return replace(
        before,
        need_us=state.need_us,
        tolerable_need_us=state.tolerable_need_us,
        wait_us=state.wait_us,
        delay_us=state.delay_us,
        change_us=state.change_us,
    )
