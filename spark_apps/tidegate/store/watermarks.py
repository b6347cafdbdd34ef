"""Which interval a landed record is in: the announcements of a pipeline's streams, and the rule that reads them.

An announcement (batch b, watermark w) says: batches up to b were looked at, and all arrivals before w are known. It is
made before anything is computed from it, and never changes. A record that lands behind it does not arrive before w.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.declarations.errors import UserError
from tidegate.declarations.models import from_us
from tidegate.store.append_table import AppendTable
from tidegate.store.places import Place
from tidegate.values.types import TIMESTAMP

TABLE = "watermarks"
SCHEMA = pa.schema(
    [
        ("stream", pa.string()),
        ("batch", pa.int64()),
        ("watermark", TIMESTAMP),
        ("by", pa.string()),
        ("announced_at", TIMESTAMP),
    ]
)
ANEW = "anew"
_TRIES = 100
Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Announcements:
    """Those of one stream: ``batches`` and ``watermarks_us``, both ascending."""

    batches: tuple[int, ...] = ()
    watermarks_us: tuple[int, ...] = ()

    @property
    def newest_us(self) -> int | None:
        """The highest watermark; None before the first."""
        return self.watermarks_us[-1] if self.watermarks_us else None

    def batch_of(self, watermark_us: int) -> int | None:
        """The batches up to which whoever needs a watermark has to look; None if it has not been announced."""
        place = int(np.searchsorted(self.watermarks_us, watermark_us))
        return self.batches[place] if place < len(self.batches) else None

    def up_to(self, watermark_us: int) -> Announcements:
        """Those that decide which records arrive before a watermark."""
        count = int(np.searchsorted(self.watermarks_us, watermark_us)) + 1
        return Announcements(self.batches[:count], self.watermarks_us[:count])

    def before_us(self, batches: Int64s) -> Int64s:
        """The highest watermark announced at a batch before each: int64[n]; before the first, less than any instant."""
        if not self.batches:
            return np.full(len(batches), _NEVER, np.int64)
        marks = np.concatenate([[_NEVER], np.array(self.watermarks_us, np.int64)])
        return np.asarray(marks[np.searchsorted(np.array(self.batches, np.int64), batches, side="left")])

    def arrivals_us(self, batches: Int64s, arrivals_us: Int64s, unplaced: Bools) -> Int64s:
        """When records arrived: int64[n].

        Args:
            batches: int64[n], which each landed in.
            arrivals_us: int64[n], by their source.
            unplaced: bool[n], of which the source's arrival counts for nothing.
        """
        before = self.before_us(batches)
        first = self.watermarks_us[0] - 1 if self.watermarks_us else _NEVER
        return np.where(unplaced, np.where(before == _NEVER, first, before), np.maximum(arrivals_us, before))

    def bounds_us(
        self,
        batches: tuple[int, int],
        arrivals_us: tuple[int, int] | None,
        landed_us: tuple[int, int],
        max_early_s: int,
        without: int,
    ) -> tuple[int, int]:
        """Between which instants records arrived, of a file of which its log says this."""
        ends = np.array(batches, np.int64)
        bounds: list[int] = []
        if arrivals_us is not None:
            bounds += self.arrivals_us(ends, np.array(arrivals_us, np.int64), np.zeros(2, dtype=bool)).tolist()
        if without or (arrivals_us is not None and arrivals_us[1] > landed_us[0] + max_early_s * 1_000_000):
            bounds += self.arrivals_us(ends, np.zeros(2, np.int64), np.ones(2, dtype=bool)).tolist()
        return min(bounds), max(bounds)


_NEVER = -(2**62)


@dataclass
class Watermarks:
    """The table ``watermarks`` of one pipeline, in ``folder``."""

    folder: Place

    def __post_init__(self) -> None:
        self.table = AppendTable(self.folder / TABLE, SCHEMA)

    def read(self) -> dict[str, Announcements]:
        """Stream → its announcements, of the newest epoch."""
        rows = self.table.rows()
        streams: dict[str, list[tuple[int, int]]] = {}
        marks = rows.column("watermark").cast(pa.int64()).to_pylist()
        for stream, batch, mark in zip(
            rows.column("stream").to_pylist(), rows.column("batch").to_pylist(), marks, strict=True
        ):
            if mark is None:
                streams[stream] = []  # a new epoch
            else:
                streams.setdefault(stream, []).append((batch, mark))
        return {
            stream: Announcements(tuple(b for b, _ in pairs), tuple(w for _, w in pairs))
            for stream, pairs in streams.items()
        }

    def announce(self, batches: Mapping[str, int], watermark_us: int, by: str) -> dict[str, Announcements]:
        """Announce a watermark for each stream that has none as high; what all have announced now.

        ``batches``: stream → its newest batch that has landed, as looked up before this. All in one version, which is
        the one after that which was read: whoever is second reads again.

        Raises:
            UserError: too many others announce at the same time.
        """
        for _ in range(_TRIES):
            known = self.read()
            rows = []
            for stream, batch in sorted(batches.items()):
                newest = known.get(stream, Announcements())
                if newest.newest_us is None or newest.newest_us < watermark_us:
                    # A batch never descends: another has looked at more.
                    at = max(batch, newest.batches[-1] if newest.batches else batch)
                    rows.append({"stream": stream, "batch": at, "watermark": from_us(watermark_us)})
            if not rows:
                return known
            now = datetime.now(UTC)
            table = pa.Table.from_pylist([{**row, "by": by, "announced_at": now} for row in rows], schema=SCHEMA)
            if self.table.append(table):
                return self.read()
        raise UserError(f"{self.folder / TABLE} is being written by too many at once: run this again")

    def begin_anew(self, stream: str, batch: int) -> None:
        """Begin a new epoch of a stream's announcements: none of those that were made holds any more."""
        row = {"stream": stream, "batch": batch, "watermark": None, "by": ANEW, "announced_at": datetime.now(UTC)}
        self.table.add(pa.Table.from_pylist([row], schema=SCHEMA))
