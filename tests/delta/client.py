"""Somebody else's Spark with Delta, in a process of its own: it knows nothing of Tidegate but where the tables are."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tidegate.store.places import place


class Client:
    """What that Spark is asked; an error is raised here as RuntimeError with Spark's first line."""

    def __init__(self, pool: ProcessPoolExecutor):
        self._pool = pool

    def sql(self, text: str) -> list[dict[str, Any]]:
        """The rows of a statement."""
        return self._pool.submit(_sql, text).result()

    def load(self, table: Path | str, **options: str) -> list[dict[str, Any]]:
        """The rows of ``spark.read.format("delta")``, by their texts."""
        return self._pool.submit(_load, str(table), options).result()

    def stream(self, table: Path | str, checkpoint: Path, **options: str) -> list[dict[str, Any]]:
        """The rows that ``readStream`` brings, from where this checkpoint stopped until there is no more."""
        return self._pool.submit(_stream, str(table), str(checkpoint), options).result()

    def register(self, root: Path | str, pipeline: Path, schema: str | None = None) -> list[str]:
        """What ``tidegate register`` does in this session; the new names."""
        return self._pool.submit(_register, str(root), str(pipeline), schema).result()


@contextmanager
def client(folder: Path, warehouse: str) -> Iterator[Client]:
    """A client whose catalog is in a folder; it ends with the block."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, _start, (str(folder), warehouse)) as pool:
        pool.submit(_sql, "SELECT 1").result()
        yield Client(pool)
        pool.submit(_stop).result()


_session: Any = None


def _start(folder: str, warehouse: str) -> None:
    global _session  # noqa: PLW0603
    from tidegate.engine.delta_spark import delta_session

    _session = delta_session("somebody", place(warehouse), Path(folder) / "catalog")


def _stop() -> None:
    _session.stop()


def _rows(frame: Any) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.collect()]


def _tried(action: Any) -> Any:
    from pyspark.errors import PySparkException

    try:
        return action()
    except PySparkException as error:
        raise RuntimeError(str(error)[:500]) from None


def _sql(text: str) -> list[dict[str, Any]]:
    return _tried(lambda: _rows(_session.sql(text)))


def _load(table: str, options: dict[str, str]) -> list[dict[str, Any]]:
    return _tried(lambda: _rows(_session.read.format("delta").options(**options).load(table)))


def _stream(table: str, checkpoint: str, options: dict[str, str]) -> list[dict[str, Any]]:
    def run() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        frame = _session.readStream.format("delta").options(**options).load(table)
        query = (
            frame.writeStream.foreachBatch(lambda batch, _: found.extend(_rows(batch)))
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return found

    return _tried(run)


def _register(root: str, pipeline: str, schema: str | None) -> list[str]:
    from tidegate.declarations import load_pipeline
    from tidegate.sql.registration import register, tables
    from tidegate.store.warehouse import Warehouse

    return register(_session, tables(Warehouse(root, load_pipeline(Path(pipeline))), schema))
