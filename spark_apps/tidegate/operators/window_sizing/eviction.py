"""What goes first when memory is full."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tidegate.operators.window_sizing.bounds import UNBOUNDED_US
from tidegate.operators.window_sizing.ledger import Ledger
from tidegate.operators.window_sizing.needs import Floats, Integers
from tidegate.operators.window_sizing.spec import SizedQuery
from tidegate.operators.window_sizing.triggers import Widths


@dataclass(frozen=True, eq=False)
class Worth:
    """What the queries on one window lose with its panes.

    Arguments, int64/float64[q], the queries that read the window: ``need_us`` and ``tolerable_us``, the widths that
    they need; ``weight``; ``priority``. ``byte_rate``: bytes that a second of width costs.
    """

    need_us: Integers
    tolerable_us: Integers
    weight: Floats
    priority: Integers
    byte_rate: float

    @classmethod
    def of(cls, stream: str, queries: Sequence[SizedQuery], widths: Mapping[str, Widths], byte_rate: float) -> Worth:
        """What these queries lose with the stream's panes; ``widths``: query → what it needs."""
        readers = [(query, *widths[query.id][stream]) for query in queries if stream in query.ranges_s]
        return cls(
            need_us=np.array([exact for _, exact, _ in readers], dtype=np.int64),
            tolerable_us=np.array([least for *_, least in readers], dtype=np.int64),
            weight=np.array([query.weight for query, *_ in readers], dtype=np.float64),
            priority=np.array([query.priority for query, *_ in readers], dtype=np.int64),
            byte_rate=byte_rate,
        )

    def keys(self, age_us: Integers) -> tuple[Floats, Floats]:
        """Two sort keys of panes of these ages, ascending in how much is lost with them; both fall as age grows.

        Ranks: 0, no query reaches the pane; 1, some query would not be exact, by the gain per byte of level B; beyond,
        some query would not be within its error, by the largest priority among these.
        """
        gain = np.zeros(len(age_us))
        rank = np.zeros(len(age_us))
        for need, tolerable, weight, priority in zip(
            self.need_us, self.tolerable_us, self.weight, self.priority, strict=True
        ):
            gain += np.where(need > age_us, weight, 0.0)
            rank = np.maximum(rank, np.where(need > age_us, 1.0, 0.0))
            rank = np.maximum(rank, np.where(tolerable > age_us, _PRIORITY_RANK + float(priority), 0.0))
        return rank, gain / max(self.byte_rate, 1e-300)


_PRIORITY_RANK = 2.0 + 2.0**40


def bounds_within(
    ledgers: Sequence[Ledger], worths: Sequence[Worth], budget_bytes: float, now_us: int, tick_us: int
) -> dict[int, int]:
    """Which windows must let go of what for the rest to fit: index → new lower bound, µs.

    Idea: of all panes held, those that mend least go first: beyond every query's need, then in reverse order of level
    B's gains, then those of the queries of least priority; of equals the older, then of the earlier stream.
    """
    panes, bytes_, owner, rank, gain = [], [], [], [], []
    for index, (ledger, worth) in enumerate(zip(ledgers, worths, strict=True)):
        held, size = ledger.held_panes
        own_rank, own_gain = worth.keys(now_us - held)
        panes.append(held)
        bytes_.append(size)
        owner.append(np.full(len(held), index, dtype=np.int64))
        rank.append(own_rank)
        gain.append(own_gain)
    pane, size, window = np.concatenate(panes), np.concatenate(bytes_), np.concatenate(owner)
    order = np.lexsort((window, pane, np.concatenate(gain), np.concatenate(rank)))
    excess = int(size.sum()) - budget_bytes
    gone = order[: int(np.searchsorted(np.cumsum(size[order]), excess)) + 1] if excess > 0 else order[:0]
    bounds: dict[int, int] = {}
    for index in gone.tolist():
        w = int(window[index])
        bounds[w] = max(bounds.get(w, UNBOUNDED_US), int(pane[index]) + tick_us)
    return bounds
