"""Up to which instant of arrival time everything is known, from the files that have landed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import pyarrow as pa

from tidegate.declarations.models import Stream, from_us
from tidegate.sources.files import matches_several, pattern_unit


@dataclass(frozen=True)
class Landed:
    """One file that has landed and been read.

    ``period_start_us``, ``period_end_us``: the period that its name says, None where the pattern names no time.
    ``first_us``, ``last_us``: the arrivals that its records can have; None if it has none. Where the pattern names no
    time these are found in the file. ``trusted_us``: the newest of them that is not later than the landing itself: a
    record that claims to have arrived later is taken in when that time comes, and says nothing of how far it has come.
    """

    batch: int
    stream: str
    path: str
    bytes: int
    modified_us: int
    period_start_us: int | None
    period_end_us: int | None
    status: str
    first_us: int | None
    last_us: int | None
    trusted_us: int | None

    @property
    def known_until_us(self) -> int:
        """How far the file alone says that arrival time has come."""
        if self.period_end_us is not None:
            return self.period_end_us
        return -(2**62) if self.trusted_us is None else self.trusted_us

    def arrived_in(self, start_us: int, end_us: int) -> bool:
        """Whether any of its records can have arrived in [start, end)."""
        return (
            self.first_us is not None
            and self.last_us is not None
            and self.first_us < end_us
            and self.last_us >= start_us
        )


LANDED_SCHEMA = pa.schema(
    [
        ("batch", pa.int64()),
        ("stream", pa.string()),
        ("path", pa.string()),
        ("bytes", pa.int64()),
        ("modified_us", pa.int64()),
        ("period_start_us", pa.int64()),
        ("period_end_us", pa.int64()),
        ("status", pa.string()),
        ("first_us", pa.int64()),
        ("last_us", pa.int64()),
        ("trusted_us", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Known:
    """Everything that arrived on a stream before ``until_us`` is known; ``waits_for``: the file that would say more."""

    until_us: int
    waits_for: str


def known_until(
    stream: Stream, landed: Sequence[Landed], since_us: int, given_up_us: int, empty: Callable[[str], bool]
) -> Known:
    """Up to which arrival time a stream is known, if it was up to ``since_us``.

    A file of a period is complete when it lands, and then everything before the period's end is known. Where several
    files may share a period (a ``*`` in the pattern) only a file of a later period says that none is missing. Where
    the pattern names no time, the newest arrival speaks for all before it.

    ``given_up_us``: what has not landed for periods that end by then does not come any more. ``empty``: whether what
    has landed under the pattern of a period is a file without content.
    """
    unit = pattern_unit(stream.path)
    if unit is None:
        newest_us = max((f.known_until_us for f in landed), default=since_us)
        return Known(max(since_us, newest_us, given_up_us), f"a file {stream.path} with a later arrival")
    unit_us = unit // timedelta(microseconds=1)
    periods = {f.period_start_us for f in landed}
    newest = 2**62
    if matches_several(stream.path):
        trusted = [f.period_start_us for f in landed if believable(stream, f) and f.period_start_us is not None]
        newest = max(trusted, default=since_us)
    at_us = since_us // unit_us * unit_us
    while (
        at_us + unit_us <= given_up_us
        or at_us < newest
        and (at_us in periods or empty(from_us(at_us).strftime(stream.path)))
    ):
        at_us += unit_us
    return Known(max(since_us, at_us), from_us(at_us).strftime(stream.path))


def believable(stream: Stream, file: Landed) -> bool:
    """Whether the file does not speak of a period that lay in the future when it landed."""
    return file.period_start_us is None or file.period_start_us <= file.modified_us + stream.max_early_s * 1_000_000


class Patience:
    """How long an idle stream holds back the watermark: wall time after arrival time has passed it.

    Arrival time is how far any stream has come. Nothing that is computed depends on the wall's time, only when.
    """

    def __init__(self, patience_s: float):
        self.patience_s = patience_s
        self._passed: deque[tuple[float, int]] = deque()
        self._given_up_us = -(2**62)

    def given_up_us(self, stream: Stream) -> int:
        """What lacks of the stream before this instant counts as missing; ``missing_file: error`` waits for ever."""
        if stream.missing_file == "error" and pattern_unit(stream.path) is not None:
            return -(2**62)
        return self._given_up_us

    def observe(self, newest_us: int, wall_s: float) -> None:
        """Take note of how far arrival time has come, at a time of the wall."""
        if not self._passed or newest_us > self._passed[-1][1]:
            self._passed.append((wall_s, newest_us))
        while self._passed and self._passed[0][0] + self.patience_s <= wall_s:
            self._given_up_us = max(self._given_up_us, self._passed[0][1])
            if len(self._passed) == 1:
                break
            self._passed.popleft()


@dataclass(frozen=True)
class Clock:
    """The arrival clock: every stream is known up to ``until_us``; ``newest_us``: how far the foremost has come.

    ``waits_for``: (stream, file) of those that hold it back.
    """

    until_us: int
    newest_us: int
    waits_for: tuple[tuple[str, str], ...]


def arrival_clock(
    streams: Iterable[Stream],
    landed: Sequence[Landed],
    since_us: int,
    patience: Patience,
    wall_s: float,
    empty: Callable[[str], bool] = lambda pattern: False,
) -> Clock:
    """The least, over the streams, of the instants up to which they are known; it was at ``since_us``."""
    of: Mapping[str, tuple[Stream, list[Landed]]] = {s.name: (s, []) for s in streams}
    for file in landed:
        of[file.stream][1].append(file)
    newest_us = max(
        (f.known_until_us for stream, files in of.values() for f in files if believable(stream, f)), default=since_us
    )
    newest_us = max(newest_us, since_us)
    patience.observe(newest_us, wall_s)
    known = {
        name: known_until(stream, files, since_us, patience.given_up_us(stream), empty)
        for name, (stream, files) in of.items()
    }
    until_us = min(k.until_us for k in known.values())
    waits_for = tuple((name, k.waits_for) for name, k in known.items() if k.until_us == until_us)
    return Clock(until_us, newest_us, waits_for)
