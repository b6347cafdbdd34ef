"""The published algorithms by name: choose one, start it, feed it."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from infra.research.published.join_aggregate.counters import (
    Gtc,
    GtcUnequal,
    Mtc,
    MtcUnequal,
    TcCount,
    TcCountUnequal,
    TcMax,
    TcMaxUnequal,
)
from infra.research.published.join_aggregate.incremental import Gic, Ic
from infra.research.published.join_aggregate.method import Method
from infra.research.published.join_aggregate.pipeline import Gpc, Mpc, Pc
from infra.research.published.join_aggregate.query import Answer, Arrival, Query

METHODS: Mapping[str, type[Method]] = {
    method.NAME: method
    for method in (
        *(Pc, Ic, TcCount, TcMax, Gpc, Gic, Gtc, Mpc, Mtc),
        *(TcCountUnequal, TcMaxUnequal, GtcUnequal, MtcUnequal),
    )
}


def start(name: str, query: Query) -> Method:
    """The state of a published algorithm before any tuple.

    Raises:
        ValueError: no such algorithm, or the query does not meet its conditions; the message says which.

    >>> start("TC-COUNT", Query((60, 30)))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    ValueError: TC-COUNT is right only if all windows have the same width, not (60, 30): ...
    """
    if name not in METHODS:
        near = get_close_matches(name.upper(), METHODS, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"no published algorithm {name!r}, of {', '.join(METHODS)}{hint}")
    return METHODS[name](query)


def step(state: Method, arrival: Arrival) -> tuple[Method, Answer]:
    """Take a tuple in and answer, as the paper does after every tuple.

    Args:
        state: from ``start`` or ``step``. It is changed in place (a copy would cost the window), and returned.
        arrival: not before an earlier one in event time; of tuples of equal time the later to come counts as later.

    Returns:
        The state; and the aggregate of the pairs whose tuples have event times in (t − width, t], t the arrival's:
        a number or NULL (None), or with GROUP BY a dict from group to number, without groups that have no pairs.

    Raises:
        ValueError: a tuple out of order, of no window, or without the value to aggregate.

    **Cost**, **Source**: see each algorithm in ``METHODS``; ``state.touched`` counts the accesses.
    **Guarantee**: exact under the conditions that ``start`` checks.

    >>> state = start("TC-COUNT", Query((10, 10)))
    >>> arrivals = Arrival(0, 1, "x"), Arrival(1, 4, "x"), Arrival(0, 9, "x"), Arrival(0, 12, "y")
    >>> [step(state, arrival)[1] for arrival in arrivals]
    [0, 1, 2, 1]
    >>> state.touched.summed, state.now_us
    (9, 12)
    """
    state.absorb(arrival)
    return state, state.answer()


def resize(state: Method, side: int, width_us: int) -> tuple[Method, Answer]:
    """Change a window's width between two arrivals: shrunk it evicts now, grown it gets nothing back.

    Raises:
        ValueError: the algorithm is right only with fixed widths (all but IC and GIC).

    >>> state, count = step(step(start("IC", Query((10, 10))), Arrival(0, 1, "x"))[0], Arrival(1, 9, "x"))
    >>> count, resize(state, 0, 5)[1], resize(state, 0, 10)[1]
    (1, 0, 0)
    """
    state.resize(side, width_us)
    return state, state.answer()
