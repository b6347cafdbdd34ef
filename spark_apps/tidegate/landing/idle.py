"""When a streaming query was last idle: Spark says so in an event, and in none of its progress reports."""

from __future__ import annotations

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from tidegate.landing.query import trigger_us


class IdleListener(StreamingQueryListener):
    """``idle_us``: run of a query → start of its last trigger at which its source had nothing new, µs since 1970."""

    def __init__(self) -> None:
        self.idle_us: dict[str, int] = {}

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Spark calls it."""
        self.idle_us[str(event.runId)] = trigger_us(event.timestamp)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Spark calls it."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Spark calls it."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Spark calls it."""
