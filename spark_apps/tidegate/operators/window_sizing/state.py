"""What the live controller carries from tick to tick, the same in memory and in an Arrow table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.operators.window_sizing.bounds import UNBOUNDED_US, EffectiveBounds, Slot
from tidegate.operators.window_sizing.ledger import Ledger
from tidegate.operators.window_sizing.planning import SupportLevel
from tidegate.operators.window_sizing.rows import PlanRow, QueryLevel
from tidegate.operators.window_sizing.spec import ControllerSpec


@dataclass(frozen=True)
class StreamState:
    """What the controller remembers of one stream; its row of the saved state has a column for each.

    ``rate``, ``tuple_bytes``: exponentially weighted, now. ``first_arrival_us``: start of the tick in which the first
    tuple arrived, None before. ``moved_ticks``: for how many ticks in a row the rate has been off.

    The plan in effect: ``plan_from_us`` its instant (None: not planned yet), ``plan_byte_rate`` bytes/s that it reckons
    with, ``width_s``, ``slot_offset_s``, ``slot_s``, ``period_s``, ``group_id`` as in :class:`PlanRow`. ``lower_us``:
    effective lower bound once the last tick's evictions were done (None: nothing evicted, the window counts as filled).

    What is held: ``pane_us`` ascending, ``pane_tuples``, ``pane_bytes``. The tick that began at the last one evaluated:
    ``pending_tuples`` and ``pending_bytes`` arrived, ``held_tuples`` and ``held_bytes`` were held,
    ``evicted_early`` had to go.
    """

    stream: str
    rate: float
    tuple_bytes: float
    first_arrival_us: int | None = None
    moved_ticks: int = 0
    plan_from_us: int | None = None
    plan_byte_rate: float = 0.0
    width_s: float | None = None
    slot_offset_s: float | None = None
    slot_s: float | None = None
    period_s: float | None = None
    group_id: int | None = None
    lower_us: int | None = None
    pane_us: tuple[int, ...] = ()
    pane_tuples: tuple[int, ...] = ()
    pane_bytes: tuple[int, ...] = ()
    pending_tuples: int = 0
    pending_bytes: int = 0
    held_tuples: int = 0
    held_bytes: int = 0
    evicted_early: int = 0

    @property
    def byte_rate(self) -> float:
        """Bytes that one second of width costs now."""
        return self.rate * self.tuple_bytes

    @property
    def held_from_us(self) -> int:
        """Effective lower bound at the last tick."""
        return UNBOUNDED_US if self.lower_us is None else self.lower_us

    def lower_at_us(self, t_us: int) -> int:
        """Effective lower bound once the evictions of t are done, t in the reign of the present plan."""
        return self._lower_us(t_us, self._running_us(t_us, before=False))

    def lower_before_us(self, t_us: int) -> int:
        """Effective lower bound just before t, t in the reign of the present plan or at its end."""
        return self._lower_us(t_us, self._running_us(t_us, before=True))

    def _lower_us(self, t_us: int, running_us: int) -> int:
        return (
            self.held_from_us
            if self.width_s is None
            else max(self.held_from_us, t_us - running_us - round(self.width_s * 1e6))
        )

    def _running_us(self, t_us: int, before: bool) -> int:
        """How long the slot that holds t has been running; at its end still so just before t, no more at t."""
        slot = slot_of(self)
        if slot is None or self.plan_from_us is None:
            return 0
        offset, length, period = slot
        since = t_us - self.plan_from_us - offset
        if since <= 0:
            return 0
        phase = (since - 1) % period + 1 if before else since % period
        return phase if phase < length or (before and phase == length) else 0

    def closed(self, t_us: int) -> bool:
        """Whether the window holds nothing from t on, not even what arrives: width 0, outside of a slot."""
        slot = slot_of(self)
        if self.width_s != 0.0:
            return False
        if slot is None or self.plan_from_us is None:
            return True
        since = t_us - self.plan_from_us - slot[0]
        return since < 0 or since % slot[2] >= slot[1]

    def ledger(self, now_us: int) -> Ledger:
        """The panes held, to be worked on."""
        panes, tuples, size = (np.array(c, dtype=np.int64) for c in (self.pane_us, self.pane_tuples, self.pane_bytes))
        return Ledger(panes, tuples, size, now_us)


@dataclass(frozen=True)
class QueryState:
    """What the controller remembers of one active query.

    ``streams``, ``need_us``, ``tolerable_need_us``, ``tolerable_us``: per stream that it reads, as at the last tick.
    ``support_level``, ``slot_end_us``, ``period_us``: as in the row of ``query_plan`` in effect, from ``since_us`` on.
    ``wait_us``: K in whole ticks; ``delay_us``: EVERY. ``valid_us``: the first instant from which its answers are
    within its error, None if they never are under this plan. ``change_us``: when it gets more though no plan changes,
    since a window has filled. ``last_valid_us``: its last answer within its error by ``since_us``, its beginning if it
    had none.
    """

    id: str
    streams: tuple[str, ...]
    need_us: tuple[int, ...]
    tolerable_need_us: tuple[int, ...]
    tolerable_us: tuple[int, ...]
    wait_us: int
    delay_us: int
    support_level: QueryLevel = "unsupported"
    since_us: int = 0
    slot_end_us: int | None = None
    period_us: int | None = None
    extra_answer_us: int | None = None
    valid_us: int | None = None
    change_us: int | None = None
    last_valid_us: int = UNBOUNDED_US


@dataclass(frozen=True)
class ControllerState:
    """All that the controller carries from tick to tick.

    ``tick_us``: the last tick evaluated, None before the first. ``support_level``: the planned one. ``level_ticks``:
    for how many ticks in a row another level could be had. ``needed_c_share``: bytes that level C needed at the last
    plan as a share of those that level B did. ``memory_budget_bytes``, ``fingerprint``: as at that tick. ``queries``:
    those active.
    """

    streams: tuple[StreamState, ...]
    tick_us: int | None = None
    support_level: SupportLevel | None = None
    level_ticks: int = 0
    needed_c_share: float = 1.0
    memory_budget_bytes: float = 0.0
    fingerprint: str = ""
    queries: tuple[QueryState, ...] = field(default=())

    @classmethod
    def initial(cls, spec: ControllerSpec) -> ControllerState:
        """The state before the first tick: declared rates, nothing planned."""
        return cls(tuple(StreamState(s.name, s.rate, s.tuple_bytes) for s in spec.streams))

    def stream(self, name: str) -> StreamState:
        """The state of that stream; KeyError if there is none."""
        for stream in self.streams:
            if stream.stream == name:
                return stream
        raise KeyError(name)

    def to_arrow(self) -> pa.Table:
        """One row per stream (``STATE_SCHEMA``); what concerns all streams is repeated in each."""
        common = {name: getattr(self, name) for name in _COMMON_FIELDS}
        common["queries"] = [asdict(query) for query in self.queries]
        rows = [{f.name: getattr(s, f.name) for f in fields(StreamState)} | common for s in self.streams]
        return pa.Table.from_pylist(rows, schema=STATE_SCHEMA)

    @classmethod
    def from_arrow(cls, table: pa.Table, spec: ControllerSpec) -> ControllerState:
        """The saved state, for the streams of ``spec``: streams new to it start afresh, others are dropped."""
        rows = {row["stream"]: row for row in table.select(STATE_SCHEMA.names).to_pylist()}
        if not rows:
            return cls.initial(spec)
        saved = {name: StreamState(**_own(row, StreamState)) for name, row in rows.items()}
        common: dict[str, Any] = {name: next(iter(rows.values()))[name] for name in _COMMON_FIELDS}
        common["queries"] = tuple(QueryState(**_own(row, QueryState)) for row in common["queries"])
        return cls(tuple(saved.get(s.stream, s) for s in cls.initial(spec).streams), **common)

    def bounds(self, stream: str, rows: Sequence[PlanRow], until_us: int | None = None) -> EffectiveBounds:
        """The stream's effective bounds from this state's tick on, under its present plan and the ``rows`` after it.

        ``rows``: of any streams. Also right in the middle of a plan's reign: the slots go on in their phase.
        """
        own = [row for row in rows if row.stream == stream]
        starts = [row.effective_from_us for row in own]
        widths = [round(row.grows_to_s * 1e6) for row in own]
        evicted = {
            row.effective_from_us: row.effective_from_us - round(row.width_s * 1e6)
            for row in own
            if row.trigger == "eviction"
        }
        slots = [slot_of(row) for row in own]
        at = self.stream(stream)
        if self.tick_us is not None and at.width_s is not None and at.plan_from_us is not None:
            slot = slot_of(at)
            if slot is not None:
                slot = (slot[0] - (self.tick_us - at.plan_from_us), *slot[1:])
            starts, widths, slots = [self.tick_us, *starts], [round(at.width_s * 1e6), *widths], [slot, *slots]
        return EffectiveBounds.from_rows(starts, widths, slots, at.lower_us, until_us, evicted)

    @property
    def nbytes(self) -> int:
        """Bytes of the state as saved."""
        return int(self.to_arrow().nbytes)


def slot_of(row: PlanRow | StreamState) -> Slot | None:
    """The window's slots in µs; None if it does not swing."""
    if row.slot_offset_s is None or row.slot_s is None or row.period_s is None:
        return None
    return round(row.slot_offset_s * 1e6), round(row.slot_s * 1e6), round(row.period_s * 1e6)


def _own(row: dict[str, Any], kind: type[StreamState] | type[QueryState]) -> dict[str, Any]:
    values = {f.name: row[f.name] for f in fields(kind)}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


_WHOLE_NUMBERS = pa.list_(pa.int64())
_QUERY = pa.struct(
    [
        ("id", pa.string()),
        ("streams", pa.list_(pa.string())),
        ("need_us", _WHOLE_NUMBERS),
        ("tolerable_need_us", _WHOLE_NUMBERS),
        ("tolerable_us", _WHOLE_NUMBERS),
        ("wait_us", pa.int64()),
        ("delay_us", pa.int64()),
        ("support_level", pa.string()),
        ("since_us", pa.int64()),
        ("slot_end_us", pa.int64()),
        ("period_us", pa.int64()),
        ("extra_answer_us", pa.int64()),
        ("valid_us", pa.int64()),
        ("change_us", pa.int64()),
        ("last_valid_us", pa.int64()),
    ]
)
STATE_SCHEMA = pa.schema(
    [
        ("stream", pa.string()),
        ("rate", pa.float64()),
        ("tuple_bytes", pa.float64()),
        ("first_arrival_us", pa.int64()),
        ("moved_ticks", pa.int64()),
        ("plan_from_us", pa.int64()),
        ("plan_byte_rate", pa.float64()),
        ("width_s", pa.float64()),
        ("slot_offset_s", pa.float64()),
        ("slot_s", pa.float64()),
        ("period_s", pa.float64()),
        ("group_id", pa.int64()),
        ("lower_us", pa.int64()),
        ("pane_us", _WHOLE_NUMBERS),
        ("pane_tuples", _WHOLE_NUMBERS),
        ("pane_bytes", _WHOLE_NUMBERS),
        ("pending_tuples", pa.int64()),
        ("pending_bytes", pa.int64()),
        ("held_tuples", pa.int64()),
        ("held_bytes", pa.int64()),
        ("evicted_early", pa.int64()),
        ("tick_us", pa.int64()),
        ("support_level", pa.string()),
        ("level_ticks", pa.int64()),
        ("needed_c_share", pa.float64()),
        ("memory_budget_bytes", pa.float64()),
        ("fingerprint", pa.string()),
        ("queries", pa.list_(_QUERY)),
    ]
)
_COMMON_FIELDS = tuple(f.name for f in fields(ControllerState) if f.name != "streams")
