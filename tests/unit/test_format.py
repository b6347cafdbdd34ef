"""A warehouse bears the number of its format: a program that is older than what wrote it refuses it with a sentence."""

from __future__ import annotations

import pytest
from tests.live_files import a_pipeline
from tests.unit.test_warehouse import TABLE, put

from tidegate.cli import main
from tidegate.declarations.errors import UserError
from tidegate.store import commits, format
from tidegate.store.delta import DeltaLog
from tidegate.store.format import FORMAT, PROPERTY
from tidegate.store.upkeep import tidy
from tidegate.store.warehouse import Warehouse

NEWER = rf"written by a newer Tidegate \(format {FORMAT + 1}; this one reads up to {FORMAT}\): use that version"


def log_of_commits(folder) -> DeltaLog:
    log = DeltaLog(folder / "p" / commits.TABLE, commits.SCHEMA, partitioned=False)
    log.refresh()
    return log


def written_by(number: int, folder) -> None:
    """Make a warehouse that says that it is of this format."""
    put(Warehouse(folder, a_pipeline()), 1, 5)
    log_of_commits(folder).set_properties({PROPERTY: str(number)})


def of_format_1(folder, monkeypatch) -> None:
    """A warehouse without a number, as versions before format 2 wrote it."""
    with monkeypatch.context() as before:
        before.setattr(Warehouse, "__init__", without_number(Warehouse.__init__))
        before.setattr(commits, "FORMAT", 1)
        put(Warehouse(folder, a_pipeline()), 1, 5)
    assert PROPERTY not in log_of_commits(folder).configuration


def without_number(init):
    def made(self, *arguments, **named):
        init(self, *arguments, **named)
        self.commits._log.properties = {}

    return made


def test_what_is_written_first_bears_the_number_from_its_first_version_on(tmp_path):
    warehouse = Warehouse(tmp_path, a_pipeline())
    assert warehouse.commits.format is None
    put(warehouse, 1, 5)
    first = (tmp_path / "p" / commits.TABLE / "_delta_log" / f"{0:020d}.json").read_text()
    assert f'"{PROPERTY}":"{FORMAT}"' in first
    assert warehouse.commits.format == FORMAT


def test_reading_does_not_raise_the_number_and_writing_does(tmp_path, monkeypatch):
    of_format_1(tmp_path, monkeypatch)
    reader = Warehouse(tmp_path, a_pipeline())
    assert reader.rows(TABLE, "2013-01-01T00") == 5
    assert (reader.commits.format, PROPERTY in log_of_commits(tmp_path).configuration) == (1, False)
    put(Warehouse(tmp_path, a_pipeline()), 2, 3, (1,))
    assert log_of_commits(tmp_path).configuration[PROPERTY] == str(FORMAT)
    reader.refresh()
    assert [reader.rows(TABLE, label) for label in reader.labels(TABLE)] == [5, 3]


def test_the_number_is_raised_once_and_outlives_upkeep(tmp_path, monkeypatch):
    of_format_1(tmp_path, monkeypatch)
    for version in (2, 3):
        put(Warehouse(tmp_path, a_pipeline()), version, 3)
    warehouse = Warehouse(tmp_path, a_pipeline())
    tidy(warehouse, 0, 0)
    log = tmp_path / "p" / commits.TABLE / "_delta_log"
    assert sum("metaData" in file.read_text() for file in log.glob("*.json")) == 2
    assert log_of_commits(tmp_path).configuration[PROPERTY] == str(FORMAT)


def test_a_newer_warehouse_is_neither_read_nor_written(tmp_path):
    written_by(FORMAT + 1, tmp_path)
    with pytest.raises(UserError, match=NEWER):
        Warehouse(tmp_path, a_pipeline()).labels(TABLE)
    with pytest.raises(UserError, match=NEWER):
        put(Warehouse(tmp_path, a_pipeline()), 2, 3)
    assert log_of_commits(tmp_path).configuration[PROPERTY] == str(FORMAT + 1)


def test_a_program_that_has_it_open_notices_when_a_newer_one_writes(tmp_path):
    warehouse = Warehouse(tmp_path, a_pipeline())
    put(warehouse, 1, 5)
    with pytest.raises(UserError, match=NEWER), warehouse.commit("stage", [interval_of(warehouse)]) as commit:
        log_of_commits(tmp_path).set_properties({PROPERTY: str(FORMAT + 1)})
        commit.put_state("kept", interval_of(warehouse), warehouse.schema(TABLE).empty_table())
    with pytest.raises(UserError, match=NEWER):
        warehouse.refresh()


def interval_of(warehouse: Warehouse):
    from tidegate.store.intervals import interval_labelled

    return interval_labelled(warehouse.pipeline, "2013-01-01T02")


def test_migrate_raises_the_number_and_says_so_once(tmp_path, monkeypatch, capsys):
    of_format_1(tmp_path, monkeypatch)
    declared = tmp_path / "declared"
    declared.mkdir()
    monkeypatch.setattr("tidegate.declarations.load_pipeline", lambda folder: a_pipeline())
    words = ["migrate", str(declared), "--warehouse", str(tmp_path)]
    assert main(words) == 0
    told = capsys.readouterr()
    assert f"format 1 → {FORMAT}" in told.err
    assert f"format {FORMAT}, in" in told.out
    assert main(words) == 2
    assert "nothing to migrate" in capsys.readouterr().err


def test_two_who_raise_it_at_once_both_go_on(tmp_path, monkeypatch):
    of_format_1(tmp_path, monkeypatch)
    both = [Warehouse(tmp_path, a_pipeline()) for _ in range(2)]
    for one in both:
        one.refresh()
    assert [one.commits.begin() for one in both] == [1, FORMAT]
    for hour, one in enumerate(both):
        put(one, 2, 1, (hour,))
    assert format.format_of(log_of_commits(tmp_path).configuration) == FORMAT
