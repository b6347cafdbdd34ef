"""History by the operators alone: band files on disk, leaves in the tree, a pass every so many intervals."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from infra.benchmarks.history.stream import INTERVAL_TUPLES, TICK_US

from tidegate.declarations.models import History
from tidegate.operators.history.bands import Bands, initial_levels, plan_levels, room_between_passes
from tidegate.operators.history.estimators import Estimate, LeafSample, with_uniform_arrivals
from tidegate.operators.history.leaves import LeafAggregator
from tidegate.operators.history.priority import priority
from tidegate.operators.history.tree import COUNT, SUM, HdsTree, Leaf, Totals

LEAF_TUPLES, FAN_OUT, PASS_EVERY = 10_000, 6, 8
COLUMNS = ("event_us", "value", "kind", "u")


@dataclass
class Store:
    """The state: one level an interval, the rows of every band, the tree."""

    folder: Path
    spec: History
    tree: HdsTree = field(default_factory=lambda: HdsTree(FAN_OUT, ["value"]))
    tuples: list[int] = field(default_factory=list)
    level: list[int] = field(default_factory=list)
    rows: list[np.ndarray] = field(default_factory=list)
    most_rows: int = 0
    seconds: float = 0.0

    def fill(self, intervals: Iterable[pa.Table]) -> None:
        """Take in a stream; ``seconds`` counts sampling, aggregating, writing and thinning, not generating."""
        bands, room = Bands.of(self.spec), room_between_passes(self.spec, 0, 0)
        for number, interval in enumerate(intervals):
            started = time.perf_counter()
            left = np.array([PASS_EVERY - number % PASS_EVERY])
            level, after = initial_levels(np.array([interval.num_rows]), room, left, bands)
            room = float(after[0])
            self._enter(number, interval, int(level[0]), bands)
            self.most_rows = max(self.most_rows, self.held())
            if (number + 1) % PASS_EVERY == 0:
                self._thin()
                room = self.spec.capacity_tuples * (1 + self.spec.reserve) - self.held()
            self.seconds += time.perf_counter() - started

    def held(self) -> int:
        """Sampled tuples in the store."""
        return int(sum(rows[level:].sum() for rows, level in zip(self.rows, self.level, strict=True)))

    def _enter(self, number: int, interval: pa.Table, level: int, bands: Bands) -> None:
        event_us = interval.column("event_us").to_numpy()
        u = priority("synthetic", interval.column("event_id").combine_chunks(), self.spec.seed)
        band = bands.of_priority(u)
        kept = interval.append_column("u", pa.array(u)).select(COLUMNS)
        for one in range(level, bands.count):
            part = kept.filter(pa.array(band == one))
            if part.num_rows:
                pq.write_table(part, self.file(number, one), compression="zstd")
        leaves = LeafAggregator(["value"])
        start_us = event_us // (LEAF_TUPLES * TICK_US) * (LEAF_TUPLES * TICK_US)
        leaves.add(np.zeros(len(u), np.int64), start_us, event_us, {"value": interval.column("value")})
        for row in leaves.to_arrow().to_pylist():
            at = [int(row[f"value_{name}_time"].timestamp() * 1e6) for name in ("min", "max")]
            values = [row[f"value_{name}"] for name in ("count", "sum", "min", "max", "sum_squares")]
            totals = Totals(row["tuples"], np.array([[*values, *at]], dtype=np.float64))
            self.tree.append(Leaf(row["leaf_start_us"], row["leaf_start_us"] + LEAF_TUPLES * TICK_US, totals))
        self.tuples.append(interval.num_rows)
        self.level.append(level)
        self.rows.append(np.bincount(band[band >= 0], minlength=bands.count) * (np.arange(bands.count) >= level))

    def _thin(self) -> None:
        """A pass: delete the files of the bands that go, touch no other."""
        level = plan_levels(np.array(self.tuples), np.array(self.rows), np.array(self.level), self.spec)
        for number, (old, new) in enumerate(zip(self.level, level.tolist(), strict=True)):
            for band in range(old, new):
                self.file(number, band).unlink(missing_ok=True)
        self.level = level.tolist()

    def file(self, number: int, band: int) -> Path:
        """Where a band of an interval lies."""
        return self.folder / f"{number:06d}-{band:02d}.parquet"

    def sampled(self, first: int, last: int) -> tuple[pa.Table, np.ndarray]:
        """The sample of intervals first to last (exclusive), and each row's fraction."""
        fractions, parts, held = Bands.of(self.spec).fractions, [], []
        for number in range(first, last):
            for band in range(self.level[number], len(self.rows[number])):
                if self.rows[number][band]:
                    parts.append(pq.ParquetFile(self.file(number, band)).read())
                    held.append(np.full(parts[-1].num_rows, fractions[self.level[number]]))
        return pa.concat_tables(parts), np.concatenate(held)

    def mean(self, start: int, end: int, kind: int | None, confidence: float = 0.95) -> Estimate:
        """AVG(value) over ticks [start, end), of one kind or of all; all come from the tree."""
        if kind is None:
            covered = self.tree.query(start * TICK_US, end * TICK_US)
            shared = covered.shared.values[0]
            found = Estimate(None, None, None)
            return with_uniform_arrivals(found, float(shared[SUM] / shared[COUNT]), 0.0, 0)
        first, last = start // INTERVAL_TUPLES, -(-end // INTERVAL_TUPLES)
        rows, fraction = self.sampled(first, last)
        event = rows.column("event_us").to_numpy() // TICK_US
        number = event // INTERVAL_TUPLES - first
        fractions = Bands.of(self.spec).fractions[self.level[first:last]]
        sample = LeafSample(np.array(self.tuples[first:last]), fractions, fraction, confidence, number)
        chosen = (event >= start) & (event < end) & (rows.column("kind").to_numpy() == kind)
        return sample.mean(chosen, rows.column("value").to_numpy(), None)
