"""The stages of an interval: what each reads, writes and guarantees, and which stage it has to wait for.

The order of the edges is the order of the data, nothing else. ``after`` names the stages of the *same* interval whose
tables a stage reads, those among them that the pipeline has (``stages_of``).  What a stage reads of the interval
*before* is expressed by ``waits_for_previous``: it starts only when itself and every stage directly downstream of it
succeeded (or was skipped) for the interval before. Two stages need that, and with them every dependency between
intervals holds:

* ``ingest`` plans windows from the rates and plans of n − 1 and from the slack and the error-to-width map that
  ``calibrate`` put into effect at the end of n − 1. ``calibrate`` reads what ``ingest`` wrote, so it is directly
  downstream of it, as are ``join_aggregate``, ``top_k`` and ``sample_history``. Whatever follows ``ingest`` in
  interval n therefore finds the slack in effect.
* ``sample_history`` needs to know how far old leaves were thinned: ``resample_history`` of n − 1, directly downstream.

``max_active_runs`` could not promise this: a backfill has a limit of its own (ten, unless asked otherwise), and a
run that failed is finished, so the next one would start on missing tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal


@dataclass(frozen=True)
class Stage:
    """One task of a pipeline's DAG.

    ``submitted``: a Spark application of its own, submitted if there is a cluster; otherwise a command that starts what
    it needs.
    ``landed``: only of pipelines with streams that come through Spark.
    ``always``: runs whatever became of the stages before, and its own end does not count for the run's.
    ``page``: which of the pipeline's pages shows what the stage did. ``answers``: the queries that it answers.
    ``reads`` and ``writes`` name tables in backticks: assets.py makes Airflow's assets of them.
    """

    name: str
    after: tuple[str, ...]
    reads: str
    writes: str
    guarantees: str
    page: Literal["report", "quality", "models"]
    submitted: bool = True
    landed: bool = False
    waits_for_previous: bool = False
    daily: bool = False
    always: bool = False
    answers: Literal["aggregate", "top_k"] | None = None
    retries: int = 2
    timeout: timedelta = timedelta(minutes=30)


STAGES = (
    Stage(
        name="land",
        after=(),
        landed=True,
        reads="what the sources of streams that come through Spark have now",
        writes="`landed_<stream>`, `landings`",
        guarantees="each record lands once, as it came; in which interval it is, its arrival and the announced "
        "watermarks say, not the run",
        page="report",
        timeout=timedelta(hours=6),
    ),
    Stage(
        name="ingest",
        after=("land",),
        waits_for_previous=True,
        reads="the files that landed for the interval, and `landed_<stream>` and `landings` of streams that come "
        "through Spark; the files of reference tables; `stream_rates`, `window_plan` of the interval before; "
        "`slack_plan` and `error_width_plan` in effect",
        writes="`events_<stream>`, `quarantine`, `unknown_columns`, `source_files`, `stream_rates`, `window_plan`, "
        "`query_plan`, `watermarks`, `reference_<table>`, `table_versions`",
        guarantees="rows in = rows out + quarantined, each refused record with its reason and its place; "
        "what the windows hold fits the memory budget at every tick",
        page="report",
    ),
    Stage(
        name="join_aggregate",
        answers="aggregate",
        after=("ingest",),
        reads="`events_<stream>` as far back as range and slack reach, `window_plan`, `query_plan`, `slack_plan`",
        writes="`answers_<query>` of every aggregate and join-aggregate query, `updates_<query>` of those that EMIT",
        guarantees="every answer whose emission (tick + slack) falls into the interval, each with its coverage; "
        "state stays within the memory budget",
        page="report",
    ),
    Stage(
        name="top_k",
        answers="top_k",
        after=("ingest",),
        reads="`events_<stream>` as far back as range and slack reach, `window_plan`, `query_plan`, `slack_plan`",
        writes="`answers_<query>` of every top-k query, `updates_<query>` of those that EMIT",
        guarantees="the k first rows of every window, ties broken the same way in every run; late rows counted",
        page="report",
    ),
    Stage(
        name="sample_history",
        after=("ingest",),
        waits_for_previous=True,
        reads="`events_<stream>`, `window_plan`, `history_passes` of the intervals before",
        writes="`history_leaves`, `history_groups`, `history_samples_<stream>`",
        guarantees="exact counts, sums and extremes per leaf; a sample that depends on the tuples, not on the run",
        page="report",
    ),
    Stage(
        name="resample_history",
        after=("sample_history",),
        daily=True,
        reads="`history_leaves`, `history_samples_<stream>`, `events_<stream>` where they are still there",
        writes="`history_passes`, `history_accuracy` and the thinned, merged leaves",
        guarantees="the store of samples stays within its capacity; "
        "runs for the interval that ends a day and is skipped otherwise",
        page="report",
    ),
    Stage(
        name="calibrate",
        after=("ingest", "join_aggregate", "top_k"),
        reads="`answers_<query>`, `events_<stream>` up to the horizon",
        writes="`truth_<query>`, `kept_<query>`, `corrections_<query>`, `accuracy`, `accuracy_groups`, "
        "`promise_periods`, `needed_slack`, `slack_plan`, `width_errors`, `error_width_plan`",
        guarantees="every window that became final is judged against the exact answer; "
        "the new slack and error-to-width map take effect at the interval's end",
        page="report",
    ),
    Stage(
        name="check_quality",
        after=("calibrate", "resample_history"),
        submitted=False,
        retries=0,  # the same tables give the same verdict
        reads="every table of the interval",
        writes="`quality_results` and the pages of Data Docs",
        guarantees="a broken promise of critical severity fails this task and names query, window, promised and "
        "measured; a warning is shown and passes",
        page="quality",
    ),
    Stage(
        name="publish",
        after=("check_quality",),
        submitted=False,
        reads="every table, as dbt sources",
        writes="the dbt models (staging, intermediate, marts) and their documentation",
        guarantees="analysts see an interval only after its quality was checked",
        page="models",
    ),
    Stage(
        name="report",
        after=("publish",),
        submitted=False,
        always=True,
        retries=0,
        reads="every table of every interval so far",
        writes="the page behind the button *Report*",
        guarantees="shows what was promised and what was kept, most of all when a stage before it failed",
        page="report",
    ),
)


def stages_of(landed: bool) -> tuple[Stage, ...]:
    """The stages of a pipeline. ``landed``: whether it has streams that come through Spark.

    >>> [stage.name for stage in stages_of(landed=True)][:2], stages_of(landed=False)[0].name
    (['land', 'ingest'], 'ingest')
    """
    return tuple(stage for stage in STAGES if landed or not stage.landed)
