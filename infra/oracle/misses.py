"""What ON MISS must write, row by row, from answers, truth and accuracy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

from infra.oracle.answers import Row

from tidegate.declarations.models import Query
from tidegate.values.types import is_number


def kept(answers: Sequence[Row], accuracy: Sequence[Row]) -> list[Row]:
    """Of a query's answers those whose window kept the promise."""
    good = {row["window_end"] for row in accuracy if row["kept"]}
    return [row for row in answers if row["window_end"] in good]


def corrections(
    query: Query, answers: Sequence[Row], truth: Sequence[Row], accuracy: Sequence[Row], horizon: timedelta
) -> list[Row]:
    """What was answered beside what is true, of the windows that missed the promise; what one lacks is NULL."""
    missed = {row["window_end"] for row in accuracy if row["kept"] is False}
    answered = _by_key(query, [row for row in answers if row["window_end"] in missed])
    true = _by_key(query, [row for row in truth if row["window_end"] in missed])
    emitted = {row["window_end"]: row["emitted_at"] for row in answers}
    found = []
    for key in {**answered, **true}:
        before, now = answered.get(key, {}), true.get(key, {})
        either = before or now
        end = either["window_end"]
        row = {"window_end": end, "emitted_at": emitted.get(end), "known_at": end + horizon}
        row |= {name: either[name] for name in query.answer_keys}
        for name, kind in query.corrected.items():
            said, known = before.get(name), now.get(name)
            row |= {f"{name}_answered": said, f"{name}_true": known}
            if is_number(kind):
                there = said is not None and known is not None
                row[f"{name}_difference"] = _difference(said, known) if there else None
        found.append(row)
    return found


def _difference(said: Any, known: Any) -> float:
    if isinstance(said, Decimal):
        return float(Fraction(known) - Fraction(said))
    return float(known - said)


def _by_key(query: Query, rows: Sequence[Row]) -> dict[tuple[Any, ...], Row]:
    return {(row["window_end"], *(_told_apart(row[name]) for name in query.answer_keys)): row for row in rows}


def _told_apart(value: Any) -> Any:
    """NULL and NaN are keys; 0.0 and -0.0 are one."""
    return "NaN" if isinstance(value, float) and math.isnan(value) else (type(value).__name__, value)
