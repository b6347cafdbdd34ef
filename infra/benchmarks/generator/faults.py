"""What goes wrong between a source and a stream: clocks that are off, records sent twice, records that are broken."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from infra.benchmarks.generator.randomness import Integers, uniforms
from scipy.special import ndtri

TIMESTAMP = pa.timestamp("us", tz="UTC")
TWENTY_YEARS_US = 20 * 365 * 86_400 * 1_000_000


@dataclass(frozen=True)
class Faults:
    """How much goes wrong.

    ``sources``: clocks that stamp event times, tuples coming from each as often; ``skew_sd_s``: standard deviation of
    their errors (normal, constant). ``duplicates``, ``malformed``: shares of the records that come a second time, or
    are broken; each kind of break is as frequent, and the column ``fault`` names it (NULL: sound).
    """

    sources: int = 10
    skew_sd_s: float = 0.0
    duplicates: float = 0.0
    malformed: float = 0.0

    def clocks(self, rows: int, seed: int, stream: str) -> tuple[Integers, Integers]:
        """Each tuple's source and its clock's error in µs, int64[rows] both."""
        source = (uniforms(seed, f"{stream}/sources", rows) * self.sources).astype(np.int64)
        skew_s = self.skew_sd_s * ndtri(uniforms(seed, "skew", self.sources))
        return source, np.rint(skew_s * 1e6).astype(np.int64)[source]

    def spoil(self, table: pa.Table, seed: int, stream: str) -> pa.Table:
        """The table with some records broken: one value each is lost, not a number, or decades ahead."""
        broken = uniforms(seed, f"{stream}/malformed", len(table)) < self.malformed
        numbers = [field.name for field in table.schema if pa.types.is_floating(field.type)]
        kinds = ["no event_time", "clock decades ahead", *(f"{name} is not a number" for name in numbers)]
        kind = (uniforms(seed, f"{stream}/faults", len(table)) * len(kinds)).astype(np.int64)
        hit = [pa.array(broken & (kind == i)) for i in range(len(kinds))]
        times = table["event_time"].cast(pa.int64())
        times = pc.if_else(hit[1], pc.add(times, TWENTY_YEARS_US), times)
        times = pc.if_else(hit[0], pa.scalar(None, pa.int64()), times)
        spoilt = table.set_column(table.schema.get_field_index("event_time"), "event_time", times.cast(TIMESTAMP))
        for name, rows in zip(numbers, hit[2:], strict=True):
            place = spoilt.schema.get_field_index(name)
            spoilt = spoilt.set_column(place, name, pc.if_else(rows, float("nan"), spoilt[name]))
        names = pa.DictionaryArray.from_arrays(pa.array(kind.astype(np.int8), mask=~broken), pa.array(kinds))
        return spoilt.append_column("fault", names.cast(pa.string()))

    def repeat(
        self, arrival_us: Integers, again_after_us: Integers, seed: int, stream: str
    ) -> tuple[Integers, Integers]:
        """Which rows arrive, and when, in order of arrival: int64 both; a duplicate is a row that is named twice."""
        rows = np.arange(len(arrival_us))
        twice = np.flatnonzero(uniforms(seed, f"{stream}/duplicates", len(rows)) < self.duplicates)
        row = np.concatenate([rows, twice])
        arrival = np.concatenate([arrival_us, arrival_us[twice] + np.maximum(again_after_us[twice], 0)])
        order = np.argsort(arrival, kind="stable")
        return row[order], arrival[order]
