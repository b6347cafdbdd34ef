"""Sessions by definition, to test against: at each instant of emission, from the tuples that have arrived."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tidegate.operators.sessions.finding import Spec

Row = tuple[Any, int, int]
"""Key, event and effective arrival of a tuple; microseconds."""


def sessions(spec: Spec, events_us: Sequence[int]) -> list[tuple[int, int]]:
    """First and last event of each session of a key's events."""
    whole: list[list[int]] = []
    for event_us in sorted(events_us):
        if whole and event_us - whole[-1][-1] <= spec.gap_us:
            whole[-1].append(event_us)
        else:
            whole.append([event_us])
    found = []
    for chain in whole:
        parts = [[chain[0]]]
        for before_us, event_us in zip(chain, chain[1:], strict=False):
            multiple_us = event_us // spec.longest_us * spec.longest_us
            if before_us < multiple_us and chain[0] <= multiple_us - spec.longest_us:
                parts.append([])
            parts[-1].append(event_us)
        found += [(part[0], part[-1]) for part in parts]
    return found


def answers(
    spec: Spec, rows: Sequence[Row], wait_us: Callable[[int], int], from_us: int, until_us: int
) -> list[tuple[Any, int, int, int, list[int]]]:
    """Key, start, end, instant of emission and rows of each session that is answered in [from, until).

    Args:
        spec: what a session is.
        rows: the tuples.
        wait_us: the wait in effect at the end of a session.
        from_us: the first instant that counts.
        until_us: the first that does not any more.
    """
    found = []
    for key, last_us in sorted({row[:2] for row in rows}, key=repr):
        end_us = last_us + spec.gap_us
        emit_us = end_us + wait_us(end_us)
        seen = [i for i, (own, _, arrival_us) in enumerate(rows) if own == key and arrival_us <= emit_us]
        for start_us, newest_us in sessions(spec, [rows[i][1] for i in seen]):
            if newest_us == last_us and from_us <= emit_us < until_us:
                found.append((key, start_us, end_us, emit_us, [i for i in seen if start_us <= rows[i][1] <= last_us]))
    return found
