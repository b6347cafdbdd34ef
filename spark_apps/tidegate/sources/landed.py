"""Streams that have landed through Spark, as ingest reads them: by their landed tables and the announcements.

Which records there are for an interval depends on these two alone: not on what the source has now, nor on how the
table's files were cut or put together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Stream, from_us, to_us
from tidegate.sources.files import SLICE_BYTES, Expected, Piece, SourceFile
from tidegate.sources.formats.base import Batch, Reading
from tidegate.sources.formats.messages import message_batches
from tidegate.sources.registry import schemas_of
from tidegate.store import parquet
from tidegate.store.landed import LandedFile, LandedTable, groups, landed_name, of_partition
from tidegate.store.places import Place, place, refuse_outage
from tidegate.store.watermarks import Announcements

_EXPANSION = 4


@dataclass(frozen=True)
class LandedPiece(Piece):
    """Row groups ``start`` to ``end`` of a landed file, of which the records count that arrived in [since, until).

    ``announcements``: those that decide it; ``last_batch``: what landed later is not looked at. ``folder``: the
    pipeline's in the warehouse, where schemas of values are kept.
    """

    announcements: Announcements = Announcements()
    last_batch: int = -1
    since_us: int = 0
    until_us: int = 0
    folder: str = ""


@dataclass(frozen=True)
class LandedPartition(SourceFile):
    """The records of a source's partition: what identities, places and the order of equal arrivals go by."""

    source: str = ""
    generation: int = 0
    partition: int = 0

    @property
    def name(self) -> str:
        """How tables and messages show it: ``orders/3``; of a source of files the file."""
        return partition_name(self.source, self.generation, self.partition)

    @property
    def by_arrival(self) -> bool:
        """Every landed record has an arrival."""
        return True

    def turn(self, event_us: int, line: int) -> tuple[int | str, ...]:
        """The batch, then the partition."""
        return line, self.source, self.generation, self.partition


def partition_name(source: str, generation: int, partition: int) -> str:
    """How a partition is shown.

    >>> partition_name("orders", 0, 3), partition_name("orders", 1, 0), partition_name("file:///in/a.csv", 0, 0)
    ('orders/3', 'orders/0 (generation 1)', '/in/a.csv')
    """
    if "://" in source or source.startswith("/"):
        return source.removeprefix("file://") if source.startswith("file:///") else source
    return f"{source}/{partition}" + (f" (generation {generation})" if generation else "")


class LandedSource:
    """What has landed of a stream, by ``table`` as it was last looked at."""

    def __init__(self, stream: Stream, folder: Place, announcements: Announcements):
        self.stream, self.folder, self.announcements = stream, folder, announcements
        self.table = LandedTable(folder / landed_name(stream))

    def expected(self, start: datetime, end: datetime) -> tuple[Expected, ...]:
        """The files of the table that may hold records which arrived in [start, end)."""
        if not self.table.refresh():
            return (Expected(landed_name(self.stream), None, ()),)
        floor_us = self.table.state().floor_us
        if floor_us is not None and to_us(start) < floor_us:
            raise UserError(
                f"{self.stream.name}: what had landed before {from_us(floor_us):%Y-%m-%dT%H:%M:%SZ} was removed by "
                "'retention: landed': intervals before it cannot be run again"
            )
        rule = self.announcements.up_to(to_us(end))
        files = tuple(
            SourceFile(self.table.folder / one.path, one.bytes, one.landed_us[1], None, None)
            for one in self.table.files()
            if self._may_hold(one, rule, to_us(start), to_us(end))
        )
        return (Expected(landed_name(self.stream), None, files),)

    def _may_hold(self, file: LandedFile, rule: Announcements, start_us: int, end_us: int) -> bool:
        first_us, last_us = rule.bounds_us(
            file.batches, file.arrivals_us, file.landed_us, self.stream.max_early_s, file.without
        )
        return first_us < end_us and last_us >= start_us

    def pieces(self, file: SourceFile, start: datetime, end: datetime, slice_bytes: int = SLICE_BYTES) -> list[Piece]:
        """Row groups of a file."""
        start_us, end_us = to_us(start), to_us(end)
        rule = self.announcements.up_to(end_us)
        last_batch = self.announcements.batch_of(end_us)
        assert last_batch is not None, "an interval is announced before it is read"
        cost = file.bytes * _EXPANSION
        cuts: list[tuple[int, int | None]] = [(0, None)]
        if cost > slice_bytes:
            count = parquet.footer(file.path).num_row_groups
            parts = min(-(-cost // slice_bytes), count)
            edges = [count * i // parts for i in range(parts + 1)]
            cuts = list(zip(edges, edges[1:], strict=False))
        return [
            LandedPiece(
                self.stream, file, a, b, cost // len(cuts), rule, last_batch, start_us, end_us, str(self.folder)
            )
            for a, b in cuts
        ]

    def changed(self, files: Sequence[SourceFile]) -> list[SourceFile]:
        """None: what has landed stays."""
        return []


class LandedReader:
    """Reads pieces of landed tables: all that tasks need."""

    def read(self, reading: Reading) -> Iterator[Batch]:
        """The records of a piece that arrived in its time, a source's partition after the other."""
        piece, count = reading.piece, reading.count
        assert isinstance(piece, LandedPiece)
        schemas = schemas_of(piece.stream, place(piece.folder))
        for rows in _row_groups(piece, reading):
            count.read += rows.num_rows
            chosen, arrivals_us, too_early, late = _placed(piece, rows)
            if not chosen.num_rows:
                continue
            numbered = chosen.append_column(_NUMBER, pa.array(np.arange(chosen.num_rows)))
            for key, part in groups(numbered):
                numbers = part.column(_NUMBER).to_numpy()
                file = LandedPartition(
                    piece.file.path, piece.file.bytes, piece.file.modified_us, None, None, "", _identity(*key), *key
                )
                first = 0
                for batch in message_batches(piece.stream, part.drop_columns(_NUMBER), schemas, reading.seen):
                    places = numbers[first : first + len(batch)]
                    first += len(batch)
                    batch.file = file
                    batch.arrival_us, batch.too_early, batch.late = arrivals_us[places], too_early[places], late[places]
                    yield batch
                assert first == len(numbers), "every record is in a batch"

    def texts_at(self, stream: Stream, file: SourceFile, positions: Sequence[int]) -> list[str]:
        """Records of a partition at positions, ascending."""
        assert isinstance(file, LandedPartition)
        rows = of_partition(parquet.opened(file.path).read(), file.source, file.generation, file.partition)
        wanted = np.isin(rows.column("position").to_numpy(), np.asarray(positions, np.int64))
        some = rows.filter(pa.array(wanted)).sort_by("position")
        folder = file.path.parent.parent.parent
        texts: list[str] = []
        for batch in message_batches(stream, some, schemas_of(stream, folder), {}):
            texts += [batch.text(row) for row in range(len(batch))]
        return texts


_NUMBER = "_number"


def _row_groups(piece: LandedPiece, reading: Reading) -> Iterator[pa.Table]:
    try:
        file = parquet.opened(piece.file.path)
        last = file.metadata.num_row_groups if piece.end is None else piece.end
        for number in range(piece.start, last):
            reading.count.counted += file.metadata.row_group(number).num_rows
            yield file.read_row_group(number, use_threads=False)
    except (OSError, pa.ArrowException) as error:
        refuse_outage(piece.file.path, error)
        raise UserError(
            f"{piece.file.path} is damaged or gone ({str(error).splitlines()[0][:200]}): restore it from a backup; "
            "nothing was ingested"
        ) from None


def _placed(
    piece: LandedPiece, rows: pa.Table
) -> tuple[pa.Table, npt.NDArray[np.int64], npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """The records that arrived in the piece's time: when, whether their source says a time that cannot be, and whether
    they landed after it had been announced that all was known up to their arrival.
    """
    batches = rows.column("batch").to_numpy()
    arrival = rows.column("arrival")
    by_source_us = arrival.cast(pa.int64()).fill_null(0).to_numpy()
    landed_us = rows.column("landed_at").cast(pa.int64()).to_numpy()
    without = np.asarray(arrival.is_null()) if arrival.null_count else np.zeros(len(batches), dtype=bool)
    too_early = by_source_us > landed_us + piece.stream.max_early_s * 1_000_000
    at = piece.announcements.arrivals_us(batches, by_source_us, without | too_early)
    mask = (batches <= piece.last_batch) & (at >= piece.since_us) & (at < piece.until_us)
    late = (at > by_source_us) & ~without & ~too_early
    if mask.all():
        return rows, at, too_early, late
    return rows.filter(pa.array(mask)), at[mask], too_early[mask], late[mask]


def _identity(source: str, generation: int, partition: int) -> str:
    """What the ids of a partition's records begin with, where no column identifies them."""
    return f"{source}:{generation}:{partition}"
