"""What a suite is, and how an expectation carries what its results must say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from expectations.policy import Policy
from expectations.tables import Cases
from tidegate.declarations.models import Pipeline


@dataclass(frozen=True)
class Suite:
    """One topic.

    ``frame``: the rows that are judged, made from the intervals' tables. ``expectations``: Great Expectations'
    expectations on them, given its module ``expectations`` (imported late, for it is slow), pipeline and policy.
    """

    name: str
    about: str
    frame: Callable[[Cases, Policy], pa.Table]
    expectations: Callable[[Any, Pipeline, Policy], list[Any]]


class Rules:
    """Makes the expectations of one suite with their names, severities and what to report."""

    def __init__(self, gxe: Any, policy: Policy):
        self._gxe = gxe
        self._policy = policy
        self.made: list[Any] = []

    def _add(self, kind: str, rule: str, says: str, meta: dict[str, Any], **arguments: Any) -> None:
        make = getattr(self._gxe, kind)
        severity = self._policy.severity(rule)
        self.made.append(make(**arguments, severity=severity, description=says, meta={"rule": rule, **meta}))

    def at_most(self, rule: str, says: str, column: str, most: float, repeatable: bool = True) -> None:
        """No value of ``column`` above a number."""
        meta = {"measured": column, "promised": most, "relation": "at most", "repeatable": repeatable}
        self._add("ExpectColumnValuesToBeBetween", rule, says, meta, column=column, max_value=most)

    def between(self, rule: str, says: str, column: str, least: float, most: float, above: bool = False) -> None:
        """Every value of ``column`` in [least, most], or in (least, most] if ``above``."""
        meta = {"measured": column, "promised": most, "relation": "at most", "repeatable": True}
        arguments = {"column": column, "min_value": least, "max_value": most, "strict_min": above}
        self._add("ExpectColumnValuesToBeBetween", rule, says, meta, **arguments)

    def pair(self, rule: str, says: str, larger: str, smaller: str, measured: str, repeatable: bool = True) -> None:
        """In every row ``larger`` ≥ ``smaller``; ``measured`` is the one of the two that is judged by the other."""
        promised = smaller if measured == larger else larger
        relation = "at least" if measured == larger else "at most"
        meta = {"measured": measured, "promised": promised, "relation": relation, "repeatable": repeatable}
        arguments = {"column_A": larger, "column_B": smaller, "or_equal": True}
        self._add(
            "ExpectColumnPairValuesAToBeGreaterThanB",
            rule,
            says,
            meta,
            **arguments,
            ignore_row_if="either_value_is_missing",
        )

    def equal(self, rule: str, says: str, measured: str, promised: str) -> None:
        """In every row the two columns are equal."""
        meta = {"measured": measured, "promised": promised, "relation": "exactly", "repeatable": True}
        arguments = {"column_A": measured, "column_B": promised, "ignore_row_if": "either_value_is_missing"}
        self._add("ExpectColumnPairValuesToBeEqual", rule, says, meta, **arguments)

    def unique(self, rule: str, says: str, columns: list[str]) -> None:
        """No two rows agree in all of ``columns``."""
        meta = {"measured": None, "promised": None, "relation": "", "repeatable": True}
        self._add("ExpectCompoundColumnsToBeUnique", rule, says, meta, column_list=columns)

    def in_set(self, rule: str, says: str, column: str, values: list[str]) -> None:
        """Every value of ``column`` is one of ``values``."""
        meta = {"measured": None, "promised": None, "relation": "", "repeatable": True}
        self._add("ExpectColumnValuesToBeInSet", rule, says, meta, column=column, value_set=values)
