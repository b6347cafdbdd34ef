"""What the published algorithms share: their conditions, and their state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from infra.research.published.join_aggregate.query import Answer, Arrival, Function, Query
from infra.research.published.join_aggregate.windows import TUPLE_BYTES, GroupList, HashedWindow, Item, Touched

ADDITIVE: tuple[Function, ...] = ("count", "sum", "avg")
EXTREME: tuple[Function, ...] = ("max", "min")


class Method(ABC):
    """An algorithm's state between two arrivals, and its conditions.

    ``windows``: the tuples held. ``touched``: accesses so far. ``now_us``: event time of the last arrival.
    """

    NAME: ClassVar[str]
    FUNCTIONS: ClassVar[tuple[Function, ...]] = ADDITIVE
    GROUPED: ClassVar[bool] = False
    MANY_WINDOWS: ClassVar[bool] = False
    NEEDS_EQUAL_WIDTHS: ClassVar[bool] = False
    TAKES_CHANGING_WIDTHS: ClassVar[bool] = False

    def __init__(self, query: Query) -> None:
        self._refuse(query)
        self.query = query
        self.touched = Touched()
        self.windows = [
            HashedWindow(side, width_us, query.buckets, self.touched) for side, width_us in enumerate(query.widths_us)
        ]
        self.now_us: int | None = None

    def _refuse(self, query: Query) -> None:
        name, windows = self.NAME, len(query.widths_us)
        if query.function not in self.FUNCTIONS:
            known = ", ".join(function.upper() for function in self.FUNCTIONS)
            raise ValueError(f"{name} answers {known}, not {query.function.upper()}")
        if windows < 2 or (windows > 2 and not self.MANY_WINDOWS):
            raise ValueError(f"{name} joins {'two windows or more' if self.MANY_WINDOWS else 'two windows'}: {windows}")
        if bool(query.groups) != self.GROUPED:
            raise ValueError(f"{name} {'needs' if self.GROUPED else 'has no'} GROUP BY")
        if self.NEEDS_EQUAL_WIDTHS and len(set(query.widths_us)) > 1:
            raise ValueError(
                f"{name} is right only if all windows have the same width, not {query.widths_us}: it charges a pair to "
                f"its older tuple, which must be the one that expires first; {name}-UNEQUAL charges that one"
            )

    def absorb(self, arrival: Arrival) -> None:
        """Take a tuple in, without answering."""
        if not 0 <= arrival.side < len(self.windows):
            raise ValueError(f"no window {arrival.side} among {len(self.windows)}")
        if self.now_us is not None and arrival.event_us < self.now_us:
            raise ValueError(
                f"{self.NAME} needs tuples in order of event time (Definition 1 of the paper): {arrival.event_us} "
                f"after {self.now_us}"
            )
        if arrival.side == self.query.value_of:
            self._refuse_value(arrival.value)
        self.now_us = arrival.event_us
        self._absorb(arrival)

    def _refuse_value(self, value: Any) -> None:
        if value is None:
            raise ValueError(f"{self.NAME} has no NULL in the aggregated attribute: filter it before the window")
        if self.query.function in ("sum", "avg") and not isinstance(value, int):
            raise ValueError(
                f"{self.NAME}: {self.query.function.upper()} is of integers, not {value!r}: by add and subtract a sum "
                "of doubles drifts"
            )

    @abstractmethod
    def _absorb(self, arrival: Arrival) -> None: ...

    @abstractmethod
    def answer(self) -> Answer:
        """The aggregate just after the last arrival."""

    @property
    def published_bytes(self) -> int:
        """Memory by the paper's count: the tuples, and IC's expired ones, TC's counters, PC's results."""
        return TUPLE_BYTES * sum(map(len, self.windows)) + self._extra_bytes()

    @abstractmethod
    def _extra_bytes(self) -> int: ...

    def resize(self, side: int, width_us: int) -> None:
        """Change a window's width: what no longer fits leaves now, nothing comes back."""
        if not self.TAKES_CHANGING_WIDTHS:
            raise ValueError(
                f"{self.NAME} is right only while widths stay as they are: pairs are charged by which tuple expires "
                "first, and that can change; IC and GIC take changing widths"
            )
        if width_us < 1:
            raise ValueError(f"a width is at least 1 microsecond, not {width_us}")
        if not 0 <= side < len(self.windows):
            raise ValueError(f"no window {side} among {len(self.windows)}")
        self.windows[side].width_us = width_us

    def _expired(self, now_us: int) -> list[list[Item]]:
        """Remove what has expired, and return it per window."""
        return [window.expire(now_us) for window in self.windows]

    def _value(self, one: Item, other: Item) -> Any:
        """The aggregated attribute of a pair; 0 for COUNT."""
        if self.query.value_of is None:
            return 0
        return one.value if one.side == self.query.value_of else other.value

    def _emitted(self, glist: GroupList) -> dict[Any, Answer]:
        """The list of groups as an answer, HAVING applied."""
        self.touched.listed += len(glist.nodes)
        answers = {group: self.query.answer(pairs, total) for group, (pairs, total) in glist.nodes}
        having = self.query.having
        return answers if having is None else {group: one for group, one in answers.items() if having(one)}
