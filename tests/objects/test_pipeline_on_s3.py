"""A pipeline whose source files and tables are in an object store gives the rows that it gives on a local disk."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import polars
import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from tests.objects.server import upload

from tidegate.cli.init import init
from tidegate.cli.newest_answers import newest_answers
from tidegate.declarations import load_pipeline
from tidegate.declarations.errors import UserError
from tidegate.engine.context import RunContext
from tidegate.history.questions import query_history
from tidegate.live.warehouse import only_live_run
from tidegate.report.report import run as report
from tidegate.stages.run import run, stages_named
from tidegate.store import parquet
from tidegate.store.intervals import Interval, intervals_between
from tidegate.store.places import ObjectPath
from tidegate.store.warehouse import Warehouse

FROM, TO = datetime(2026, 1, 5, 8, tzinfo=UTC), datetime(2026, 1, 5, 10, tzinfo=UTC)
SQL = "SELECT country, COUNT(*) FROM orders GROUP BY country"
# What they say differs, as do the places: when it ran and how long, what the file is called and when it was written.
OF_THE_RUN = {
    "run_metrics": {"started_at", "seconds", "peak_process_bytes"},
    "source_files": {"path", "modified"},
    "quarantine": {"source"},
}


@dataclass(frozen=True)
class Both:
    """The same pipeline run on a local disk and in a store."""

    local: Warehouse
    stored: Warehouse
    intervals: tuple[Interval, ...]


@pytest.fixture(scope="module")
def both(bucket: ObjectPath, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    with pytest.MonkeyPatch.context() as patch:
        yield run_both(bucket, tmp_path_factory.mktemp("both"), patch, TO, ["answers"])


def run_both(bucket: ObjectPath, folder: Path, patch: pytest.MonkeyPatch, end: datetime, stages: list[str]) -> Both:
    here, there = folder / "here" / "shop", folder / "there" / "shop"
    for own in (here, there):
        own.parent.mkdir()
        init(own, "shop")
    upload(there / "landing", bucket / "landing")
    declared = there / "pipeline.yml"
    declared.write_text(declared.read_text().replace("path: landing", f"path: {bucket}/landing"))
    patch.setenv("TIDEGATE_LOCAL", str(there / "local"))
    found = []
    for own, root in ((here, here / "warehouse"), (there, bucket / "warehouse")):
        pipeline = load_pipeline(own)
        intervals = intervals_between(pipeline, FROM, end)
        with RunContext(pipeline, root, output=io.StringIO()) as context:
            run(context, intervals, stages_named(stages))
        found.append(Warehouse(root, pipeline))
    return Both(found[0], found[1], intervals)


def rows(warehouse: Warehouse, table: str) -> pa.Table:
    found = warehouse.read_arrow(table)
    return found.drop_columns([name for name in found.column_names if name in OF_THE_RUN.get(table, ())])


def test_every_table_has_the_same_rows(both: Both) -> None:
    written = [table for table in both.local.tables() if both.local.labels(table)]
    assert {"events_orders", "answers_revenue", "history_leaves", "slack_plan", "quarantine"} <= set(written)
    for table in written:
        assert rows(both.stored, table).to_pylist() == rows(both.local, table).to_pylist(), table
        assert both.stored.labels(table) == both.local.labels(table)


def test_who_asks_gets_the_same_answers(both: Both, tmp_path: Path) -> None:
    here, there = both.local, both.stored
    newest = [newest_answers(w, both.intervals, stages_named(["answers"]), 80) for w in (here, there)]
    assert newest[0] == newest[1] and "revenue" in newest[0]
    assert report(there.pipeline, there.root, tmp_path / "page.html").stat().st_size > 10_000


def test_what_only_one_machine_needs_is_in_its_folder(both: Both, bucket: ObjectPath) -> None:
    """Pages, logs and copies are local; all that runs share is in the store."""
    assert both.stored.local == Path(os.environ["TIDEGATE_LOCAL"], "s3", bucket.root[5:], "warehouse", "shop")
    assert {path.name for path in both.stored.local.iterdir()} <= {"_logs", "_docs", "_sifted"}
    assert both.stored.local.stat().st_mode & 0o777 == 0o700
    top = {path.name for path in both.stored.folder.glob("_*")}
    assert {"_commits", "_state"} <= top and not top & {"_docs", "_logs", "_dbt", "_sifted"}
    assert not list((both.stored.folder / "_staging").glob("*/*/*"))


def test_a_live_run_is_refused(both: Both) -> None:
    with pytest.raises(UserError, match="a live run keeps what has landed on a local disk, and s3://"):
        only_live_run(both.stored).__enter__()


def test_other_engines_read_the_tables(both: Both) -> None:
    """The recipes of docs/how-to/object-store.md."""
    where, expected = f"{both.stored.folder}/answers_revenue", both.local.read_arrow("answers_revenue").num_rows
    options = {"AWS_ALLOW_HTTP": "true"}
    assert polars.scan_delta(where, storage_options=options).select(polars.len()).collect().item() == expected
    table = DeltaTable(where, storage_options=options)
    assert len(table.to_pandas(columns=["window_end", "revenue"])) == expected
    commits = DeltaTable(f"{both.stored.folder}/_commits", storage_options=options).to_pyarrow_dataset().to_table()
    versions = dict(commits.sort_by("committed_at").column("versions")[-1].as_py())
    accuracy = DeltaTable(f"{both.stored.folder}/accuracy", version=versions["accuracy"], storage_options=options)
    assert len(accuracy.to_pandas()) == both.local.read_arrow("accuracy").num_rows
    answers = table.to_pyarrow_dataset()
    assert duckdb.sql("SELECT count(*) FROM answers").fetchall() == [(expected,)] and answers


def test_sql_clients_read_what_is_in_the_store(both: Both, tmp_path: Path) -> None:
    password = tmp_path / "password"
    command = [sys.executable, "-m", "tidegate.cli", "sql", str(both.stored.pipeline.folder), "--port", "0"]
    command += ["--warehouse", str(both.stored.root), "--password-file", str(password)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as door:
        assert door.stdout is not None
        said: list[str] = []
        while "ready at" not in (line := door.stdout.readline()):
            said.append(line)
            assert line, said
        port = int(line.split("127.0.0.1:")[1].split("/")[0])
        with psycopg.connect(
            f"postgresql://analyst@127.0.0.1:{port}/shop", password=password.read_text().strip(), autocommit=True
        ) as client:
            found = client.execute("SELECT interval, count(*) FROM answers_revenue GROUP BY 1 ORDER BY 1").fetchall()
            expected = both.local.read_arrow("answers_revenue").group_by("interval").aggregate([([], "count_all")])
            assert found == sorted(zip(*expected.to_pydict().values(), strict=True))
            for outside in (
                f"SELECT * FROM read_text('{both.stored.root}/x')",
                "SELECT getenv('AWS_SECRET_ACCESS_KEY')",
            ):
                with pytest.raises(psycopg.Error):
                    client.execute(outside)
        door.terminate()
        door.communicate(timeout=60)


@pytest.mark.slow
def test_all_stages_and_all_who_ask(bucket: ObjectPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six hours with the checks of quality and dbt's marts: minutes."""
    end = FROM.replace(hour=14)
    all_of_it = run_both(bucket / "all", tmp_path, monkeypatch, end, ["answers", "check_quality", "publish"])
    here, there = all_of_it.local, all_of_it.stored
    assert here.marts() == there.marts() and here.marts()
    asked = [query_history(w.pipeline, w.root, SQL, FROM, FROM.replace(hour=12)) for w in (here, there)]
    assert asked[0] == asked[1] and asked[0]["rows"]
    for name in ("_docs/quality/index.html", "_docs/dbt/index.html", "_dbt/target/manifest.json"):
        assert (there.local / name).is_file()
    for mart in here.marts():
        found = []
        for warehouse in (here, there):
            paths = warehouse.files(mart, warehouse.labels(mart))
            found.append([row for path in paths for row in parquet.opened(path).read().to_pylist()])
        for row in (row for rows in found for row in rows):
            for name in OF_THE_RUN["run_metrics"] | {"process_share", "within_budget"}:
                row.pop(name, None)
        assert found[0] == found[1], mart


@pytest.mark.slow
def test_sparks_workers_read_and_write_the_store(both: Both) -> None:
    """A file in ten slices: tasks read it by ranges, leave their parts in the store, and find those of others there."""
    where = f"{both.stored.root}-spark"
    program = (
        "from tests.objects.test_pipeline_on_s3 import *; from tidegate.stages import ingest\n"
        f"pipeline = load_pipeline(Path({str(both.stored.pipeline.folder)!r}))\n"
        "intervals = intervals_between(pipeline, FROM, TO)\n"
        f"with RunContext(pipeline, {where!r}) as context: ingest.read(context, intervals, slice_bytes=40_000)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0 and "starting Spark" in ended.stderr, ended.stderr
    alone = Warehouse(where, both.stored.pipeline)
    for table in ("events_orders", "quarantine"):
        assert rows(alone, table).to_pylist() == rows(both.local, table).to_pylist()
