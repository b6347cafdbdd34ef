"""The daily pass over history: samples thin, old leaves merge, the store stays within its capacity.

For every interval that ends a UTC day a pass is decided for each stream from what had entered history by then. It says
at which fraction every interval's samples are held from now on, and which leaves merge. Samples thin by whole bands:
the files of the bands that go are left out of the partition, those that stay are linked, none is rewritten. Only the
rows of ``history_leaves`` and ``history_groups`` are written anew. All of it is one atomic commit: kill it anywhere,
and either all is as before or the next run carries it out.

A pass is a matter of record (``history_passes`` and a state). Running its interval again applies it again, which
changes nothing, rather than deciding anew from leaves that later passes have merged; and ``sample_history`` applies all
recorded passes to whatever it writes. So the rows do not depend on the order or number of runs.

Each pass also notes how good the estimates are that it leaves behind (``history_accuracy``); that, too, is a matter of
record, for the samples that were asked are thinned later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.declarations.models import History, Stream, from_us
from tidegate.declarations.tables import has_groups
from tidegate.engine import Slice
from tidegate.engine.context import RunContext, StageRun
from tidegate.history.index import HistoryIndex
from tidegate.history.judged import TABLE as ACCURACY
from tidegate.history.judged import judge
from tidegate.history.past import Past, View, renew, samples_index
from tidegate.history.store import (
    LEVELS,
    BandFile,
    Rows,
    Strata,
    band_files,
    keep_below,
    order_of,
    recorded_at,
    sample_schema,
    samples_in_force,
    samples_table,
)
from tidegate.operators.history.bands import Bands, pass_capacity, plan_levels
from tidegate.operators.history.laws import Float64s, Int64s
from tidegate.operators.history.thinning import (
    GROUP_KEYS,
    Leaves,
    Pass,
    latest_us,
    merge_leaves,
    relabel_rows,
)
from tidegate.operators.schedule import instants_us
from tidegate.queries.slices import ROWS_OF_A_SLICE
from tidegate.stages.launcher import launch
from tidegate.store.intervals import Interval, interval_labelled
from tidegate.store.places import Place
from tidegate.store.upkeep import tidy
from tidegate.store.warehouse import Warehouse
from tidegate.values.types import TIMESTAMP

STAGE = "resample_history"
DAY_US = 86_400 * 1_000_000
_LEVEL_SCHEMA = pa.schema([("stream", pa.string()), ("entered_us", pa.int64()), ("fraction", pa.float64())])


def run(context: RunContext, intervals: Sequence[Interval]) -> None:
    """Decide, record and apply the passes of the intervals that end a UTC day; nothing for the others."""
    streams = [s for s in context.pipeline.streams if s.history is not None]
    due = [interval for interval in intervals if interval.ends_day]
    # What there is to remove tells its age by the clock: a run over many days looks once.
    if due and not context.tidied:
        _tidy(context)
        context.tidied = True
    with context.stage(STAGE, intervals) as stage:
        if not streams or not due:
            return
        kept: _Kept = context.memory.setdefault(STAGE, _Kept())
        written = kept.leaves.read(context.warehouse)
        held = [_Held.load(context.warehouse, stream, written, kept) for stream in streams]
        for interval in due:
            rows, levels, accuracy = [], [], []
            for one in held:
                before = one.sampled()
                noted = one.on_record(interval)
                rows.append(one.carry_out(interval, noted))
                levels.append(one.levels(interval.end_us))
                accuracy.append(one.judged(interval, new=not noted))
                stage.record(interval, rows_in=before, rows_out=one.sampled())
            stage.commit.put_arrow("history_passes", interval, pa.concat_tables(rows))
            stage.commit.put_state(LEVELS, interval, pa.concat_tables(levels))
            stage.commit.put_arrow(ACCURACY, interval, pa.concat_tables(accuracy))
        _rewrite(context, stage, written, held, kept)
    # What a later pass changes again, it would have to copy again.
    for stream in streams if not context.days_follow else ():
        renew(context.warehouse, stream, kept.leaves, kept.groups, kept.samples[stream.name])


def _tidy(context: RunContext) -> None:
    done = tidy(context.warehouse)
    if done.restored:
        context.progress(f"{STAGE}: {done.restored} partitions that killed runs had touched are as they were before")
    if done.files or done.folders:
        context.progress(f"{STAGE}: {done.files} files and {done.folders} folders that nothing needs are removed")


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


@dataclass(eq=False)
class _Kept:
    """What one pass has read and the next can use. By stream: ``footers`` of samples, ``samples`` of small files."""

    leaves: Rows = field(default_factory=lambda: Rows("history_leaves"))
    groups: Rows = field(default_factory=lambda: Rows("history_groups"))
    footers: dict[str, dict[Place, BandFile]] = field(default_factory=dict)
    samples: dict[str, HistoryIndex] = field(default_factory=dict)


@dataclass(eq=False)
class _Held:
    """What history holds of one stream, as the passes of this run change it.

    ``rows``: of ``history_leaves``. One entry an interval that brought tuples: ``labels``, ``tuples``, ``band_rows``
    (int64[labels, bands], sampled tuples a band), ``fraction`` in force. ``recorded``: the passes on record, by time.
    """

    warehouse: Warehouse
    stream: Stream
    rows: pa.Table
    labels: tuple[str, ...]
    start_us: Int64s
    end_us: Int64s
    tuples: Int64s
    band_rows: Int64s
    fraction: Float64s
    files: list[BandFile]
    recorded: dict[int, Pass]
    applied: list[Pass]
    index: HistoryIndex

    @classmethod
    def load(cls, warehouse: Warehouse, stream: Stream, written: pa.Table, kept: _Kept) -> _Held:
        rows = written.filter(pc.equal(written.column("stream"), stream.name))
        strata = Strata.of(rows)
        intervals = [interval_labelled(warehouse.pipeline, label) for label in strata.labels]
        bands = Bands.of(_spec(stream))
        files = band_files(warehouse, stream.name, strata.labels, kept.footers.get(stream.name))
        kept.footers[stream.name] = {file.path: file for file in files}
        number = {label: i for i, label in enumerate(strata.labels)}
        band_rows = np.zeros((len(strata.labels), bands.count), np.int64)
        for file in files:
            # A file of other settings' bands counts by its largest priority.
            band_rows[number[file.label], max(int(bands.of_priority(np.array([file.most_u]))[0]), 0)] += file.rows
        return cls(
            warehouse,
            stream,
            rows,
            strata.labels,
            np.array([i.start_us for i in intervals], np.int64),
            np.array([i.end_us for i in intervals], np.int64),
            np.bincount(strata.label, weights=strata.tuples, minlength=len(strata.labels)).astype(np.int64),
            band_rows,
            strata.fraction_of_label(),
            files,
            {p.time_us: p for p in recorded_passes(warehouse, stream.name)},
            [],
            kept.samples.setdefault(stream.name, samples_index(warehouse, stream)),
        )

    def sampled(self) -> int:
        """How many sampled tuples are held."""
        level = Bands.of(_spec(self.stream)).level_at_most(self.fraction)
        return int((self.band_rows * (np.arange(self.band_rows.shape[1]) >= level[:, None])).sum())

    def levels(self, pass_us: int) -> pa.Table:
        """The fraction at which every interval that had entered by then is held."""
        known = self.end_us <= pass_us
        columns = [pa.repeat(self.stream.name, int(known.sum())), self.start_us[known], self.fraction[known]]
        return pa.table([pa.array(c) for c in columns], schema=_LEVEL_SCHEMA)

    def on_record(self, interval: Interval) -> dict[int, float]:
        """What the pass at the interval's end noted (see ``recorded_at``); empty if it has not been decided before."""
        return recorded_at(self.warehouse, self.stream.name, interval.label) if interval.end_us in self.recorded else {}

    def carry_out(self, interval: Interval, noted: Mapping[int, float]) -> pa.Table:
        """Decide the pass at the interval's end, or take the one on record, and apply it; its rows for the record."""
        pass_us, spec = interval.end_us, _spec(self.stream)
        known = self.end_us <= pass_us
        entered = int(self.tuples[known].sum())
        if noted:
            limit = np.array([noted.get(start, np.inf) for start in self.start_us.tolist()])
            self.fraction = np.minimum(self.fraction, limit)
            decided = self.recorded[pass_us]
        else:
            bands = Bands.of(spec)
            level = bands.level_at_most(self.fraction[known])
            newest = int(self.tuples[known & (self.end_us > pass_us - DAY_US)].sum())
            capacity = pass_capacity(spec, newest)
            planned = plan_levels(self.tuples[known], self.band_rows[known], level, spec, capacity)
            self.fraction[known] = np.minimum(self.fraction[known], bands.fractions[planned])
            decided = Pass(pass_us, merge_leaves(self._leaves(known), spec))
        # A pass applies to what entered later, too: late tuples belong to the leaf that theirs has merged into.
        self.rows = relabel_rows(self.rows, decided)
        self.applied.append(decided)
        return _pass_rows(self.stream, decided, entered)

    def judged(self, interval: Interval, new: bool) -> pa.Table:
        """How good the estimates are after the pass; of one on record, what was noted then.

        If nothing was (the record is of an older version), the newest pass can still be judged: what it left is there.
        """
        noted = interval.label in self.warehouse.labels(ACCURACY)
        if not new and (noted or interval.end_us < max(self.recorded)):
            rows = self.warehouse.read_arrow(ACCURACY, [interval.label]).drop_columns("interval")
            return rows.filter(pc.equal(rows.column("stream"), self.stream.name))
        rows, label = self._entered(self.end_us <= interval.end_us)
        rows = _set(rows, "fraction", pa.array(self.fraction[label], pa.float64()))
        view = View.of(rows, self.stream.numeric_columns)
        return judge(Past(self.warehouse, self.stream, (), view, self.index), interval.end_us)

    def _entered(self, known: np.ndarray) -> tuple[pa.Table, Int64s]:
        """The rows of what entered in the known intervals, and the number of each one's interval."""
        label = np.searchsorted(self.labels, self.rows.column("interval").to_numpy(zero_copy_only=False).astype(str))
        own = known[label] if len(label) else np.zeros(0, bool)
        return self.rows.filter(pa.array(own)), label[own].astype(np.int64)

    def _leaves(self, known: np.ndarray) -> Leaves:
        """The leaves of what entered in the known intervals; the fraction is the least that is in force in them."""
        rows, label = self._entered(known)
        start_us, leaf = np.unique(instants_us(rows.column("leaf_start")), return_inverse=True)
        end_us = latest_us(leaf, instants_us(rows.column("leaf_end")), len(start_us))
        tuples = np.zeros(len(start_us), np.int64)
        np.add.at(tuples, leaf, rows.column("tuples").to_numpy())
        fraction = np.ones(len(start_us))
        np.minimum.at(fraction, leaf, self.fraction[label])
        return Leaves(start_us, end_us, tuples, fraction)


def _spec(stream: Stream) -> History:
    assert stream.history is not None
    return stream.history


def _rewrite(context: RunContext, stage: StageRun, written: pa.Table, held: Sequence[_Held], kept: _Kept) -> None:
    """Write the leaves that the passes changed, and leave out the files of the bands that have gone."""
    order = [("interval", "ascending"), ("stream", "ascending"), ("leaf_start", "ascending")]
    streams = pa.array([h.stream.name for h in held], pa.string())
    others = written.filter(pc.invert(pc.is_in(written.column("stream"), streams)))
    thinned = {h.stream.name: _thinned(h, written) for h in held}
    left = zip(held, _left(context, held, thinned), strict=True)
    after = pa.concat_tables([*(_in_force(h, thinned[h.stream.name], counts) for h, counts in left), others])
    after = after.sort_by(order)
    changed = _changed(written.sort_by(order), after)
    context.progress(f"{STAGE}: {len(changed)} partitions of leaves change")
    for label, rows in changed.items():
        stage.commit.put_arrow("history_leaves", interval_labelled(context.pipeline, label), rows)
    if has_groups(context.pipeline):
        _rewrite_groups(context, stage, held, kept.groups.read(context.warehouse))
    # Leaves first: who reads between the two moves finds lower fractions, and leaves out what is beyond them.
    for h in held:
        table = samples_table(h.stream.name)
        fraction = dict(zip(h.labels, h.fraction.tolist(), strict=True))
        files = {label: list(own) for label, own in groupby(h.files, lambda file: file.label)}
        for label in thinned[h.stream.name]:
            interval = interval_labelled(context.pipeline, label)
            keep_below(stage.commit, table, interval, files[label], fraction[label])


def _thinned(h: _Held, written: pa.Table) -> list[str]:
    """Labels of the partitions some of whose files go."""
    fraction = dict(zip(h.labels, h.fraction.tolist(), strict=True))
    return sorted({file.label for file in h.files if file.least_u >= fraction[file.label]})


@dataclass(frozen=True, eq=False)
class Counting:
    """Files of samples, to be counted by stratum; ``schema``: what is read of them."""

    strata: Strata
    files: tuple[BandFile, ...]
    schema: pa.Schema


def counted(part: Slice) -> Int64s:
    """int64[strata]: how many samples of the files of a :class:`Counting` are in force. **Memory**: two columns."""
    own: Counting = part.of
    found = samples_in_force(own.schema, own.strata, own.files)
    return np.bincount(found.stratum, minlength=len(own.strata.label)).astype(np.int64)


def _left(context: RunContext, held: Sequence[_Held], thinned: Mapping[str, Sequence[str]]) -> list[Int64s]:
    """Of each stream, the sampled tuples by stratum that are left of the thinned partitions."""
    parts: list[Counting] = []
    owners: list[int] = []
    found, rows = [], 0
    for number, h in enumerate(held):
        those, strata = set(thinned[h.stream.name]), Strata.of(_with_fraction(h))
        schema = sample_schema(h.warehouse, h.stream.name, [])
        found.append(np.zeros(len(strata.label), np.int64))
        gathered: list[BandFile] = []
        for file in [file for file in h.files if file.label in those]:
            gathered.append(file)
            rows += file.rows
            if sum(one.rows for one in gathered) >= ROWS_OF_A_SLICE:
                parts.append(Counting(strata, tuple(gathered), schema))
                gathered = []
        if gathered:
            parts.append(Counting(strata, tuple(gathered), schema))
        owners += [number] * (len(parts) - len(owners))
    for number, counts in zip(owners, context.run_slices(counted, parts, rows), strict=True):
        found[number] += counts
    return found


def _with_fraction(h: _Held) -> pa.Table:
    """The stream's leaves with the fractions in force."""
    rows = h.rows.take(order_of(h.rows))
    label = np.searchsorted(h.labels, rows.column("interval").to_numpy(zero_copy_only=False).astype(str))
    fraction = h.fraction[label] if len(label) else np.empty(0)
    return _set(rows, "fraction", pa.array(fraction))


def _in_force(h: _Held, thinned: Sequence[str], counts: Int64s) -> pa.Table:
    """The same, and the sampled tuples that are left of those thinned (``counts``, by stratum)."""
    rows = _with_fraction(h)
    if not thinned:
        return rows
    gone = np.isin(rows.column("interval").to_numpy(zero_copy_only=False).astype(str), list(thinned))
    return _set(rows, "sampled", pa.array(np.where(gone, counts, rows.column("sampled").to_numpy())))


def _rewrite_groups(context: RunContext, stage: StageRun, held: Sequence[_Held], before: pa.Table) -> None:
    """The groups' leaves merge as the leaves do."""
    parts = []
    for h in held:
        rows = before.filter(pc.equal(before.column("stream"), h.stream.name))
        for decided in h.applied:
            rows = relabel_rows(rows, decided, GROUP_KEYS)
        parts.append(rows)
    order = [(key, "ascending") for key in GROUP_KEYS]
    for label, rows in _changed(before.sort_by(order), pa.concat_tables(parts).sort_by(order)).items():
        stage.commit.put_arrow("history_groups", interval_labelled(context.pipeline, label), rows)


def _set(rows: pa.Table, name: str, values: pa.Array) -> pa.Table:
    index = rows.schema.get_field_index(name)
    return rows.set_column(index, rows.schema.field(index), values)


def _changed(before: pa.Table, after: pa.Table) -> dict[str, pa.Table]:
    """The intervals whose rows have changed, each with its rows after; both tables ascend by interval."""
    old, new = _by_interval(before), _by_interval(after)
    return {label: rows for label, rows in new.items() if rows != old[label]}


def _by_interval(rows: pa.Table) -> dict[str, pa.Table]:
    runs = pc.run_end_encode(rows.column("interval").combine_chunks())
    ends = runs.run_ends.to_pylist()
    spans = zip(runs.values.to_pylist(), [0, *ends][:-1], ends, strict=True)  # no rows: no runs
    return {label: rows.slice(start, end - start) for label, start, end in spans}


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


if __name__ == "__main__":
    launch(STAGE)
