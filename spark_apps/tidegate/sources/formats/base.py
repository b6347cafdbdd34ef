"""What a file format is: the seam of file formats.

A format cuts files into pieces, reads a piece as batches of records, counts its records by other means, and looks
records up again. It never says which of them are valid.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.declarations.models import Stream
from tidegate.sources.files import Piece, SourceFile
from tidegate.sources.judge import Record
from tidegate.values.base import Mask

Places = npt.NDArray[np.int64]
# Of a batch that cannot be read at once, and cannot be sorted either: parts, until there are so few records.
_PARTS, _FEW_RECORDS = 16, 48


class Others(NamedTuple):
    """A field at the top of records that no column is read from; ``there``: which have it, None: all of them."""

    name: str
    there: Mask | None


@dataclass(frozen=True)
class Raw:
    """A batch's records, column by column.

    ``columns``: declared column → values, in text or a type of the file's; those that no record has may lack.
    """

    columns: Mapping[str, pa.Array]
    others: Sequence[Others] = ()


class Batch(ABC):
    """Some records of a file, in their order.

    ``positions``: int64[n], where each is, as ``Format.texts_at`` takes it. ``lines``: int64[n], the same as people
    count, from 0, within the piece.

    Whoever reads the batch may say more of it. ``arrival_us``: int64[n], when the records arrived, whatever a column or
    their file says of it. ``too_early``: bool[n], which of them claim an arrival that cannot be: these are refused.
    ``late``: bool[n], which of them landed after all up to their arrival had been announced to be known.
    ``file``: of which file they are, instead of the piece's, as far as ids and places are concerned.
    """

    positions: Places
    lines: Places
    arrival_us: Places | None = None
    too_early: Mask | None = None
    late: Mask | None = None
    file: SourceFile | None = None

    @property
    def alike(self) -> bool:
        """Whether it may be worth it to read all records at once."""
        return True

    def __len__(self) -> int:
        return len(self.positions)

    @abstractmethod
    def columns(self) -> Raw | None:
        """All records at once; None if any is unlike the others."""

    @abstractmethod
    def record(self, row: int) -> Record | None:
        """One record; None if it is none."""

    @abstractmethod
    def text(self, row: int) -> str:
        """One record as the quarantine shows it."""

    def kinds(self) -> Places | None:
        """A guess at which records can be read together: int64[n], −1 of one to be read alone; None: no guess."""
        return None

    def take(self, rows: Places) -> Batch:
        """Some of the records, with all that is said of them. ``rows``: int64[m], ascending."""
        part = self.part(rows)
        part.positions, part.lines = self.positions[rows], self.lines[rows]
        part.arrival_us = None if self.arrival_us is None else self.arrival_us[rows]
        part.too_early = None if self.too_early is None else self.too_early[rows]
        part.late = None if self.late is None else self.late[rows]
        part.file = self.file
        return part

    @abstractmethod
    def part(self, rows: Places) -> Batch:
        """Some of the records alone; whoever wants what is said of them too calls ``take``."""


def parts(batch: Batch) -> Iterator[tuple[Places, Batch, Raw | None]]:
    """A batch in parts that are read at once, each with the rows that it has; None: these are read one by one.

    **Cost**: of a batch whose records are all alike, one read. Else they are looked at one by one, some µs each, to see
    which can be read together.
    """
    yield from _parts(batch, np.arange(len(batch)), sorted_out=False)


def _parts(batch: Batch, rows: Places, sorted_out: bool) -> Iterator[tuple[Places, Batch, Raw | None]]:
    raw = batch.columns() if len(batch) and batch.alike else None
    if raw is not None or len(batch) <= _FEW_RECORDS or not batch.alike:
        yield rows, batch, raw
        return
    kinds = None if sorted_out else batch.kinds()
    if kinds is None or (kinds == max(kinds[0], 0)).all():
        for part in np.array_split(np.arange(len(batch)), _PARTS):
            yield from _parts(batch.take(part), rows[part], sorted_out=True)
        return
    for kind in np.unique(kinds).tolist():
        part = np.flatnonzero(kinds == kind)
        if kind < 0:
            yield rows[part], batch.take(part), None
        else:
            yield from _parts(batch.take(part), rows[part], sorted_out=True)


@dataclass
class Count:
    """What a piece holds, counted apart from reading it, and what the reader went through: these must be the same.

    ``counted``, ``read``: records; where a record may have several lines, lines; or bytes. ``first``, ``last``: the
    bytes of the (unpacked) text that were read, None where a file is not text. ``lines``: its line ends. ``plain``:
    whether these are the bytes of the file, neither packed nor transcoded.
    """

    counted: int = 0
    read: int = 0
    first: int | None = None
    last: int | None = None
    lines: int = 0
    plain: bool = False


@dataclass
class Reading:
    """A piece that is being read. ``seen``: names of fields, for whoever looks for one that no record has."""

    piece: Piece
    count: Count = field(default_factory=Count)
    seen: dict[str, None] = field(default_factory=dict)


class Format(ABC):
    """A file format."""

    name: str

    @abstractmethod
    def cut(self, stream: Stream, file: SourceFile, slice_bytes: int) -> list[Piece]:
        """The pieces of a file, each of about ``slice_bytes``; what cannot be cut is one."""

    @abstractmethod
    def read(self, reading: Reading) -> Iterator[Batch]:
        """The records of a piece, in order; what there is to say of it goes to ``reading``.

        Raises:
            BrokenFileError: the file cannot be read to its end.
        """

    def advice(self, stream: Stream, texts: Sequence[str]) -> str:
        """What to declare instead if records like these cannot be read; empty if nothing can be seen."""
        return ""

    @abstractmethod
    def texts_at(self, stream: Stream, file: SourceFile, positions: Sequence[int]) -> list[str]:
        """Records at positions, ascending, as the quarantine shows them."""
