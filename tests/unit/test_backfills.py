"""One backfill of a DAG at a time: the second waits, or says what is in the way."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "infra" / "airflow"))

from backfills import InTheWay, wait_until_free

HOURS = [f"2013-02-08T{hour:02}:00:00Z" for hour in range(4, 7)]


class Airflow:
    """What the REST API would say, one look after another: the states of the older backfill's three runs."""

    def __init__(self, looks: Sequence[Sequence[str]], paused: bool = False):
        self.looks, self.paused = list(looks), paused
        self.slept = 0

    def pages(self, path: str, of: str, **query: Any) -> list[Any]:
        if of == "dag_runs":
            assert query["logical_date_gte"] == HOURS[0] and query["logical_date_lte"] == HOURS[-1]
            return [{"logical_date": at, "state": s} for at, s in zip(HOURS, self.looks[0], strict=True)]
        older = {"id": 3, "from_date": HOURS[0], "to_date": HOURS[-1], "is_paused": self.paused}
        done = {"id": 2, "completed_at": HOURS[0]}
        return [older | {"completed_at": None if self.looks else HOURS[-1]}, done]

    def sleep(self, _: float) -> None:
        self.slept += 1
        self.looks.pop(0)


def wait(airflow: Airflow, timeout_s: float = 60) -> list[str]:
    said: list[str] = []
    wait_until_free(airflow, "flights", timeout_s, said.append, airflow.sleep)
    return said


def test_nothing_is_said_where_nothing_is_in_the_way() -> None:
    assert wait(Airflow([])) == []


def test_the_second_waits_for_the_first_and_says_which() -> None:
    airflow = Airflow(
        [("success", "running", "queued"), ("success", "running", "queued"), ("success", "success", "running")]
    )
    first, second = wait(airflow)
    assert "backfill 3 of flights, from 2013-02-08T04:00 to 2013-02-08T06:00 (1 of 3 intervals done)" in first
    assert "stack.py cancel --dag flights" in first
    assert second == "Waiting: 2 of 3 intervals done"
    assert airflow.slept == 3


@pytest.mark.parametrize(
    ("airflow", "timeout_s", "says"),
    [
        (Airflow([("success", "failed", "running")]), 60, "2013-02-08T05:00 failed, and the intervals after it wait"),
        (Airflow([("running", "queued", "queued")], paused=True), 60, "it is paused"),
        (Airflow([("running", "queued", "queued")]), -1, "Not started after -1 s"),
    ],
)
def test_who_cannot_end_is_not_waited_for(airflow: Airflow, timeout_s: float, says: str) -> None:
    with pytest.raises(InTheWay) as error:
        wait(airflow, timeout_s)
    assert says in str(error.value) and "backfill 3 of flights" in str(error.value)
    assert "cancel it: `python infra/airflow/stack.py cancel --dag flights`" in str(error.value)
    assert airflow.slept == 0
