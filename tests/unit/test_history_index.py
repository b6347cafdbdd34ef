"""The copy of history's small files gives what the partitions hold, whatever has become of either since."""

from __future__ import annotations

import io
import shutil
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.spark.test_history_stages import END, START, calls_of, pipeline_in, write_events

from tidegate.engine.context import RunContext
from tidegate.history import index as history_index
from tidegate.history.index import FOLDER, HistoryIndex
from tidegate.history.past import Past, _groups, _leaves, samples_index
from tidegate.history.questions import query_history
from tidegate.history.store import Rows
from tidegate.stages import resample_history, sample_history
from tidegate.store.intervals import Interval, intervals_between
from tidegate.store.places import Place
from tidegate.store.warehouse import Warehouse

SQL = "SELECT kind, COUNT(*), AVG(cost), MAX(units) FROM calls WHERE units > 2 GROUP BY kind"


class Phones:
    """Three days of calls in twelve intervals, eight of them sampled."""

    def __init__(self, root: Path):
        self.context = RunContext(pipeline_in(root / "phones"), root, output=io.StringIO())
        self.warehouse = self.context.warehouse
        self.intervals = intervals_between(self.context.pipeline, START, END)
        self.stream = self.context.pipeline.stream("calls")

    @property
    def indices(self) -> list[HistoryIndex]:
        return [made(self.warehouse, self.stream) for made in (_leaves, _groups, samples_index)]

    @property
    def copies(self) -> list[Path]:
        return sorted((self.warehouse.folder / "_state" / FOLDER).iterdir())

    def read(self) -> list[pa.Table]:
        return [index.read(self.warehouse.labels(index.table)).rows for index in self.indices]

    def agree(self) -> None:
        """The copy gives what reading every file gives, in its order."""
        for index, found in zip(self.indices, self.read(), strict=True):
            rows = self.warehouse.read_arrow(index.table)
            own = rows if index.samples else rows.filter(pc.equal(rows.column("stream"), "calls"))
            assert as_written(found).equals(own.select(found.schema.names)), index.table


def as_written(rows: pa.Table) -> pa.Table:
    return rows.set_column(rows.num_columns - 1, "interval", rows.column("interval").cast(pa.string()))


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    phones = Phones(tmp_path_factory.mktemp("sampled"))
    phones.warehouse.folder.mkdir(parents=True)
    write_events(phones.context.pipeline, phones.warehouse.root, calls_of(4))
    sample_history.run(phones.context, phones.intervals[:8])
    return phones.warehouse.root


@pytest.fixture
def phones(sampled: Path, tmp_path: Path) -> Phones:
    shutil.copytree(sampled, tmp_path / "warehouse")
    return Phones(tmp_path / "warehouse")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The partitions whose files are opened for the copy."""
    found: list[str] = []

    def watched(within: Place, paths, schema):  # type: ignore[no-untyped-def]
        found.extend(label for label, _ in paths)
        return one_by_one(within, paths, schema)

    one_by_one = history_index._one_by_one
    monkeypatch.setattr(history_index, "_one_by_one", watched)
    return found


def test_it_follows_whatever_happens_to_the_partitions(phones: Phones, opened: list[str]) -> None:
    """New intervals, one run again, a pass."""

    def again(which: slice) -> Callable[[], object]:
        return lambda: sample_history.run(phones.context, phones.intervals[which])

    phones.agree()
    happens: list[tuple[Callable[[], object], tuple[Interval, ...]]] = [
        (again(slice(8, 12)), phones.intervals[8:12]),
        (again(slice(5, 6)), phones.intervals[5:6]),
        (lambda: resample_history.run(phones.context, phones.intervals), phones.intervals),
    ]
    for happen, touched in happens:
        opened.clear()
        happen()
        phones.agree()
        assert set(opened) <= {interval.label for interval in touched}
        opened.clear()
        phones.agree()
        assert opened == []


def test_of_rows_that_are_kept_those_that_changed_are_read_again(
    phones: Phones, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse, read = phones.warehouse, phones.warehouse.read_arrow
    asked: list[str] = []

    def watched(table: str, labels: Sequence[str]) -> pa.Table:
        asked.extend(labels)
        return read(table, labels)

    def agree(touched: Sequence[Interval]) -> None:
        expected = read(kept.table)
        asked.clear()
        with monkeypatch.context() as patch:
            patch.setattr(warehouse, "read_arrow", watched)
            assert kept.read(warehouse).equals(expected.combine_chunks())
        assert asked and set(asked) <= {interval.label for interval in touched}

    kept = Rows("history_leaves")
    agree(phones.intervals[:8])
    for touched in (slice(8, 12), slice(5, 6)):
        sample_history.run(phones.context, phones.intervals[touched])
        agree(phones.intervals[touched])
    # A partition whose rows are gone.
    with warehouse.commit("sample_history", phones.intervals[:1]) as commit:
        commit.put_arrow(kept.table, phones.intervals[0], warehouse.schema(kept.table).empty_table())
    assert phones.intervals[0].label not in kept.read(warehouse).column("interval").to_pylist()


def test_a_copy_of_rows_that_are_kept_is_that_of_their_files(phones: Phones, opened: list[str]) -> None:
    leaves, groups = Rows("history_leaves"), Rows("history_groups")
    for rows in (leaves, groups):
        rows.read(phones.warehouse)
    # One interval has other files than those that are kept, and one is not kept at all.
    touched = [phones.intervals[3], phones.intervals[8]]
    for interval in touched:
        sample_history.run(phones.context, [interval])
    opened.clear()
    for made, rows in ((_leaves, leaves), (_groups, groups)):
        index = made(phones.warehouse, phones.stream, rows)
        index.renew(phones.warehouse.labels(index.table))
    assert set(opened) == {interval.label for interval in touched}
    opened.clear()
    phones.indices[0].read(phones.warehouse.labels("history_leaves"))
    assert opened == [], "the copy was left on the disk"
    phones.agree()


def test_a_damaged_copy_is_made_anew(phones: Phones) -> None:
    """Torn, empty, a bit flipped, another digest."""
    phones.agree()
    copy = next(c for c in phones.copies if c.name.startswith("history_leaves"))
    whole = copy.read_bytes()
    for damaged in (
        whole[: len(whole) // 2],
        b"",
        whole[:100] + bytes([whole[100] ^ 1]) + whole[101:],
        bytes(16) + whole[16:],
    ):
        copy.write_bytes(damaged)
        phones.agree()
        assert copy.read_bytes() == whole


def test_a_copy_of_another_format_or_of_other_columns_is_made_anew(
    phones: Phones, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(history_index, "_FORMAT", "0")
        phones.agree()
    phones.agree()
    # The same file for a stream of fewer columns, and back.
    fewer = HistoryIndex(phones.warehouse, "history_leaves", "calls", pa.schema([phones.indices[0].schema.field(0)]))
    assert fewer.read(phones.warehouse.labels("history_leaves")).rows.schema.names == ["stream", "interval"]
    phones.agree()


def test_who_may_not_write_reads_all_the_same(phones: Phones, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("read-only")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", refuse)
        phones.agree()
        query_history(phones.context.pipeline, phones.context.warehouse_root, SQL, START, END)
    assert not (phones.warehouse.folder / "_state" / FOLDER).exists()
    # A folder stands where the file should.
    phones.agree()
    for copy in phones.copies:
        copy.unlink()
        copy.mkdir()
    phones.agree()


def test_answers_are_the_same_with_and_without_it(phones: Phones, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask() -> dict[str, object]:
        return query_history(phones.context.pipeline, phones.context.warehouse_root, SQL, START, END)

    fresh = ask()
    assert phones.copies and ask() == fresh
    # Partitions of large files are not copied: their files are read.
    shutil.rmtree(phones.warehouse.folder / "_state" / FOLDER)
    monkeypatch.setattr(history_index, "SMALL_FILE_BYTES", 0)
    assert ask() == fresh
    *_, samples = phones.read()
    assert samples.num_rows == 0


def test_many_read_while_intervals_are_run_again(phones: Phones) -> None:
    """Whoever reads meets rows that were committed: a run again writes the same, so all read the same."""
    over = threading.Event()

    def reads() -> int:
        times = 0
        while not over.is_set() or not times:
            assert phones.read() == expected
            times += 1
        return times

    expected = phones.read()
    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(reads) for _ in range(2)]
        for first in (0, 3, 1):
            sample_history.run(phones.context, phones.intervals[first : first + 3])
        over.set()
        assert all(reader.result() > 0 for reader in readers)
    phones.agree()


def test_a_pass_between_leaves_and_samples_changes_neither(phones: Phones) -> None:
    """A question reads one cut: what is committed meanwhile it does not see."""
    sample_history.run(phones.context, phones.intervals[8:])
    reader = Warehouse(phones.warehouse.root, phones.context.pipeline)
    past = Past.open(reader, phones.stream)
    before = Past.open(phones.warehouse, phones.stream)
    expected = before.samples(before.view, [])
    resample_history.run(phones.context, phones.intervals)
    found = past.samples(past.view, [])
    assert found.rows.equals(expected.rows) and len(found.u) > len(phones.read()[-1])
