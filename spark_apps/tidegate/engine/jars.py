"""Jars beside Spark's own: its connectors for Kafka and Delta, a broker to try things on.

``make setup`` puts them into the environment (infra/spark/jars.py), a folder a group; a wheel brings none. Where they
are not, Spark fetches them itself by their coordinates, if it reaches Maven's repository.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

# What each group is made of; Maven knows what that needs. The newest for Spark 4.2; Kafka's works with 4.3 as well.
COORDINATES: dict[str, tuple[str, ...]] = {
    "kafka": ("org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",),
    "delta": ("io.delta:delta-spark_4.2_2.13:4.4.0",),
    "broker": ("org.apache.kafka:kafka_2.13:4.1.1", "org.slf4j:slf4j-simple:1.7.36"),
    # The parts of Amazon's SDK that S3A calls, 30 MB, for its bundle of 690 MB.
    "s3": (
        "org.apache.hadoop:hadoop-aws:3.5.0",
        "software.amazon.awssdk:s3:2.35.4",
        "software.amazon.awssdk:s3-transfer-manager:2.35.4",
        "software.amazon.awssdk:sts:2.35.4",
    ),
}


def jars_folder() -> Path:
    """Where the groups' folders are: ``TIDEGATE_JARS``, or ``jars`` in this Python's environment."""
    return Path(os.environ.get("TIDEGATE_JARS") or Path(sys.prefix) / "jars")


def jars(group: str) -> list[str]:
    """Paths of a group's jars in order of name; empty if they are not on this machine.

    Raises:
        KeyError: no group has this name.
    """
    if group not in COORDINATES:
        raise KeyError(group)
    return sorted(str(jar) for jar in (jars_folder() / group).glob("*.jar"))


def jars_settings(groups: Iterable[str]) -> dict[str, str]:
    """Spark's settings that bring these groups into a session that this process starts; empty for no groups.

    Jars on this machine by their paths; of the groups that are not here, the coordinates, from which Spark fetches them
    when the session starts (half a minute the first time, into ``~/.ivy2.5.2``).
    """
    there: list[str] = []
    fetched: list[str] = []
    for group in groups:
        paths = jars(group)
        there += paths
        fetched += [] if paths else COORDINATES[group]
    settings = {"spark.jars": ",".join(there), "spark.jars.packages": ",".join(fetched)}
    return {name: value for name, value in settings.items() if value}
