"""What the Airflow UI says about a pipeline and its tasks."""

from __future__ import annotations

from tidegate.declarations.stages import Stage
from tidegate_dags.declaration import Declaration

# Whether a stage always runs, whether it lands records.
_REPLACES = {
    (False, False): " Replaces exactly the interval's partitions.",
    (False, True): " Adds what has come since the last time.",
    (True, False): "",
}


def pipeline_documentation(declaration: Declaration) -> str:
    """Markdown for a DAG: what the pipeline answers, with each query as written, and how to run it."""
    queries = "\n\n".join(
        f"### {query.id}\n\n{query.description}\n\n```sql\n{query.sql}\n```" for query in declaration.queries
    )
    return f"""# {declaration.name}

{declaration.description}

Streams: {", ".join(f"`{stream}`" for stream in declaration.streams)}. Owner: {declaration.owner}.
Declared in `{declaration.folder.name}/pipeline.yml` and `queries/*.sql`.

## Running it

Each run answers one interval of **arrival time**, in UTC: the run with the logical date 05:00 handles 05:00 up to the
next interval. Airflow's grid labels a run by the earliest time at which it may run, the interval's *end*.
Results depend on the data alone: an interval may be run again at any time and replaces its own rows.

Results: the tab *Reports* above, or *Details → Extra Links* of any task.

* **Past intervals**: *Trigger → Backfill*, the first and the last logical date (the hours at which the first and the
  last interval start), "Missing and Errored Runs", *Run Backfill*. ("Missing Runs" is refused, since intervals wait for
  each other; "All Runs" also repeats runs that succeeded.) Intervals run in order; one that fails holds back those
  after it until its tasks are cleared and succeed. Two runs overlap where possible: while one is checked and
  published, the next is ingested.
* **One interval again**: clear its run. If its slack plan changes, clear *future* runs too.
* **A range in one run**: *Trigger → Single run* with `from` and `to`: every stage handles the whole range in one
  application, with the same rows. Without `from` and `to` such a run takes the last interval that ended before its
  logical date (05:00 means 04:00 to 05:00, one less than in a backfill).
* **Some stages only, or none**: `stages` skips the others; with `dry_run` nothing runs, and each task logs the command
  that it would run.

## When something is wrong

A task that failed after its last retry, and a scheduled run that is overdue, raise an alert: an error in the log and a
line on the Tidegate page (*Browse → Tidegate*, or the tab *Reports*), which names the stage, the interval, the queries
and their promises. A broken promise alone is a warning of *check_quality*, not a failure: `expectations/policy.py`
defines which findings are which.

## What it reads and writes

Every table is an asset (*Assets* in the side bar): its producing and consuming tasks lead from the files to the marts,
and each event of an asset carries the partition that was written (its interval, like `2013-02-08T10`) and the range of
arrival time. To run a DAG of your own for each of them, schedule it with `PartitionedAssetTimetable`.

## What it answers

{queries or "No query is declared yet."}
"""


def stage_documentation(stage: Stage) -> str:
    """Markdown for a task: what it reads, writes and guarantees."""
    waits = (
        "\n\nStarts only when this task and its direct successors are done for the previous interval."
        if stage.waits_for_previous
        else ""
    )
    return f"""**Reads** {stage.reads}.

**Writes** {stage.writes}.{_REPLACES[stage.always, stage.landed]}

**Guarantees** {stage.guarantees}.{waits}
"""
