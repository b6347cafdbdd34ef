"""More than one answer a window (EMIT): updates on top of the promised answer are the answer of every instant."""

from __future__ import annotations

import io
import json
from collections import Counter, defaultdict
from collections.abc import Container, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
import yaml

from tidegate.declarations import load_pipeline
from tidegate.declarations.errors import DeclarationErrors
from tidegate.declarations.explain import describe
from tidegate.declarations.tables import tables
from tidegate.engine.context import RunContext
from tidegate.live.run import Live
from tidegate.queries.updates import updates_between
from tidegate.sql.relations import files_of, manifest_path, relations
from tidegate.stages.dbt_project import render_project
from tidegate.stages.run import run, stages_named
from tidegate.store.intervals import intervals_between
from tidegate.store.warehouse import Warehouse

START = datetime(2026, 1, 5, tzinfo=UTC)
HOURS, ORDERS_AN_HOUR = 6, 80
MINUTE = timedelta(minutes=1)
RANGE, HORIZON, APART = 30 * MINUTE, 60 * MINUTE, 15 * MINUTE
PIPELINE = """\
name: shop
owner: sales
start: 2026-01-05T00:00:00Z
interval: 1 hour
tick: 5 minutes
horizon: 1 hour
memory_budget: {memory}
process_budget: 2 GiB
promise_period: 2 hours
initial_slack: 7 minutes
streams:
  orders:
    format: jsonl
    path: landing/%Y-%m-%dT%H.jsonl
    columns: {{id: string, placed: timestamp, received: timestamp, customer: string, depot: string, amount: integer}}
    id: id
    event_time: placed
    arrival_time: received
    rate: 80 per hour
"""
BOTH = "EVERY 10 MINUTES EMIT EARLY, EVERY 15 MINUTES UNTIL FINAL"
QUERIES = {
    "depots": "SELECT depot, COUNT(*) AS n, SUM(amount) AS revenue FROM orders [30 MINUTES] GROUP BY depot "
    f"HAVING COUNT(*) < 9 ERROR 5% {BOTH}",
    "all_orders": f"SELECT COUNT(*) AS n, MAX(amount) AS most FROM orders [30 MINUTES] {BOTH}",
    "largest": f"SELECT id, amount FROM orders [30 MINUTES] ORDER BY amount DESC LIMIT 3 ACCURACY 60% {BOTH}",
    "best": "SELECT customer, SUM(amount) AS revenue FROM orders [30 MINUTES] GROUP BY customer "
    f"ORDER BY revenue DESC LIMIT 3 ACCURACY 70% {BOTH}",
    "pairs": "SELECT a.depot, COUNT(*) AS n FROM orders [30 MINUTES] a, orders [30 MINUTES] b "
    f"WHERE a.customer = b.customer AND a.amount > b.amount GROUP BY a.depot ERROR 50% {BOTH}",
    "early_alone": "SELECT depot, COUNT(*) AS n FROM orders [30 MINUTES] GROUP BY depot ERROR 5% EVERY 10 MINUTES "
    "EMIT EARLY",
    "plain": "SELECT depot, COUNT(*) AS n FROM orders [30 MINUTES] GROUP BY depot ERROR 5% EVERY 10 MINUTES",
}
OF_ALL = [name for name in QUERIES if name not in ("early_alone", "plain")]
KEYS = {"depots": ["depot"], "all_orders": [], "largest": ["rank"], "best": ["customer"], "pairs": ["depot"]}
KEYS["early_alone"] = ["depot"]
OF_EACH = "QUALIFY ROW_NUMBER() OVER (PARTITION BY depot ORDER BY {} DESC) <= 2"
OTHERS = {
    "tumbling": "SELECT window_start, window_end, depot, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE orders, "
    "DESCRIPTOR(placed), INTERVAL '30' MINUTES)) GROUP BY window_start, window_end, depot ERROR 5% "
    "EMIT EARLY, EVERY 5 MINUTES UNTIL FINAL",
    "largest_each": f"SELECT depot, id, amount FROM orders [30 MINUTES] {OF_EACH.format('amount')} ACCURACY 90% {BOTH}",
    "chosen": "SELECT customer, MEDIAN(amount) AS m, COUNT(DISTINCT depot) AS d, MAX_BY(depot, amount) AS most "
    f"FROM orders [30 MINUTES] GROUP BY customer ERROR 50% {BOTH}",
    "best_each": "SELECT depot, customer, COUNT(*) AS n FROM orders [30 MINUTES] GROUP BY depot, customer "
    f"{OF_EACH.format('COUNT(*)')} ACCURACY 70% ON MISS CORRECT {BOTH} "
    "DURATION ['2026-01-05T01:00:00Z', '2026-01-05T04:00:00Z')",
}
KEYS |= {"tumbling": ["depot"], "largest_each": ["depot", "rank"], "chosen": ["customer"]}
KEYS["best_each"] = ["depot", "customer"]
Row = dict[str, Any]


@cache
def orders() -> list[Row]:
    """Every fifth order is late, some of them by nearly an hour."""
    rng, found = np.random.default_rng(5), []
    for number in range(HOURS * ORDERS_AN_HOUR):
        placed = START + timedelta(seconds=int(number * 3600 / ORDERS_AN_HOUR))
        delay_s = int(rng.integers(0, 3400) if rng.random() < 0.2 else rng.integers(0, 60))
        found.append(
            {
                "id": f"o{number:04}",
                "placed": placed,
                "received": placed + timedelta(seconds=delay_s),
                "customer": f"c{rng.integers(15)}",
                "depot": f"d{rng.integers(5)}",
                "amount": int(rng.integers(1, 1000)),
            }
        )
    return found


def declared(folder: Path, memory: str = "4 MiB", queries: dict[str, str] = QUERIES) -> Path:
    (folder / "shop" / "queries").mkdir(parents=True)
    (folder / "shop" / "landing").mkdir()
    (folder / "shop" / "pipeline.yml").write_text(PIPELINE.format(memory=memory))
    for name, text in queries.items():
        (folder / "shop" / "queries" / f"{name}.sql").write_text(text)
    by_hour = defaultdict(list)
    for order in sorted(orders(), key=lambda order: order["received"]):
        by_hour[order["received"].strftime("%Y-%m-%dT%H")].append(order)
    for hour, rows in by_hour.items():
        lines = [json.dumps(row, default=lambda at: at.isoformat()) for row in rows]
        (folder / "shop" / "landing" / f"{hour}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return folder / "shop"


def answered(folder: Path, passes: int = 1, memory: str = "4 MiB", queries: dict[str, str] = QUERIES) -> Warehouse:
    """The warehouse after so many runs."""
    pipeline = load_pipeline(declared(folder, memory, queries))
    intervals = intervals_between(pipeline, START, START + timedelta(hours=HOURS))
    for part in np.array_split(np.arange(len(intervals)), passes):
        with RunContext(pipeline, folder / "warehouse", output=io.StringIO(), here=True) as context:
            run(context, [intervals[i] for i in part], stages_named(["answers"]))
    return Warehouse(folder / "warehouse", pipeline)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    return answered(tmp_path_factory.mktemp("shop"))


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """With too little memory for whole ranges until windows are final."""
    return answered(tmp_path_factory.mktemp("narrow"), memory="9 KiB")


def known(query: str, end: datetime, at: datetime) -> list[Row]:
    """The answer to a query of a window at an instant, by everything that had arrived."""
    there = [o for o in orders() if end - RANGE <= o["placed"] < end and o["received"] <= at]
    if query == "all_orders":
        return [{"n": len(there), "most": max((o["amount"] for o in there), default=None)}]
    if query == "largest":
        first = sorted(there, key=lambda o: (-o["amount"], o["placed"], o["id"]))[:3]
        return [{"rank": rank, "id": o["id"], "amount": o["amount"]} for rank, o in enumerate(first, start=1)]
    if query == "pairs":
        pairs = Counter(
            a["depot"] for a in there for b in there if a["customer"] == b["customer"] and a["amount"] > b["amount"]
        )
        return [{"depot": depot, "n": n} for depot, n in pairs.items()]
    by, revenue = ("customer" if query == "best" else "depot"), Counter[str]()
    counts = Counter(o[by] for o in there)
    for o in there:
        revenue[o[by]] += o["amount"]
    if query == "best":
        first = sorted(revenue, key=lambda c: (-revenue[c], c))[:3]
        return [{"rank": i, "customer": c, "revenue": revenue[c]} for i, c in enumerate(first, start=1)]
    if query == "early_alone":
        return [{"depot": depot, "n": n} for depot, n in counts.items()]
    return [{"depot": depot, "n": n, "revenue": revenue[depot]} for depot, n in counts.items() if n < 9]


def replayed(warehouse: Warehouse, query: str) -> Iterator[tuple[datetime, int, datetime, list[Row]]]:
    """Window end, revision, its instant, and the newest revision of each row by then; of windows that were answered."""
    answers, updates = (warehouse.read_arrow(f"{kind}_{query}").to_pylist() for kind in ("answers", "updates"))
    by_window: dict[datetime, list[Row]] = defaultdict(list)
    emitted: dict[datetime, datetime] = {}
    for row in answers:
        emitted[row["window_end"]] = row["emitted_at"]
        by_window[row["window_end"]].append({**row, "revision": 1, "deleted": False})
    for row in updates:
        by_window[row["window_end"]].append(row)
    for end, rows in by_window.items():
        if end not in emitted:
            continue
        instants = {1: emitted[end]}
        if warehouse.pipeline.query(query).emit_early and emitted[end] > end:
            instants[0] = end
        if warehouse.pipeline.query(query).emit_every_s:
            at, number = emitted[end] + APART, 2
            while at < end + HORIZON:
                instants[number], at, number = at, at + APART, number + 1
            instants[number] = max(emitted[end], end + HORIZON)
        for revision, at in sorted(instants.items()):
            newest: dict[tuple[Any, ...], Row] = {}
            for row in sorted((r for r in rows if r["revision"] <= revision), key=lambda r: r["revision"]):
                newest[tuple(row[name] for name in KEYS[query])] = row
            left = [row for row in newest.values() if not row["deleted"]]
            assert all(row["emitted_at"] <= at for row in left)
            yield end, revision, at, left


def content(rows: list[Row], names: list[str]) -> list[str]:
    return sorted(repr([row[name] for name in names]) for row in rows)


@pytest.mark.parametrize("query", [*OF_ALL, "early_alone"])
def test_updates_on_top_of_the_promised_answer_are_the_answer_of_every_instant(shop: Warehouse, query: str) -> None:
    names = ["rank"] if query in ("largest", "best") else []
    names += [output.name for output in shop.pipeline.query(query).outputs]
    until = START + timedelta(hours=HOURS)
    compared = Counter[int]()
    for end, revision, at, rows in replayed(shop, query):
        if at < until and end >= START + RANGE:
            assert content(rows, names) == content(known(query, end, at), names), (end, revision, at)
            compared[revision] += 1
    assert compared[1] > 20
    if query != "all_orders":  # it promises nothing, and waits for nothing
        assert compared[0] > 20
    if query in OF_ALL:
        assert compared[2] > 20 and len(compared) > 3


@pytest.mark.parametrize("query", OF_ALL)
def test_the_last_revision_is_the_truth(shop: Warehouse, narrow: Warehouse, query: str) -> None:
    names = [output.name for output in shop.pipeline.query(query).outputs]
    for warehouse in (shop, narrow):
        truth = defaultdict(list)
        for row in warehouse.read_arrow(f"truth_{query}").to_pylist():
            truth[row["window_end"]].append(row)
        last = {end: (at, rows) for end, _, at, rows in replayed(warehouse, query)}
        compared = 0
        for end, (at, rows) in last.items():
            if at < START + timedelta(hours=HOURS) and end in truth:
                # Truth has the groups, too, that are as good as the last of the best.
                true = truth[end][: len(rows)] if query == "best" else truth[end]
                assert content(rows, names) == content(true, names)
                compared += 1
        assert compared > 20


def test_queries_of_other_kinds_end_with_the_truth_too(tmp_path: Path) -> None:
    others = answered(tmp_path, queries=OTHERS)
    judged = {(r["query"], r["window_end"]) for r in others.read_arrow("accuracy").to_pylist()}
    for query in OTHERS:
        # What was final at the very end of the last interval has no row yet.
        ends = {end for name, end in judged if name == query and end + HORIZON < START + timedelta(hours=HOURS)}
        names = ["window_end", *(output.name for output in others.pipeline.query(query).outputs)]
        truth = [row for row in others.read_arrow(f"truth_{query}").to_pylist() if row["window_end"] in ends]
        true = [row for row in truth if query != "best_each" or row["rank"] <= 2]
        assert newest(others, query, names, ends) == content(true, names) and len(true) > 20
    starts = {row["window_end"] - row["window_start"] for row in others.read_arrow("updates_tumbling").to_pylist()}
    assert starts == {RANGE}


def test_only_what_differs_is_a_row(shop: Warehouse) -> None:
    kinds = Counter[str]()
    for query in ("depots", "largest"):
        names = [output.name for output in shop.pipeline.query(query).outputs]
        before: dict[tuple[Any, ...], Row] = {}
        answer = {"revision": 1, "deleted": False, "kind": "answer"}
        rows = [{**row, **answer} for row in shop.read_arrow(f"answers_{query}").to_pylist()]
        rows += shop.read_arrow(f"updates_{query}").to_pylist()
        for row in sorted(rows, key=lambda r: (r["window_end"], r["revision"])):
            key = (row["window_end"], *(row[name] for name in KEYS[query]))
            earlier = before.get(key)
            if row["kind"] != "answer":
                kinds[row["kind"]] += 1
                differs = earlier is None or earlier["deleted"] or row["deleted"]
                assert differs or [earlier[n] for n in names] != [row[n] for n in names]
                assert earlier is not None or not row["deleted"]
            before[key] = row
    assert set(kinds) == {"early", "update", "final"}
    gone = [row for row in shop.read_arrow("updates_depots").to_pylist() if row["deleted"]]
    assert gone and {row["revenue"] for row in gone} == {None}


@pytest.mark.parametrize("memory", ["4 MiB", "9 KiB"])
def test_runs_over_fewer_intervals_give_the_same_rows(
    shop: Warehouse, narrow: Warehouse, memory: str, tmp_path: Path
) -> None:
    once = shop if memory == "4 MiB" else narrow
    others = answered(tmp_path, passes=3, memory=memory)
    for query in (*OF_ALL, "early_alone"):
        for table in (f"updates_{query}", f"answers_{query}"):
            own = [sorted(map(repr, w.read_arrow(table).to_pylist())) for w in (once, others)]
            assert own[0] == own[1], table


def test_what_a_live_step_adds_is_what_the_interval_has(shop: Warehouse) -> None:
    """The same instants, cut into steps of ticks."""
    pipeline = shop.pipeline
    here = intervals_between(pipeline, START + timedelta(hours=3), START + timedelta(hours=4))[0]
    with RunContext(pipeline, shop.root, output=io.StringIO(), here=True) as context:
        for query in (pipeline.query(name) for name in OF_ALL):
            bounds = [here.start_us, here.start_us + 5 * 60_000_000, here.start_us + 25 * 60_000_000, here.end_us]
            steps = [
                updates_between(context, query, start, end, here)
                for start, end in zip(bounds, bounds[1:], strict=False)
            ]
            own = [repr(row) for step in steps for row in step.to_pylist()]
            whole = shop.read_arrow(f"updates_{query.id}", [here.label]).drop_columns("interval").to_pylist()
            assert sorted(own) == sorted(map(repr, whole)) and own


def test_a_live_run_gives_the_same_rows(shop: Warehouse, tmp_path: Path) -> None:
    """Live raises if what it answered is not what its interval's run answers."""
    pipeline = load_pipeline(declared(tmp_path))
    intervals = intervals_between(pipeline, START, START + timedelta(hours=3))
    lines = io.StringIO()
    with (
        RunContext(pipeline, tmp_path / "warehouse", output=lines, here=True) as context,
        Live(context, intervals[0], intervals[-1].end_us, stages_named(["answers"]), 0.05, 0.0) as live,
    ):
        live.run()
    there = Warehouse(tmp_path / "warehouse", pipeline)
    labels = [interval.label for interval in intervals]
    for query in (*OF_ALL, "early_alone"):
        own = [sorted(map(repr, w.read_arrow(f"updates_{query}", labels).to_pylist())) for w in (shop, there)]
        assert own[0] == own[1] and own[0], query
    assert lines.getvalue().count("the interval's run gave the same") == len(intervals)


def test_with_narrow_windows_updates_keep_the_bounds_of_the_promised_answer(narrow: Warehouse) -> None:
    coverages = defaultdict(set)
    answers = narrow.read_arrow("answers_depots").to_pylist()
    coverage = {row["window_end"]: row["coverage"] for row in answers}
    assert min(coverage.values()) < 1
    for row in narrow.read_arrow("updates_depots").to_pylist():
        if row["window_end"] in coverage and row["kind"] == "update" and row["revision"] > 1:
            assert row["coverage"] == coverage[row["window_end"]]
            coverages["update"].add(row["coverage"])
        elif row["kind"] == "final":
            assert row["coverage"] == 1
            coverages["final"].add(row["coverage"])
    assert min(coverages["update"]) < 1 and coverages["final"] == {1.0}


def test_what_is_expected_grows_with_the_wait(shop: Warehouse) -> None:
    expected = defaultdict(set)
    for query in ("depots", "largest", "best", "pairs"):
        for table in (f"updates_{query}", f"answers_{query}"):
            for row in shop.read_arrow(table).to_pylist():
                if row["accuracy_expected"] is not None:
                    assert row.get("kind") != "final" or row["accuracy_expected"] == 1
                    expected[query, row["window_end"]].add((row["emitted_at"], row["accuracy_expected"]))
    several = [[value for _, value in sorted(values)] for values in expected.values() if len(values) > 2]
    assert len(several) > 10 and all(values == sorted(values) for values in several)
    assert any(values[0] < values[1] for values in several) and any(values[-2] < values[-1] for values in several)


def test_memory_is_planned_until_windows_are_final(shop: Warehouse) -> None:
    widths = {row["width_s"] for row in shop.read_arrow("window_plan").to_pylist()}
    assert widths == {(RANGE + HORIZON).total_seconds()}


def test_only_queries_that_emit_have_updates(shop: Warehouse) -> None:
    assert "updates_plain" not in tables(shop.pipeline) and "updates_early_alone" in tables(shop.pipeline)
    kinds = {row["kind"] for row in shop.read_arrow("updates_early_alone").to_pylist()}
    assert "early" in kinds and "final" not in kinds


def newest(shop: Warehouse, query: str, names: list[str], ends: Container[datetime] | None = None) -> list[str]:
    """What the mart ``latest_<query>`` is to have, of some windows: also of those that have early answers alone."""
    rows: dict[tuple[Any, ...], Row] = {}
    answers = [{**row, "revision": 1, "deleted": False} for row in shop.read_arrow(f"answers_{query}").to_pylist()]
    for row in sorted([*answers, *shop.read_arrow(f"updates_{query}").to_pylist()], key=lambda r: r["revision"]):
        rows[row["window_end"], *(row[name] for name in KEYS[query])] = row
    there = [row for row in rows.values() if not row["deleted"] and (ends is None or row["window_end"] in ends)]
    return content(there, names)


@pytest.mark.parametrize("query", ["depots", "all_orders", "largest", "best"])
def test_the_mart_has_the_newest_of_each_row(shop: Warehouse, query: str, tmp_path: Path) -> None:
    render_project(shop, tmp_path / "project")
    sql = (tmp_path / "project" / "models" / "marts" / f"latest_{query}.sql").read_text()
    (model,) = yaml.safe_load((tmp_path / "project" / "models" / "marts" / f"latest_{query}.yml").read_text())["models"]
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for kind in ("answers", "updates"):
        connection.register(f"{kind}_{query}", shop.read_arrow(f"{kind}_{query}"))
        sql = sql.replace(f"{{{{ ref('stg_{kind}_{query}') }}}}", f"{kind}_{query}")
    names = ["window_end", "revision", *(output.name for output in shop.pipeline.query(query).outputs)]
    by_dbt = connection.sql(sql.replace("`", '"')).to_arrow_table()
    assert by_dbt.schema.names == [column["name"] for column in model["columns"]]
    node = {**model, "columns": {c["name"]: c for c in model["columns"]}, "resource_type": "model"}
    node |= {"fqn": ["tidegate", "marts", model["name"]]}
    manifest = manifest_path(shop)
    manifest.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_text(json.dumps({"sources": {}, "nodes": {"latest": node}}))
    (relation,) = [one for one in relations(shop) if one.name == f"latest_{query}"]
    manifest.unlink()
    connection.execute("CREATE SCHEMA tidegate")
    connection.execute(relation.duckdb_ddl(files_of(shop, relation)))
    by_door = connection.sql(f"SELECT * FROM tidegate.latest_{query}").to_arrow_table()
    assert sorted(by_door.schema.names) == sorted(by_dbt.schema.names)
    expected = newest(shop, query, names)
    assert len(expected) > 30
    for rows in (by_dbt, by_door):
        assert content(rows.to_pylist(), names) == expected
        assert {row["kind"] for row in rows.to_pylist()} >= {"answer", "update"}


def test_explain_says_which_answers_there_are_and_what_memory_they_take(shop: Warehouse) -> None:
    lines = " ".join(describe(shop.pipeline).split())
    assert "an early answer at the window's end" in lines
    assert "updates every 15 minutes after the promised answer, and the final one" in lines
    assert "memory is planned for range + horizon (orders: 90 minutes)" in lines


def test_more_than_a_thousand_updates_a_window_are_refused(tmp_path: Path) -> None:
    folder = declared(tmp_path)
    text = (folder / "pipeline.yml").read_text().replace("horizon: 1 hour", "horizon: 10 days")
    (folder / "pipeline.yml").write_text(text)
    query = "SELECT COUNT(*) AS n FROM orders [30 MINUTES] EMIT EVERY 10 MINUTES UNTIL FINAL"
    (folder / "queries" / "plain.sql").write_text(query)
    with pytest.raises(DeclarationErrors) as refused:
        load_pipeline(folder)
    assert "a window would have 1440 answers until it is final; expected EMIT EVERY at least 15 minutes" in str(
        refused.value
    )
