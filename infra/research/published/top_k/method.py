"""What the published methods share: counters, the window that is answered next, and tuples that come too early."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from infra.research.published.top_k.query import Arrival, Options, Query, Rank


@dataclass(slots=True)
class Touched:
    """How often a tuple held was accessed; unlike time, this does not depend on the machine.

    ``written``: tuples taken into a structure. ``compared``: tuples held compared with a new one. ``walked``: passed to
    find the next least of a window. ``expired``: looked at when a window went. ``searched``: read to answer from
    scratch. ``buffered``: accesses of the heap of a sorting buffer. ``recorded``: accesses to record what other slacks
    would have answered, or how much they would have covered.
    """

    written: int = 0
    compared: int = 0
    walked: int = 0
    expired: int = 0
    searched: int = 0
    buffered: int = 0
    recorded: int = 0

    @property
    def total(self) -> int:
        """All accesses."""
        return sum(getattr(self, one.name) for one in fields(self))


class Method(ABC):
    """A method's state between two arrivals.

    ``window``: the next to answer; windows are answered one after the other. ``slack_us``: K now; the window is
    answered once its end lies so far back. ``dropped``: tuples that were in no answer and can be in none.
    """

    NAME: ClassVar[str]

    def __init__(self, query: Query, window: int, options: Options) -> None:
        self.query = query
        self.options = options
        self.window = window
        self.slack_us = 0
        self.dropped = 0
        self.touched = Touched()

    @abstractmethod
    def absorb(self, arrival: Arrival) -> None:
        """Take a tuple in; arrivals ascend."""

    @abstractmethod
    def answer(self, emit_us: int) -> tuple[Any, ...]:
        """The ids of the window's winners, the best first; the next window becomes the one to answer."""

    @property
    @abstractmethod
    def held(self) -> int:
        """How many tuples are held, a tuple in two structures twice."""


class Slidewise(Method):
    """A method that takes whole slides: tuples of slides that begin after the window to answer are set aside."""

    def __init__(self, query: Query, window: int, options: Options) -> None:
        super().__init__(query, window, options)
        self._early: dict[int, list[Rank]] = {}

    def absorb(self, arrival: Arrival) -> None:
        """Take a tuple in, set it aside, or treat it as late."""
        slide = arrival.event_us // self.query.slide_us
        if slide > self.window:
            self._set_aside(slide, arrival.rank)
        elif slide == self.window:
            self._take(arrival.rank, slide)
        else:
            self._take_late(arrival.rank, slide)

    def answer(self, emit_us: int) -> tuple[Any, ...]:
        """The winners; then the window goes, and the next slide's tuples come in."""
        ids = tuple(rank[2] for rank in self._best())
        self._expire()
        self.window += 1
        for rank in self._early.pop(self.window, ()):
            self._take(rank, self.window)
        return ids

    def _set_aside(self, slide: int, rank: Rank) -> None:
        self.touched.written += 1
        self._early.setdefault(slide, []).append(rank)

    @property
    def _aside(self) -> int:
        return sum(map(len, self._early.values()))

    @abstractmethod
    def _take(self, rank: Rank, slide: int) -> None: ...

    @abstractmethod
    def _take_late(self, rank: Rank, slide: int) -> None: ...

    @abstractmethod
    def _best(self) -> Sequence[Rank]: ...

    @abstractmethod
    def _expire(self) -> None: ...
