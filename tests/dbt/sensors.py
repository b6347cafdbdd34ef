"""A pipeline of two streams and four queries, and what its marts are once they are published."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from tests.live_files import live_files

from tidegate.stages import publish
from tidegate.declarations.models import (
    Aggregate,
    Column,
    GroupColumn,
    History,
    JoinClass,
    Order,
    Output,
    Pipeline,
    Query,
    Stream,
    Window,
)
from tidegate.engine.context import RunContext
from tidegate.store.intervals import Interval


@dataclass
class Published:
    """A pipeline whose marts were published for all of its intervals, then again for two after one had lost rows.

    ``first`` and ``page_written_ns``: what the marts held, and when the page was written, the first time.
    """

    context: RunContext
    intervals: tuple[Interval, ...]
    first: dict[str, bytes] = field(default_factory=dict)
    page_written_ns: int = 0

    @property
    def home(self) -> Path:
        return self.context.warehouse.folder / "_dbt"

    @property
    def marts(self) -> Path:
        return self.context.warehouse.folder / "marts"

    @property
    def page(self) -> Path:
        return self.context.warehouse.folder / "_docs" / "dbt" / "index.html"

    def contents(self) -> dict[str, bytes]:
        """Partition → bytes of its one file (whose name differs from run to run)."""
        logs = sorted(self.marts.glob("*/_delta_log"))
        files = [file for log in logs for own in live_files(log.parent).values() for file in own]
        return {str(file.parent.relative_to(self.marts)): file.read_bytes() for file in files}

    def publish(self, *intervals: Interval) -> None:
        publish.run(self.context, intervals or self.intervals)


def sensors() -> Pipeline:
    """Readings of sensors and the states of their pumps, which have nothing to do with flights."""
    readings = Stream(
        name="readings",
        description="What the sensors read. {{ not jinja }} {% endraw %}{{ 1 / 0 }}{# {% raw %} {{{ #}",
        format="jsonl",
        path="readings",
        columns=(
            Column(name="id", type="string", nullable=False),
            Column(name="sensor", type="string", description="Which sensor: it's one of 'EWR', \"JFK\"."),
            Column(name="level", type="double", description="Water level, cm."),
            Column(name="count", type="integer"),
            Column(name="read_at", type="timestamp"),
            Column(name="day", type="date"),
            Column(name="ok", type="boolean"),
        ),
        event_time="read_at",
        arrival_time=None,
        id=("id",),
        rate=1.0,
        max_early_s=0,
        max_late_s=86400,
        history=History(leaf_s=3600, capacity_tuples=100),
    )
    pumps = readings.model_copy(
        update={
            "name": "pumps",
            "description": "",
            "columns": (Column(name="id", type="string"), Column(name="sensor", type="string")),
            "event_time": "event_time",
            "history": None,
        }
    )
    level = Aggregate(slot="a1", function="avg", alias="r", expression="level", type="double")
    rows = Aggregate(slot="a0", function="count", alias=None, expression=None, type="double")
    common = {"predicates": {}, "every_s": 600.0}
    by_sensor = Query(
        id="levels_by_sensor",
        kind="join_aggregate",
        text="SELECT r.sensor, COUNT(*) AS pairs, AVG(r.level) AS level FROM …",
        description="How high the water stands.\n\nPer sensor, with {{ braces }}.",
        windows=(
            Window(alias="r", stream="readings", range_s=3600.0),
            Window(alias="p", stream="pumps", range_s=1800.0),
        ),
        join_classes=(JoinClass(slot="j0", columns=(("r", "sensor"), ("p", "sensor")), type="string"),),
        group_by=(GroupColumn(slot="g0", alias="r", column="sensor", type="string", shown_as="sensor"),),
        aggregates=(rows, level),
        outputs=(
            Output(name="sensor", expression="g0", type="string"),
            Output(name="pairs", expression="a0", type="double"),
            Output(name="level", expression="a1", type="double"),
        ),
        error=0.02,
        on_miss="correct",
        **common,
    )
    total = Query(
        id="total",
        kind="aggregate",
        text="SELECT COUNT(*) FROM readings [RANGE 1 HOUR] EVERY 10 MINUTES",
        description="",
        windows=(Window(alias="readings", stream="readings", range_s=3600.0),),
        aggregates=(rows,),
        outputs=(Output(name="count", expression="a0", type="double"),),
        **common,
    )
    highest = Query(
        id="highest",
        kind="top_k",
        text="SELECT sensor, level FROM readings [RANGE 1 HOUR] ORDER BY level DESC LIMIT 3 ACCURACY 95% EVERY …",
        description="Which sensors read the highest levels?",
        windows=total.windows,
        outputs=(
            Output(name="sensor", expression="sensor", type="string"),
            Output(name="level", expression="level", type="double"),
            Output(name="read_at", expression="read_at", type="timestamp"),
        ),
        order_by=(Order(slot="o0", expression="level", descending=True, type="double"),),
        limit=3,
        accuracy=0.95,
        on_miss="omit",
        **common,
    )
    by_group = by_sensor.group_by[0].model_copy(update={"alias": "readings"})
    highest_each = highest.model_copy(
        update={"id": "highest_of_each_sensor", "group_by": (by_group,), "description": "The highest of each."}
    )
    return Pipeline(
        name="sensors",
        folder=Path("sensors"),
        owner="tests",
        start=datetime(2013, 2, 8, tzinfo=UTC),
        interval_s=3600,
        tick_s=600,
        horizon_s=7200,
        memory_budget_bytes=4096,
        process_budget_bytes=3 * 2**30,
        streams=(readings, pumps),
        queries=(by_sensor, total, highest, highest_each),
    )
