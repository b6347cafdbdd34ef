"""What a top-k query keeps of a large file of tuples: whoever asks the query again reads a few in a hundred.

A query's windows are asked for again and again: by the intervals that they reach into, and by calibration for their
truth. What is kept depends on the query and the file alone, so it is right as long as both are there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.operators import top_k
from tidegate.store import parquet
from tidegate.store.places import place

WORTH_ROWS = 1 << 16
"""Files of fewer rows are read again."""
LARGEST_SHARE = 1 / 4
"""If more remains of a batch, as where groups are many and small, the rest of its file is not sifted."""
_VERSION = 1


@dataclass(frozen=True)
class Sieve:
    """Where a query keeps what it needs of each file, and how it tells what that is.

    Args:
        folder: of this query in this form; a file in it for each file of tuples.
        spec: the operator's.
    """

    folder: Path
    spec: top_k.Spec

    @classmethod
    def of(cls, kept_in: str, query: str, spec: top_k.Spec, asked: object) -> Sieve:
        """The sieve of a query. ``asked``: all that decides what the spec's columns hold."""
        about = (_VERSION, spec.k, spec.order, spec.columns.to_string(), spec.pane_us, spec.groups, asked)
        return cls(Path(kept_in) / query / hashlib.sha256(repr(about).encode()).hexdigest()[:16], spec)

    def kept(self, path: str) -> Path:
        """Where what is kept of a file lies, or will."""
        file = place(path)
        about = file.stat()
        return self.folder / f"{file.parent.name}.{about.st_mtime_ns:x}-{about.st_size:x}.{file.name}"

    def worth(self, path: str) -> bool:
        """Whether a file has so many rows that it is sifted, or has been."""
        return self.kept(path).exists() or parquet.footer(path).num_rows >= WORTH_ROWS

    def tuples(self, path: str, batches: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """What is needed of a file: as it was kept, else sifted from all its tuples, and kept if it is little."""
        kept = self.kept(path)
        if kept.exists():
            for own in pq.ParquetFile(kept).iter_batches(WORTH_ROWS):
                yield pa.Table.from_batches([own])
            return
        self._make_folder()
        aside = self.folder / f"{uuid.uuid4().hex}.partial"
        writer: pq.ParquetWriter | None = None
        little = True
        try:
            for batch in batches:
                if little:
                    rows, batch = batch.num_rows, top_k.sifted(self.spec, batch)
                    little = batch.num_rows <= LARGEST_SHARE * rows
                    writer = writer or pq.ParquetWriter(aside, batch.schema, compression="zstd")
                    writer.write_table(batch)
                yield batch
            if writer is not None and little:
                writer.close()
                os.replace(aside, kept)
                self._forget_others(path)
        finally:
            if writer is not None:
                writer.close()
            aside.unlink(missing_ok=True)

    def _make_folder(self) -> None:
        if not self.folder.is_dir():
            self.folder.mkdir(parents=True, exist_ok=True)
            # The query was another one: what it kept is of no use any more.
            for other in set(self.folder.parent.iterdir()) - {self.folder}:
                shutil.rmtree(other, ignore_errors=True)

    def _forget_others(self, path: str) -> None:
        # An interval that was read anew has other files now.
        here = {self.kept(str(file)) for file in place(path).parent.glob("*.parquet")}
        for other in set(self.folder.glob(f"{place(path).parent.name}.*")) - here:
            other.unlink(missing_ok=True)
