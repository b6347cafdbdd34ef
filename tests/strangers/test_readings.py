"""How readings judge: updates put together, errors of groups, hits among the best, by a few rows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tests.strangers.case import Reading
from tests.strangers.readings import Judge

END = datetime(2024, 1, 1, tzinfo=UTC)


def judge(**terms: Any) -> Judge:
    """A judge of rows alone, without tables."""
    of = object.__new__(Judge)
    of.reading = Reading("windows", "", ("g0",), ("v0",), **terms)
    return of


def row(group: Any, value: Any, **more: Any) -> dict[str, Any]:
    return {"window_end": END, "g0": group, "v0": value, **more}


def test_rows_of_a_window_are_the_newest_of_each_key_but_those_that_have_left() -> None:
    answers = [row("a", 1), row(None, 2)]
    early, late = row("b", 9, revision=0, deleted=False), row("a", 3, revision=2, deleted=False)
    gone = [row("b", None, revision=1, deleted=True), row(None, None, revision=3, deleted=True)]
    of = judge()
    states = [of.state(answers, [late, early, *gone], revision) for revision in range(4)]
    assert [{r["g0"]: r["v0"] for r in state} for state in states] == [
        {"b": 9},
        {"a": 1, None: 2},
        {"a": 3, None: 2},
        {"a": 3},
    ]


def test_the_error_is_that_of_so_many_groups() -> None:
    truth = [row(group, 100) for group in "abcd"]
    answer = [row("a", 100), row("b", 90), row("c", 50)]
    assert judge(error=0.05).value(answer, truth) == 1.0
    assert judge(error=0.05, of_groups="75").value(answer, truth) == 0.5
    assert judge(error=0.05, of_groups="12.5").value(answer, truth) == 0.0
    # At most 60 is within ERROR, so a group that is not there is one of 0.
    assert judge(error=0.5, floors={"v0": 60}).value(answer, truth) == 100 / 120


def test_groups_as_good_as_the_last_of_the_best_are_hits() -> None:
    groups = [row("a", 5), row("b", 3), row("c", 3), row("d", 1), row("e", None)]
    of = judge(limit=2, ranked_by="v0")
    assert [(r["g0"], r["rank"]) for r in of.ranked(groups)] == [("a", 1), ("b", 2)]
    truth = of.ranked(groups, with_ties=True)
    assert [r["g0"] for r in truth] == ["a", "b", "c"]
    assert of.value([row("a", 4), row("c", 4)], truth) == 1.0
    assert of.value([row("d", 9), row("c", 4)], truth) == 0.5
    assert [r["g0"] for r in judge(limit=2, ranked_by="v0", descending=False).ranked(groups)] == ["d", "b"]


def test_hits_within_each_part_count_together_or_part_by_part() -> None:
    truth = [row("a", 2), row("b", 2)]
    terms: dict[str, Any] = {"limit": 1, "ranked_by": "v0", "within": ("g0",)}
    assert judge(**terms).value([row("a", 1)], truth) == 0.5
    assert judge(**terms, for_each=True).value([row("b", 1)], truth) == 0.5
