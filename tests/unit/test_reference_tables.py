"""Queries that look rows up beside the same queries over a stream whose records bear the rows: equal in every table."""

from __future__ import annotations

import json
import pickle
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from tidegate.cli import main
from tidegate.declarations import load_pipeline
from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Pipeline, to_us
from tidegate.engine.context import RunContext
from tidegate.history.filled import Filling
from tidegate.live.run import Live
from tidegate.queries.scan import EventFiles
from tidegate.sources.reference_files import read_reference, version_of
from tidegate.stages import run as stages
from tidegate.store.intervals import interval_at, intervals_between
from tidegate.store.warehouse import Warehouse

START = datetime(2026, 1, 5, 8, tzinfo=UTC)
HOURS = 4
STAGES = ("ingest", "join_aggregate", "top_k", "calibrate")
HEAD = """\
name: market
owner: nobody
start: 2026-01-05T08:00:00Z
interval: 1 hour
tick: 5 minutes
horizon: 1 hour
memory_budget: 4 KiB
process_budget: 3 GiB
streams:
  orders:
    format: jsonl
    path: landing/%Y-%m-%dT%H.jsonl
    columns: {id: string, at: timestamp, seen: timestamp, shop: integer, product: string, amount: integer@MORE@}
    id: id
    event_time: at
    arrival_time: seen
    rate: 3 per minute
"""
TABLES = """\
tables:
  goods:
    path: goods.csv
    format: csv
    columns: {shop: integer, product: string, category: string, owner: integer}
    key: [shop, product]
  owners:
    path: owners.csv
    format: csv
    columns: {id: integer, country: string, since: timestamp, until: timestamp}
    key: id
    valid_from: since
    valid_to: until
"""
FLAT = ", g_product: string, category: string, o_id: integer, country: string"
_JOIN = "JOIN goods AS g ON g.shop = o.shop AND o.product = g.product"
QUERIES = {
    "sums": (
        f"SELECT category, COUNT(*) AS n, SUM(amount) AS s FROM orders [30 MINUTES] AS o {_JOIN} WHERE amount > 1"
        " GROUP BY category ERROR 5% EVERY 5 MINUTES",
        "SELECT category, COUNT(*) AS n, SUM(amount) AS s FROM orders [30 MINUTES] AS o WHERE g_product IS NOT NULL"
        " AND amount > 1 GROUP BY category ERROR 5% EVERY 5 MINUTES",
    ),
    "best": (
        f"SELECT o.id, country, amount FROM orders [30 MINUTES] AS o LEFT {_JOIN} LEFT JOIN owners w ON g.owner = w.id"
        " ORDER BY country, amount DESC LIMIT 3 ACCURACY 90% EVERY 10 MINUTES",
        "SELECT o.id, country, amount FROM orders [30 MINUTES] AS o"
        " ORDER BY country, amount DESC LIMIT 3 ACCURACY 90% EVERY 10 MINUTES",
    ),
    "pairs": (
        f"SELECT g.category, COUNT(*) AS n FROM orders [10 MINUTES] AS o {_JOIN}, named [15 MINUTES] AS p"
        " WHERE g.category = p.kind GROUP BY g.category EVERY 15 MINUTES",
        "SELECT o.category, COUNT(*) AS n FROM orders [10 MINUTES] AS o, orders [15 MINUTES] AS p"
        " WHERE o.category = p.category AND o.g_product IS NOT NULL AND p.g_product IS NOT NULL AND p.country = 'DE'"
        " GROUP BY o.category EVERY 15 MINUTES",
    ),
}
# No tuple is left to be looked up.
NOTHING = f"SELECT COUNT(*) AS n FROM orders [30 MINUTES] AS o {_JOIN} WHERE amount > 10000 EVERY 15 MINUTES"
NAMED = f"""\
SELECT o.id, g.category AS kind FROM orders AS o {_JOIN} JOIN owners AS w ON w.id = g.owner WHERE w.country = 'DE'
"""
OWNERS = [(1, "DE", None, 2), (1, "FR", 2, None), (2, "DE", 1, 3), (3, None, None, None)]


def goods_at(hour: int) -> list[tuple[int, str, str | None, int]]:
    """What the table goods says in an hour: another thing in the third one."""
    rows = [(1, "a", "food", 1), (1, "b", "tools", 2), (2, "a", "food", 3), (2, "c", None, 9)]
    return [*rows, (2, "b", "toys", 2)] if hour >= 2 else rows


def write_tables(folder: Path, hour: int) -> None:
    lines = [f"{s},{p},{c or ''},{o}" for s, p, c, o in goods_at(hour)]
    (folder / "goods.csv").write_text("\n".join(["shop,product,category,owner", *lines]) + "\n")
    lines = [f"{i},{c or ''},{_hour(since)},{_hour(until)}" for i, c, since, until in OWNERS]
    (folder / "owners.csv").write_text("\n".join(["id,country,since,until", *lines]) + "\n")


def _hour(number: int | None) -> str:
    return "" if number is None else (START + timedelta(hours=number)).isoformat()


def looked_up(row: dict[str, Any], seen: datetime, at: datetime) -> dict[str, Any]:
    """What a record bears in the other pipeline: looked up row by row, as the definition says."""
    hour = int((seen - START) / timedelta(hours=1))
    goods = next((g for g in goods_at(hour) if g[:2] == (row["shop"], row["product"])), None)
    if goods is None:
        return {}
    since = (at - START) / timedelta(hours=1)
    owner = next(
        (o for o in OWNERS if o[0] == goods[3] and (o[2] is None or o[2] <= since) and (o[3] is None or since < o[3])),
        None,
    )
    found = {"g_product": goods[1], "category": goods[2]}
    return found | ({"o_id": owner[0], "country": owner[1]} if owner else {})


def land(folder: Path, flat: bool) -> None:
    chance = random.Random(7)
    lines: dict[datetime, list[str]] = {}
    for number in range(HOURS * 180):
        at = START + timedelta(seconds=20 * number)
        seen = at + timedelta(seconds=chance.expovariate(1 / 90))
        row: dict[str, Any] = {"id": f"o{number}", "at": at.isoformat(), "seen": seen.isoformat()}
        row |= {"shop": chance.choice([1, 2, None]), "product": chance.choice("abcd"), "amount": chance.randrange(9)}
        row |= looked_up(row, seen, at) if flat else {}
        lines.setdefault(seen.replace(minute=0, second=0, microsecond=0), []).append(json.dumps(row))
    folder.mkdir()
    for hour, rows in lines.items():
        (folder / f"{hour:%Y-%m-%dT%H}.jsonl").write_text("\n".join(rows) + "\n")


def declare(folder: Path, flat: bool) -> Pipeline:
    (folder / "queries").mkdir(parents=True)
    (folder / "pipeline.yml").write_text(HEAD.replace("@MORE@", FLAT if flat else "") + ("" if flat else TABLES))
    for name, texts in QUERIES.items():
        (folder / "queries" / f"{name}.sql").write_text(texts[flat])
    if not flat:
        (folder / "streams").mkdir()
        (folder / "streams" / "named.sql").write_text(NAMED)
        write_tables(folder, 0)
    land(folder / "landing", flat)
    return load_pipeline(folder)


def rows(root: Path, pipeline: Pipeline) -> dict[str, list[dict]]:
    warehouse = Warehouse(root, pipeline)
    names = [f"{kind}_{query}" for kind in ("answers", "truth") for query in QUERIES]
    names += ["accuracy", "needed_slack", "slack_plan", "window_plan", "query_plan", "stream_rates"]
    tables = {name: warehouse.read_arrow(name) for name in names}
    # What a tuple takes is guessed from the stream's declared columns at first, and the streams have other ones.
    for name, guessed in (("window_plan", ["byte_rate", "planned_bytes"]), ("stream_rates", ["tuple_bytes"])):
        tables[name] = tables[name].drop_columns(guessed)
    return {name: sorted(table.to_pylist(), key=repr) for name, table in tables.items()}


def intervals(pipeline: Pipeline):
    return intervals_between(pipeline, START, START + timedelta(hours=HOURS))


@pytest.fixture(scope="module")
def flat(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict]]:
    """What the queries give over records that bear what is looked up."""
    folder = tmp_path_factory.mktemp("flat")
    pipeline = declare(folder / "market", flat=True)
    with RunContext(pipeline, folder / "warehouse", here=True) as context:
        stages.run(context, intervals(pipeline), STAGES)
    return rows(folder / "warehouse", pipeline)


def run_by_intervals(pipeline: Pipeline, root: Path) -> None:
    with RunContext(pipeline, root, here=True) as context:
        for hour, interval in enumerate(intervals(pipeline)):
            write_tables(pipeline.folder, hour)
            stages.run(context, [interval], STAGES)


def test_a_tuple_meets_the_version_of_the_interval_that_ingested_it(flat, tmp_path: Path) -> None:
    pipeline = declare(tmp_path / "market", flat=False)
    run_by_intervals(pipeline, tmp_path / "warehouse")
    assert rows(tmp_path / "warehouse", pipeline) == flat
    assert all(flat[f"{kind}_{query}"] for kind in ("answers", "truth") for query in QUERIES)
    assert {row["category"] for row in flat["answers_sums"]} >= {"food", "tools", "toys", None}
    assert any(row["coverage"] < 1 for row in flat["answers_sums"]), "some windows are narrow"


def test_where_no_tuple_is_left_nothing_is_looked_up(tmp_path: Path) -> None:
    pipeline = declare(tmp_path / "market", flat=False)
    (pipeline.folder / "queries" / "nothing.sql").write_text(NOTHING)
    pipeline = load_pipeline(pipeline.folder)
    run_by_intervals(pipeline, tmp_path / "warehouse")
    counts = Warehouse(tmp_path / "warehouse", pipeline).read_arrow("truth_nothing").column("n").to_pylist()
    assert counts and set(counts) == {0}


def test_runs_that_are_repeated_keep_the_versions(flat, tmp_path: Path) -> None:
    pipeline = declare(tmp_path / "market", flat=False)
    run_by_intervals(pipeline, tmp_path / "warehouse")
    (pipeline.folder / "goods.csv").unlink()
    with RunContext(pipeline, tmp_path / "warehouse", here=True) as context:
        stages.run(context, intervals(pipeline)[1:], STAGES)
    assert rows(tmp_path / "warehouse", pipeline) == flat


def test_what_is_kept_of_large_files_is_of_the_version_of_their_interval(
    flat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.queries.sieves.WORTH_ROWS", 1)
    monkeypatch.setattr("tidegate.queries.sieves.LARGEST_SHARE", 1)
    pipeline = declare(tmp_path / "market", flat=False)
    run_by_intervals(pipeline, tmp_path / "warehouse")
    assert list((tmp_path / "warehouse" / "market" / "_sifted" / "best").glob("*/*.parquet"))
    assert rows(tmp_path / "warehouse", pipeline) == flat


def test_questions_go_to_other_processes_with_what_they_look_up(tmp_path: Path) -> None:
    pipeline = declare(tmp_path / "market", flat=False)
    with RunContext(pipeline, tmp_path / "warehouse", here=True) as context:
        stages.run(context, intervals(pipeline)[:1], ["ingest"])
        events = EventFiles.of(context.warehouse, pipeline.stream("orders"), ["2026-01-05T08"])
    sent = pickle.loads(pickle.dumps(events))
    assert sent == events
    assert list(sent.references.in_effect["goods"]) == [to_us(START)]


def test_an_equal_content_is_not_written_again(tmp_path: Path) -> None:
    pipeline = declare(tmp_path / "market", flat=False)
    with RunContext(pipeline, tmp_path / "warehouse", here=True) as context:
        for hour, interval in enumerate(intervals(pipeline)):
            write_tables(pipeline.folder, hour)
            stages.run(context, [interval], ["ingest"])
    warehouse = Warehouse(tmp_path / "warehouse", pipeline)
    labels = [interval.label for interval in intervals(pipeline)]
    assert [warehouse.rows("reference_goods", label) for label in labels] == [4, 0, 5, 0]
    assert [warehouse.rows("reference_owners", label) for label in labels] == [4, 0, 0, 0]
    versions = warehouse.read_arrow("table_versions").to_pylist()
    since = [(row["in_effect_from"] - START) // timedelta(hours=1) for row in versions if row["table"] == "goods"]
    assert since == [0, 0, 2, 2]
    assert {row["columns"] for row in versions if row["table"] == "owners"} == {
        "id integer, country string, since timestamp, until timestamp; key id, valid from since to until"
    }


def test_a_live_run_gives_the_same_rows(flat, tmp_path: Path) -> None:
    """The version is that of the moment at which the interval begins to be read, here of the hour's own."""
    pipeline = declare(tmp_path / "market", flat=False)
    first = interval_at(pipeline, START)
    for hour in range(HOURS):
        write_tables(pipeline.folder, hour)
        end_us = interval_at(pipeline, START + timedelta(hours=hour + 1)).start_us
        with (
            RunContext(pipeline, tmp_path / "warehouse", here=True) as context,
            Live(context, first, end_us, STAGES, 0.05) as live,
        ):
            live.run()
            assert live.ended
    assert rows(tmp_path / "warehouse", pipeline) == flat


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "goods.csv: the file is not there"),
        ("", "the file is empty"),
        ("shop,product,owner\n1,a,1\n", "it has no column 'category'"),
        ("shop,product,category,owner\n1,a,x,1\n1,b,y,many\n", "row 2: column owner: 'many' is not of type integer"),
        ("shop,product,category,owner\n1,a,x,1\n,b,y,2\n", "row 2: column shop has no value"),
        (
            "shop,product,category,owner\n1,a,x,1\n1,b,x,1\n1,a,y,2\n",
            "row 1: it and row 3 have the same key shop 1, product a",
        ),
    ],
)
def test_a_table_that_cannot_be_read_stops_ingest_with_a_sentence(text: str | None, said: str, tmp_path: Path) -> None:
    pipeline = declare(tmp_path / "market", flat=False)
    goods = pipeline.folder / "goods.csv"
    goods.unlink() if text is None else goods.write_text(text)
    with RunContext(pipeline, tmp_path / "warehouse", here=True) as context:
        with pytest.raises(UserError, match="reference table goods: ") as raised:
            stages.run(context, intervals(pipeline)[:1], ["ingest"])
        assert said in str(raised.value)
        assert context.warehouse.labels("events_orders") == []


def test_rows_that_are_valid_at_once_are_refused(tmp_path: Path) -> None:
    pipeline = declare(tmp_path / "market", flat=False)
    text = f"id,country,since,until\n1,DE,,{_hour(2)}\n1,FR,{_hour(1)},\n"
    (pipeline.folder / "owners.csv").write_text(text)
    with (
        RunContext(pipeline, tmp_path / "warehouse", here=True) as context,
        pytest.raises(UserError, match="row 1: it and row 2 are valid at the same time for the key id 1"),
    ):
        stages.run(context, intervals(pipeline)[:1], ["ingest"])


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_parquet_and_delta_are_read_as_csv_is(kind: str, tmp_path: Path) -> None:
    """Values of a file's own types, in another order of rows and columns, are the same version."""
    pipeline = declare(tmp_path / "market", flat=False)
    wanted = read_reference(pipeline.tables[0])
    owners = read_reference(pipeline.tables[1])
    path = tmp_path / f"goods.{kind}"
    other = wanted.take([3, 1, 0, 2]).select(["owner", "category", "product", "shop"])
    other = other.set_column(0, "owner", other.column("owner").cast("int32"))
    if kind == "parquet":
        pq.write_table(other.append_column("unread", [list("abcd")]), path)
    else:
        write_deltalake(path, other)
    table = pipeline.tables[0].model_copy(update={"path": str(path), "format": kind})
    assert read_reference(table).equals(wanted)
    assert version_of(read_reference(table)) == version_of(wanted) != version_of(owners)
    assert version_of(wanted.slice(0, 3)) != version_of(wanted)


def test_a_table_that_is_too_large_for_the_process_budget_is_refused(tmp_path: Path) -> None:
    pipeline = declare(tmp_path / "market", flat=False).model_copy(update={"process_budget_bytes": 1000})
    with (
        RunContext(pipeline, tmp_path / "warehouse", here=True) as context,
        pytest.raises(UserError, match="the reference tables take .* more than an eighth of the process budget"),
    ):
        stages.run(context, intervals(pipeline)[:1], ["ingest"])


def test_another_declaration_reads_an_interval_anew_and_leaves_the_others_theirs(tmp_path: Path) -> None:
    pipeline, root = declare(tmp_path / "market", flat=False), tmp_path / "warehouse"
    with RunContext(pipeline, root, here=True) as context:
        stages.run(context, intervals(pipeline)[:2], ["ingest"])
    text = (pipeline.folder / "pipeline.yml").read_text()
    (pipeline.folder / "pipeline.yml").write_text(
        text.replace("category: string, owner", "category: string, place: string, owner")
    )
    goods = pipeline.folder / "goods.csv"
    goods.write_text("shop,product,category,owner,place\n1,a,food,1,here\n")
    again = load_pipeline(pipeline.folder)
    with RunContext(again, root, here=True) as context:
        stages.run(context, intervals(pipeline)[:1], ["ingest"])
    rows = (
        Warehouse(root, again).read_arrow("reference_goods", columns=["table_version", "product", "place"]).to_pylist()
    )
    assert len({row["table_version"] for row in rows}) == 2
    assert [row["product"] for row in rows if row["place"]] == ["a"]
    assert len(rows) == 5, "the second interval still refers to the four rows of the first version"


def test_history_does_not_fill_what_is_looked_up(tmp_path: Path) -> None:
    pipeline = declare(tmp_path / "market", flat=False)
    with pytest.raises(
        UserError, match="query sums looks up goods: history fills windows from the stream's own columns"
    ):
        Filling.of(Warehouse(tmp_path / "warehouse", pipeline), pipeline.query("sums"), 0.95)


def test_explain_says_what_is_looked_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    declare(tmp_path / "market", flat=False)
    assert main(["explain", str(tmp_path / "market")]) == 0
    text = capsys.readouterr().out
    assert "Reference table owners" in text and "from since to before until" in text
    assert "looked up   o: goods by shop, product" in text
    assert "all tables together at most 384 MiB" in text
