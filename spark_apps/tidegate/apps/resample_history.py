"""The daily pass over history: old leaves merge, samples thin, the store stays within its capacity.

For every interval that ends a UTC day a pass is decided for each stream from what had entered history by then, and
recorded in ``history_passes``, one row a leaf. Every partition of ``history_leaves`` and ``history_samples_<stream>``
that the passes change is rewritten in the same atomic commit: kill it anywhere, and either all is as before or the next
run carries it out.

A recorded pass is a matter of record. Running its interval again applies it again, which changes nothing, rather than
deciding anew from leaves that later passes have merged; and ``sample_history`` applies all recorded passes to whatever
it writes. So the rows do not depend on the order or number of runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.apps.launcher import launch
from tidegate.declarations.models import History, Pipeline, Stream, from_us
from tidegate.declarations.tables import TIMESTAMP
from tidegate.hosts.context import RunContext, StageRun
from tidegate.hosts.intervals import Interval, interval_at, label_format
from tidegate.hosts.warehouse import Warehouse
from tidegate.operators.history.thinning import (
    Float64s,
    Int64s,
    Leaves,
    Pass,
    instants_us,
    plan_pass,
    relabel_rows,
    thin,
)

STAGE = "resample_history"


def run(context: RunContext, intervals: Sequence[Interval]) -> None:
    """Decide, record and apply the passes of the intervals that end a UTC day; nothing for the others."""
    streams = [s for s in context.pipeline.streams if s.history is not None]
    due = [interval for interval in intervals if interval.ends_day]
    with context.stage(STAGE, intervals) as stage:
        if not streams or not due:
            return
        written = context.warehouse.read_arrow("history_leaves")
        held = [_Held.load(context.warehouse, stream, written) for stream in streams]
        passes = {
            stream.name: {p.time_us: p for p in recorded_passes(context.warehouse, stream.name)} for stream in streams
        }
        for interval in due:
            rows = []
            for index, stream in enumerate(streams):
                recorded = passes[stream.name].get(interval.end_us)
                decided = held[index].decide(interval.end_us) if recorded is None else recorded
                rows.append(_pass_rows(stream, decided, held[index].tuples_by(interval.end_us)))
                before = held[index]
                held[index] = before.after(decided)
                stage.record(interval, rows_in=len(before.u), rows_out=len(held[index].u))
            stage.commit.put_arrow("history_passes", interval, pa.concat_tables(rows))
        _rewrite(context, stage, written, held)


def recorded_passes(warehouse: Warehouse, stream: str) -> tuple[Pass, ...]:
    """The passes of a stream on record, in order of time."""
    rows = warehouse.read_arrow("history_passes")
    rows = rows.filter(pc.equal(rows.column("stream"), stream)).sort_by(
        [("pass_time", "ascending"), ("leaf_start", "ascending")]
    )
    pass_us = instants_us(rows.column("pass_time"))
    start_us, end_us = instants_us(rows.column("leaf_start")), instants_us(rows.column("leaf_end"))
    fraction = rows.column("fraction").to_numpy()
    passes = []
    for time_us in np.unique(pass_us).tolist():
        own = pass_us == time_us
        leaves = Leaves(start_us[own], end_us[own], np.zeros(int(own.sum()), np.int64), fraction[own])
        passes.append(Pass(time_us, leaves))
    return tuple(passes)


@dataclass(frozen=True, eq=False)
class _Held:
    """What history holds of one stream: its rows of ``history_leaves``, and per sampled tuple the little a pass needs.

    ``interval`` (label index), ``leaf_start_us`` and ``u`` have one entry a sampled tuple; ``applied`` are the passes
    that this run has applied so far.
    """

    stream: Stream
    rows: pa.Table
    labels: npt.NDArray[np.object_]
    label_end_us: Int64s
    interval: Int64s
    leaf_start_us: Int64s
    u: Float64s
    applied: tuple[Pass, ...] = ()

    @classmethod
    def load(cls, warehouse: Warehouse, stream: Stream, written: pa.Table) -> _Held:
        rows = written.filter(pc.equal(written.column("stream"), stream.name))
        samples = warehouse.read_arrow(f"history_samples_{stream.name}", columns=["leaf_start", "u"])
        labels = np.array(warehouse.labels("history_leaves"), dtype=object)
        return cls(
            stream,
            rows,
            labels,
            np.array([_interval_of(warehouse.pipeline, label).end_us for label in labels], dtype=np.int64),
            np.searchsorted(labels, samples.column("interval").to_numpy(zero_copy_only=False)),
            instants_us(samples.column("leaf_start")),
            samples.column("u").to_numpy(),
        )

    @property
    def spec(self) -> History:
        assert self.stream.history is not None
        return self.stream.history

    def _rows_by(self, pass_us: int) -> pa.Table:
        known = pa.array(self.labels[self.label_end_us <= pass_us].tolist(), pa.string())
        return self.rows.filter(pc.is_in(self.rows.column("interval"), known))

    def tuples_by(self, pass_us: int) -> int:
        """How many tuples had entered history by then."""
        return int(pc.sum(self._rows_by(pass_us).column("tuples")).as_py() or 0)

    def decide(self, pass_us: int) -> Pass:
        """The pass at an instant, from what had entered by then and from nothing else."""
        rows = self._rows_by(pass_us)
        start_us, leaf_of_row = np.unique(instants_us(rows.column("leaf_start")), return_inverse=True)
        end_us = np.zeros(len(start_us), np.int64)
        np.maximum.at(end_us, leaf_of_row, instants_us(rows.column("leaf_end")))
        tuples = np.zeros(len(start_us), np.int64)
        np.add.at(tuples, leaf_of_row, rows.column("tuples").to_numpy())
        fraction = np.ones(len(start_us))
        np.minimum.at(fraction, leaf_of_row, rows.column("fraction").to_numpy())
        early = self.label_end_us[self.interval] <= pass_us
        leaf_of_sample = np.searchsorted(start_us, self.leaf_start_us[early])
        leaves = Leaves(start_us, end_us, tuples, fraction)
        return Pass(pass_us, plan_pass(leaves, self.u[early], leaf_of_sample, self.spec))

    def after(self, decided: Pass) -> _Held:
        """The same after a pass, which applies to every partition, those that entered later included."""
        start_us, fraction = _relabel_samples(self.rows, self.leaf_start_us, decided)
        kept = thin(self.u, fraction)
        rows = relabel_rows(self.rows, decided)
        held = replace(
            self,
            rows=rows,
            interval=self.interval[kept],
            leaf_start_us=start_us[kept],
            u=self.u[kept],
            applied=(*self.applied, decided),
        )
        return replace(held, rows=held._counted())

    def _counted(self) -> pa.Table:
        """The rows with ``sampled`` as it is now."""
        label = np.searchsorted(self.labels, self.rows.column("interval").to_numpy(zero_copy_only=False))
        start_us = instants_us(self.rows.column("leaf_start"))
        starts = np.unique(start_us)
        key = label * len(starts) + np.searchsorted(starts, start_us)
        found, counts = np.unique(
            self.interval * len(starts) + np.searchsorted(starts, self.leaf_start_us), return_counts=True
        )
        sampled = np.zeros(len(key), np.int64)
        if len(found):
            at = np.minimum(np.searchsorted(found, key), len(found) - 1)
            sampled = np.where(found[at] == key, counts[at], 0)
        index = self.rows.schema.get_field_index("sampled")
        return self.rows.set_column(index, self.rows.schema.field(index), pa.array(sampled))


def _relabel_samples(rows: pa.Table, leaf_start_us: Int64s, decided: Pass) -> tuple[Int64s, Float64s]:
    """Leaf and fraction of sampled tuples after a pass; ``rows`` are the stream's leaves before it."""
    start_us, first = np.unique(instants_us(rows.column("leaf_start")), return_index=True)
    end_us = instants_us(rows.column("leaf_end"))[first]
    fraction = rows.column("fraction").to_numpy()[first]
    new_start_us, _, new_fraction = decided.relabel(start_us, end_us, fraction)
    leaf = np.searchsorted(start_us, leaf_start_us)
    return new_start_us[leaf], new_fraction[leaf]


def _rewrite(context: RunContext, stage: StageRun, written: pa.Table, held: Sequence[_Held]) -> None:
    """Write the partitions that the passes changed."""
    order = [("interval", "ascending"), ("stream", "ascending"), ("leaf_start", "ascending")]
    before = written.sort_by(order)
    after = pa.concat_tables([h.rows for h in held]).sort_by(order)
    streams = [h.stream.name for h in held]
    kept_as_is = before.filter(pc.invert(pc.is_in(before.column("stream"), pa.array(streams, pa.string()))))
    after = pa.concat_tables([after, kept_as_is]).sort_by(order)
    changed = [label for label in context.warehouse.labels("history_leaves") if _of(before, label) != _of(after, label)]
    context.progress(f"{STAGE}: {len(changed)} partitions of history change")
    for label in changed:
        interval = _interval_of(context.pipeline, label)
        stage.commit.put_arrow("history_leaves", interval, _of(after, label))
        for h in held:
            table = f"history_samples_{h.stream.name}"
            samples = context.warehouse.read_arrow(table, [label])
            if samples.num_rows:
                stage.commit.put_arrow(table, interval, _thinned(samples, written, h))


def _thinned(samples: pa.Table, written: pa.Table, held: _Held) -> pa.Table:
    """One partition of samples after the passes of this run."""
    rows = written.filter(pc.equal(written.column("stream"), held.stream.name))
    for decided in held.applied:
        start_us, fraction = _relabel_samples(rows, instants_us(samples.column("leaf_start")), decided)
        kept = thin(samples.column("u").to_numpy(), fraction)
        for name, values in (
            ("leaf_start", pa.array(start_us).cast(TIMESTAMP)),
            ("fraction", pa.array(fraction)),
            # A dropped leaf has fraction 0 and no rows; its weight is never read.
            ("weight", pa.array(1 / np.where(fraction > 0, fraction, 1.0))),
        ):
            index = samples.schema.get_field_index(name)
            samples = samples.set_column(index, samples.schema.field(index), values)
        samples = samples.filter(pa.array(kept))
        rows = relabel_rows(rows, decided)
    return samples.sort_by([("leaf_start", "ascending"), ("u", "ascending"), ("event_id", "ascending")])


def _of(rows: pa.Table, label: str) -> pa.Table:
    return rows.filter(pc.equal(rows.column("interval"), label)).combine_chunks()


def _pass_rows(stream: Stream, decided: Pass, tuples_before: int) -> pa.Table:
    count = len(decided.leaves)
    return pa.table(
        {
            "stream": pa.repeat(pa.scalar(stream.name), count),
            "pass_time": pa.repeat(pa.scalar(from_us(decided.time_us), TIMESTAMP), count),
            "tuples_before": pa.repeat(pa.scalar(tuples_before, pa.int64()), count),
            "leaf_start": pa.array(decided.leaves.start_us, pa.int64()).cast(TIMESTAMP),
            "leaf_end": pa.array(decided.leaves.end_us, pa.int64()).cast(TIMESTAMP),
            "fraction": pa.array(decided.leaves.fraction, pa.float64()),
        }
    )


def _interval_of(pipeline: Pipeline, label: str) -> Interval:
    return interval_at(pipeline, datetime.strptime(label, label_format(pipeline)).replace(tzinfo=UTC))


if __name__ == "__main__":
    launch(STAGE, run)
