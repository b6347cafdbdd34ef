"""What the published algorithms are asked, what they are fed, and what they answer."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Literal

Function = Literal["count", "sum", "avg", "max", "min"]
Group = tuple[Hashable, ...]
# Numbers of COUNT, SUM and AVG, any comparable value of MAX and MIN, None for NULL; by group if there are groups.
Answer = Any


@dataclass(frozen=True)
class Query:
    """One aggregate over the join of windows on one key (which may be a tuple of columns).

    Args:
        widths_us: per window its width in microseconds.
        function: the aggregate.
        value_of: the window whose attribute is aggregated; None for COUNT(*).
        groups: the windows whose group attribute is grouped by; none without GROUP BY.
        having: which groups are emitted, by their aggregate; None for all.
        buckets: M, into how many buckets each window is hashed.

    >>> Query((10, 10), "sum")
    Traceback (most recent call last):
        ...
    ValueError: Query: SUM needs value_of, the window whose attribute is aggregated; COUNT has none
    """

    widths_us: tuple[int, ...]
    function: Function = "count"
    value_of: int | None = None
    groups: tuple[int, ...] = ()
    having: Callable[[Any], bool] | None = None
    buckets: int = 20

    def __post_init__(self) -> None:
        """Refuse a query that contradicts itself."""
        if not self.widths_us or min(self.widths_us) < 1:
            raise ValueError(f"Query: every window needs a width of at least 1 microsecond, not {self.widths_us}")
        if (self.function == "count") != (self.value_of is None):
            raise ValueError(
                f"Query: {self.function.upper()} needs value_of, the window whose attribute is aggregated; "
                "COUNT has none"
            )
        unknown = {*self.groups, *(() if self.value_of is None else (self.value_of,))} - set(range(len(self.widths_us)))
        if unknown:
            raise ValueError(f"Query: no window {sorted(unknown)} among {len(self.widths_us)}")
        if self.having is not None and not self.groups:
            raise ValueError("Query: HAVING without GROUP BY")
        if self.buckets < 1:
            raise ValueError("Query: at least 1 hash bucket")

    def answer(self, pairs: int, total: int) -> Answer:
        """COUNT, SUM or AVG of so many pairs with such a sum: COUNT of none is 0, the others are NULL."""
        if self.function == "count":
            return pairs
        if pairs == 0:
            return None
        return total if self.function == "sum" else total / pairs

    def better(self, one: Any, other: Any) -> Any:
        """The greater of two values for MAX, the lesser for MIN; None is "none yet" and never wins."""
        if one is None or other is None:
            return other if one is None else one
        return max(one, other) if self.function == "max" else min(one, other)


@dataclass(frozen=True)
class Arrival:
    """A tuple that arrives on a window's stream.

    Args:
        side: index of the window.
        event_us: event time in microseconds; never less than that of an earlier arrival.
        key: the join key; None, or a tuple of columns with a None among them, joins nothing.
        value: the aggregated attribute, if the query aggregates one of this window.
        group: the group attribute, if the query groups by one of this window; NULLs are one group.
    """

    side: int
    event_us: int
    key: Hashable
    value: Any = None
    group: Hashable = None
