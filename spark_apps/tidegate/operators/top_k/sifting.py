"""What a top-k query can ever need of a stretch of a stream, whenever it is answered: a few in a hundred tuples."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidegate.operators.arrivals import int64s
from tidegate.operators.top_k.panes import contenders
from tidegate.operators.top_k.ranking import best_first, group_codes, merits
from tidegate.operators.top_k.spec import Spec

_STEPS_A_PANE = 8
_MOST_LAG = 1 << 16


def sifted(spec: Spec, tuples: pa.Table) -> pa.Table:
    """Those of the tuples that may be in an answer, with few others.

    **Idea.** Windows are unions of panes. Once k better tuples of its pane and group have arrived, a tuple is in no
    answer, and no answer over a pane is given before the pane's end. So of those that arrive before it the k best
    remain; later ones remain if they are among the k best by then. When that is, is put into steps that double in
    length: a tuple is compared with those of the steps before its own. No schedule, no slack: what remains serves every
    answer and the truth alike, and the answers over what remains of each of several stretches are the answers over all.

    Args:
        spec: what to answer.
        tuples: rows of ``spec.input_schema`` in any order; ``arrival_us`` is the effective arrival time.

    Returns:
        The remaining rows, in their order.

    **Cost.** That of ``panes.contenders``, some 30 ns a tuple; of n tuples a pane some k · (1 + log2 of the time that
    the last are late, in eighths of the pane) remain, if scores do not depend on arrival.

    **Guarantee.** The answers over what remains are those over all tuples.

    >>> from tidegate.operators.top_k import Term
    >>> spec = Spec(1, (Term("o0"),), pa.schema([("o0", pa.float64())]), pane_us=10, alias="d")
    >>> times = {"event_us": [3, 4, 9, 9], "arrival_us": [3, 9, 16, 90], "event_id": list("abcd")}
    >>> sifted(spec, pa.table({**times, "o0": [2.0, 1.0, 9.0, 8.0]})).column("event_id").to_pylist()
    ['a', 'c']
    """
    if tuples.num_rows <= spec.k:
        return tuples
    event_us, arrival_us = int64s(tuples.column("event_us")), int64s(tuples.column("arrival_us"))
    pane = event_us // spec.pane_us
    step_us = max(spec.pane_us // _STEPS_A_PANE, 1)
    late_us = np.maximum(arrival_us - (pane + 1) * spec.pane_us, 0)
    lag = np.minimum(-(-late_us // step_us), _MOST_LAG)
    (group,), groups = group_codes(spec, tuples)
    unit, units = _dense(pane, group, groups)
    row = contenders(unit, units, lag, merits(spec, tuples), spec.k)
    left = tuples.take(pa.array(row))
    # Again, with whole orders in place of merits, which do not tell all tuples apart.
    place = np.empty(len(row))
    place[best_first(spec, left)] = np.arange(len(row), dtype=np.float64)
    return left.take(pa.array(contenders(unit[row], units, lag[row], -place, spec.k))).combine_chunks()


def _dense(pane: np.ndarray, group: np.ndarray, groups: int) -> tuple[np.ndarray, int]:
    """One number from 0 on for each pane and group."""
    low, high = int(pane.min()), int(pane.max())
    if (high - low + 1) * groups <= len(pane) + (1 << 12):
        return (pane - low) * groups + group, (high - low + 1) * groups
    # A forged clock leaves few panes far apart.
    panes, place = np.unique(pane, return_inverse=True)
    units, unit = np.unique(place * groups + group, return_inverse=True)
    return unit.astype(np.int64), len(units)
