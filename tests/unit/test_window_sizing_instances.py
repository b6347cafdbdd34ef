"""``plan-windows``: the JSON contract, and every kind of bad input named by its place."""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tidegate.apps.plan_windows import format_bytes, format_seconds, needs, plan_windows, render
from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Column, Pipeline, Query, Stream, Window

INSTANCE = {
    "memory_budget_bytes": 41,
    "windows": [{"id": "a", "tuple_bytes": 3, "rate": 1}, {"id": "b", "tuple_bytes": 2, "rate": 1.0}],
    "queries": [
        {"id": "p", "ranges_s": {"a": 10}, "slack_width_s": 0, "delay_s": 20},
        {"id": "q", "ranges_s": {"b": 10}, "slack_width_s": 0.0, "delay_s": 25},
    ],
}


def _changed(path: str, value: object) -> str:
    """The instance with the value at that JSON pointer replaced; ... removes it."""
    instance = copy.deepcopy(INSTANCE)
    *parents, last = [int(token) if token.isdigit() else token for token in path.strip("/").split("/")]
    target = instance
    for token in parents:
        target = target[token]
    if value is ...:
        del target[last]
    else:
        target[last] = value
    return json.dumps(instance)


def test_the_contract_s_keys():
    planned = json.loads(plan_windows(json.dumps(INSTANCE), "dp"))
    assert planned == {
        "support_level": "C",
        "needed_bytes": {"A": 50.0, "B": 50.0, "C": 30.0},
        "planned_bytes": 30.0,
        "accumulated_error_s": 20.0,
        "windows": [
            {
                "id": "a",
                "width_s": 0.0,
                "min_width_s": 10.0,
                "max_width_s": 10.0,
                "static_bytes": 0.0,
                "exchange_bytes": 30.0,
                "group": 0,
            },
            {
                "id": "b",
                "width_s": 0.0,
                "min_width_s": 10.0,
                "max_width_s": 10.0,
                "static_bytes": 0.0,
                "exchange_bytes": 20.0,
                "group": 0,
            },
        ],
        "groups": [{"id": 0, "windows": ["a", "b"], "share_bytes": 30.0, "period_s": 20.0}],
        "unsupported_queries": [],
        "optimal": True,
        "gap": 0.0,
    }


def test_infeasible_reports_what_would_do():
    planned = json.loads(plan_windows(_changed("/memory_budget_bytes", 29)))
    assert planned["support_level"] == "infeasible"
    assert planned["planned_bytes"] <= 29 < planned["needed_bytes"]["C"]
    assert planned["unsupported_queries"] == ["p"]


def test_optional_keys_are_read():
    text = json.loads(_changed("/memory_budget_bytes", 29))
    text["queries"][0] |= {"weight": 2, "priority": 1}
    text["windows"][0]["max_width_s"] = 12
    assert json.loads(plan_windows(json.dumps(text)))["unsupported_queries"] == ["p"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "/: the instance is empty"),
        ("  \n ", "/: the instance is empty"),
        ("{", "line 1, column 2: not JSON"),
        ("nonsense", "line 1, column 1: not JSON"),
        ("[" * 100_000, "not readable as JSON"),
        ("9" * 10_000, "not readable as JSON"),
        ("[]", "/: expected an object, found a list"),
        ("null", "/: expected an object, found null"),
        ("{}", "/windows: missing; expected a list of objects"),
        (_changed("/memory_budget_bytes", ...), "/memory_budget_bytes: missing"),
        (_changed("/memory_budget_bytes", -1), "/memory_budget_bytes: expected a number of at least 0, found -1"),
        (_changed("/memory_budget_bytes", float("nan")), "/memory_budget_bytes: expected a number of .*nan"),
        (_changed("/memory_budget_bytes", float("inf")), "/memory_budget_bytes: expected at most 1e+15, found inf"),
        (_changed("/memory_budget_bytes", float("-inf")), "/memory_budget_bytes: expected a number of at least 0"),
        (_changed("/memory_budget_bytes", 10**400), "/memory_budget_bytes: expected at most 1e+15, found a number of"),
        (_changed("/memory_budget_bytes", "64 KiB"), "/memory_budget_bytes: expected .*found the string"),
        (_changed("/memory_budget_bytes", True), "found true"),
        (_changed("/windows", []), "/windows: empty"),
        (_changed("/windows", {}), "/windows: expected a list of objects, found an object"),
        (_changed("/windows/0", 7), "/windows/0: expected an object, found the number 7"),
        (_changed("/windows/0/id", ...), "/windows/0/id: missing"),
        (_changed("/windows/0/id", ""), "/windows/0/id: empty"),
        (_changed("/windows/0/id", 5), "/windows/0/id: expected a non-empty string"),
        (_changed("/windows/1/id", "a"), "/windows/1/id: 'a' is already the id at /windows/0/id"),
        (_changed("/windows/0/rate", -0.5), "/windows/0/rate: expected a number of at least 0, found -0.5"),
        (_changed("/windows/0/rate", None), "/windows/0/rate: expected a number of at least 0, found null"),
        (_changed("/windows/0/tuple_bytes", 0), "/windows/0/tuple_bytes: expected a number above 0, found 0"),
        (_changed("/windows/0/tuple_bytes", 1e16), "/windows/0/tuple_bytes: expected at most 1e+15"),
        (_changed("/windows/0/tuple_byte", 3), "/windows/0/tuple_byte: unknown key; .*did you mean 'tuple_bytes'?"),
        (_changed("/windows/0/a~1b", 3), "/windows/0/a~01b: unknown key"),
        (_changed("/queries", []), "/queries: empty"),
        (_changed("/queries/0/ranges_s", {}), "/queries/0/ranges_s: empty"),
        (_changed("/queries/0/ranges_s", [1]), "/queries/0/ranges_s: expected an object, found a list"),
        (_changed("/queries/0/ranges_s", ...), "/queries/0/ranges_s: missing"),
        (_changed("/queries/0/ranges_s/c", 1), "/queries/0/ranges_s/c: unknown window"),
        (_changed("/queries/0/ranges_s/a", 0), "/queries/0/ranges_s/a: expected a number above 0"),
        (_changed("/queries/0/slack_width_s", -3), "/queries/0/slack_width_s: expected a number of at least 0"),
        (_changed("/queries/0/slack_width_s", ...), "/queries/0/slack_width_s: missing"),
        (_changed("/queries/0/delay_s", [20]), "/queries/0/delay_s: expected a number of at least 0, found a list"),
        (_changed("/queries/0/priority", 1.5), "/queries/0/priority: expected a whole number"),
        (_changed("/queries/0/weight", 0), "/queries/0/weight: expected a number above 0"),
        (_changed("/queries/1/id", "p"), "/queries/1/id: 'p' is already the id at /queries/0/id"),
        (_changed("/budget", 1), "/budget: unknown key"),
        ('{"windows": [], "windows": []}', "/windows: the key is given twice"),
        (json.dumps(INSTANCE).replace('{"a": 10}', '{"a": 1, "a": 2}'), "/ranges_s/a: the key is given twice"),
        (_changed("/windows/0/id", "\ud800\n" + "x" * 500), "/queries/0/ranges_s/a: unknown window"),
    ],
)  # fmt: skip
def test_bad_input_is_named_by_its_place(text, message):
    with pytest.raises(UserError) as error:
        plan_windows(text)
    assert all(part in str(error.value) for part in message.split(".*"))
    assert len(str(error.value)) < 10_000


def test_every_mistake_is_reported_at_once():
    instance = json.loads(_changed("/windows/0/rate", -1))
    del instance["queries"][1]["delay_s"]
    with pytest.raises(UserError) as error:
        plan_windows(json.dumps(instance))
    assert "/windows/0/rate" in str(error.value) and "/queries/1/delay_s" in str(error.value)
    assert str(error.value).endswith("2 mistakes found in the instance")


def test_an_unknown_method_and_too_many_windows():
    with pytest.raises(UserError, match="method 'exakt' is unknown; .*did you mean 'exact'"):
        plan_windows(json.dumps(INSTANCE), "exakt")
    windows = [{"id": f"w{i}", "tuple_bytes": 1, "rate": 1} for i in range(21)]
    queries = [{"id": f"q{i}", "ranges_s": {f"w{i}": 9 + i}, "slack_width_s": 0, "delay_s": 30} for i in range(21)]
    instance = {"memory_budget_bytes": 395, "windows": windows, "queries": queries}
    for method in ("dp", "exact"):
        with pytest.raises(UserError, match="/windows: .*at most 20 windows"):
            plan_windows(json.dumps(instance), method)
    planned = json.loads(plan_windows(json.dumps(instance), "ap"))
    assert planned["support_level"] == "C" and planned["gap"] >= 0


def test_extreme_but_lawful_numbers_give_a_finite_plan():
    instance = json.loads(_changed("/windows/0/rate", 1e-300))
    instance["memory_budget_bytes"] = 1e15
    planned = json.loads(plan_windows(json.dumps(instance)))
    assert planned["support_level"] == "A" and planned["planned_bytes"] <= 1e15
    assert planned["windows"][0]["width_s"] <= 1e15


def _pipeline(budget: int) -> Pipeline:
    stream = Stream(
        name="departures", format="jsonl", path="x", columns=(Column(name="flight", type="string"),), event_time="at",
        arrival_time=None, id="flight", rate=40 / 3600, max_early_s=0, max_late_s=0,
    )  # fmt: skip
    query = Query(
        id="busy", kind="aggregate", text="", description="", predicates={}, outputs=(), error=0.5, every_s=600,
        windows=(Window(alias="d", stream="departures", range_s=3600),),
    )  # fmt: skip
    return Pipeline(
        name="flights", folder=Path("."), owner="o", start=datetime(2013, 1, 1, tzinfo=UTC), interval_s=3600,
        tick_s=300, horizon_s=3600, memory_budget_bytes=budget, process_budget_bytes=1, streams=(stream,),
        queries=(query,),
    )  # fmt: skip


def test_needs_of_a_pipeline():
    summary = needs(_pipeline(1200))
    assert summary.needed_bytes == pytest.approx(
        {"A": 1600.0, "B": 800.0, "C": 800.0}
    )  # one window has no turns to take
    assert (summary.support_level, summary.streams[0].width_s) == ("B", 2700.0)
    assert summary.planned_bytes <= 1200


@pytest.mark.parametrize("budget", [0, 1, 500, 1200, 1600, 10**9])
def test_the_picture_says_level_and_budget(budget):
    summary = needs(_pipeline(budget))
    text = render(summary)
    assert f"budget {format_bytes(budget)}" in text and "departures" in text
    assert all(len(line) <= 110 for line in text.splitlines())
    named = "below level B" if summary.support_level == "infeasible" else f"at level {summary.support_level}"
    assert named in text


def test_readable_sizes():
    assert [format_bytes(n) for n in (0, 1023, 1536, 64 * 1024, 3 * 2**30)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "64 KiB",
        "3 GiB",
    ]
    assert [format_seconds(s) for s in (0, 59, 90, 5400, 172800)] == ["0 s", "59 s", "1.5 min", "1.5 h", "2 d"]
