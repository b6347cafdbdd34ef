"""``plan-windows``: the JSON contract, and every kind of bad input named by its place."""

from __future__ import annotations

import copy
import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples import examples

from tidegate.cli import main
from tidegate.cli.memory_ladder import needs, render
from tidegate.cli.plan_windows import MOST_BYTES, plan_windows
from tidegate.declarations.errors import UserError
from tidegate.declarations.models import Column, Pipeline, Query, Stream, Window
from tidegate.readable import format_bytes, format_seconds

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
                "slot_s": 10.0,
                "slot_offset_s": 0.0,
                "period_s": 20.0,
            },
            {
                "id": "b",
                "width_s": 0.0,
                "min_width_s": 10.0,
                "max_width_s": 10.0,
                "static_bytes": 0.0,
                "exchange_bytes": 20.0,
                "group": 0,
                "slot_s": 10.0,
                "slot_offset_s": 10.0,
                "period_s": 20.0,
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
    with pytest.raises(UserError, match="/windows: .*at most 20 windows"):
        plan_windows(json.dumps(instance), "dp")
    planned = {method: json.loads(plan_windows(json.dumps(instance), method)) for method in ("joint", "exact", "ap")}
    needed = [planned[method]["needed_bytes"]["C"] for method in ("joint", "exact", "ap")]
    assert needed == sorted(needed) and all(p["support_level"] == "C" and p["gap"] >= 0 for p in planned.values())


def test_windows_that_do_not_swing_have_no_slots():
    planned = json.loads(plan_windows(_changed("/memory_budget_bytes", 49)))
    swinging = [w for w in planned["windows"] if w["slot_s"] is not None]
    assert planned["support_level"] == "C" and swinging
    assert all(w["group"] is not None and 0 < w["slot_s"] <= w["period_s"] for w in swinging)
    still = json.loads(plan_windows(_changed("/memory_budget_bytes", 50)))["windows"]
    assert all(w[key] is None for w in still for key in ("group", "slot_s", "slot_offset_s", "period_s"))


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**400), 10**400)
    | st.integers(-3, 50)
    | st.floats()
    | st.sampled_from([1e-320, 1e15, 1.0000001e15, -0.0])
    | st.text(max_size=4)
    | st.sampled_from(["a", "b", "p"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
SPOILT = ("", "\ufeff", " ", "}", "]", ",", '"', "{", "\x00", "//", "1", "NaN")


def _places(value: object, path: tuple = ()) -> list[tuple]:
    own = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, inner in own for place in _places(inner, (*path, key)))]


@settings(max_examples=examples(250), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_mutation_is_refused_with_its_place_or_planned_within_the_budget(data):
    instance = copy.deepcopy(INSTANCE)
    instance["memory_budget_bytes"] = data.draw(st.sampled_from([0, 20, 29, 41, 49, 50, 1e6]))
    for _ in range(data.draw(st.integers(1, 3))):
        *parents, last = data.draw(st.sampled_from(_places(instance)[1:]))
        target = instance
        for key in parents:
            target = target[key]
        change = data.draw(st.sampled_from(["replace", "remove", "repeat", "add"]))
        if change == "remove":
            del target[last]
        elif change == "repeat" and isinstance(target, list):
            target.append(copy.deepcopy(target[last]))
        elif change == "add" and isinstance(target, dict):
            target[data.draw(st.sampled_from(["weight", "priority", "max_width_s", "x", "a", "b"]))] = data.draw(
                JSON_VALUES
            )
        else:
            target[last] = data.draw(JSON_VALUES)
        if len(_places(instance)) == 1:
            break
    before, after = (data.draw(st.sampled_from(("",) * 20 + SPOILT)) for _ in range(2))
    text = before + json.dumps(instance) + after
    try:
        planned = json.loads(plan_windows(text, data.draw(st.sampled_from(["joint", "exact", "dp", "ap"]))))
    except UserError as error:
        assert str(error).startswith(("/", "line ")) and len(str(error)) < 10_000
        return
    given = json.loads(text)
    assert [w["id"] for w in planned["windows"]] == [w["id"] for w in given["windows"]]
    assert 0 <= planned["planned_bytes"] <= given["memory_budget_bytes"]
    needed = planned["needed_bytes"]
    assert needed["A"] >= needed["B"] >= needed["C"] >= 0 and planned["gap"] >= 0
    assert (planned["support_level"] == "infeasible") == bool(planned["unsupported_queries"])
    least = {"A": "max_width_s", "B": "min_width_s"}.get(planned["support_level"])
    for window in planned["windows"]:
        assert window["width_s"] >= 0 and (least is None or window["width_s"] >= window[least])
        if window["slot_s"] is not None:
            assert window["width_s"] + window["slot_s"] == pytest.approx(window["min_width_s"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\xfe{}", "cannot be read"),
        (b"\xef\xbb\xbf{}", "not JSON: Unexpected UTF-8 BOM"),
        (json.dumps(INSTANCE).encode() + b"}", "line 1, column .*not JSON: Extra data"),
    ],
)
def test_an_unreadable_file_ends_with_status_2(content, message, tmp_path, capsys):
    (tmp_path / "instance.json").write_bytes(content)
    assert main(["plan-windows", str(tmp_path / "instance.json")]) == 2
    said = capsys.readouterr()
    assert not said.out and re.search(message, said.err) and "Traceback" not in said.err
    assert main(["plan-windows", str(tmp_path)]) == 2  # a folder
    assert main(["plan-windows", str(tmp_path / "missing.json")]) == 2


def test_a_huge_file_is_refused_unread(tmp_path, capsys):
    with open(tmp_path / "instance.json", "wb") as file:
        file.truncate(MOST_BYTES + 1)  # sparse
    assert main(["plan-windows", str(tmp_path / "instance.json")]) == 2
    assert "at most" in capsys.readouterr().err


def test_extreme_but_lawful_numbers_give_a_finite_plan():
    instance = json.loads(_changed("/windows/0/rate", 1e-300))
    instance["memory_budget_bytes"] = 1e15
    planned = json.loads(plan_windows(json.dumps(instance)))
    assert planned["support_level"] == "A" and planned["planned_bytes"] <= 1e15
    assert planned["windows"][0]["width_s"] <= 1e15


def _pipeline(budget: int) -> Pipeline:
    stream = Stream(
        name="departures", format="jsonl", path="x", columns=(Column(name="flight", type="string"),), event_time="at",
        arrival_time=None, id=("flight",), rate=40 / 3600, max_early_s=0, max_late_s=0,
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


def test_needs_of_a_pipeline_are_budgets_that_give_the_levels():
    summary = needs(_pipeline(1200))
    # Held by themselves: level A 1600 bytes, level B 800; the arrivals of a tick and a margin for chance come on top.
    assert summary.needed_bytes["A"] > 1600.0 and summary.needed_bytes["B"] > 800.0
    assert summary.needed_bytes["C"] == summary.needed_bytes["B"]  # one window has no turns to take
    for level in ("A", "B"):
        needed = round(summary.needed_bytes[level])
        assert needs(_pipeline(needed)).support_level == level
        assert needs(_pipeline(needed - 1)).support_level == {"A": "B", "B": "infeasible"}[level]


@pytest.mark.parametrize("budget", [0, 1, 500, 1200, 1600, 3000, 10**9])
def test_the_picture_says_level_and_budget_and_what_others_would_buy(budget):
    summary = needs(_pipeline(budget))
    assert summary.planned_bytes <= budget
    text = render(summary)
    assert f"budget {format_bytes(budget)}" in text and "departures" in text and "busy loses support" in text
    assert all(len(line) <= 110 for line in text.splitlines())
    named = "below level C" if summary.support_level == "infeasible" else f"at level {summary.support_level}"
    assert named in text
    budgets = [rung.budget_bytes for rung in summary.ladder]
    assert budgets == sorted(budgets, reverse=True)


def test_readable_sizes():
    assert [format_bytes(n) for n in (0, 1023, 1536, 64 * 1024, 3 * 2**30)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "64 KiB",
        "3 GiB",
    ]
    assert [format_seconds(s) for s in (0, 59, 90, 5400, 172800)] == ["0 s", "59 s", "1.5 min", "1.5 h", "2 d"]
