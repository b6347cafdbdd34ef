"""A pipeline's folder → a `Pipeline`, or all mistakes of all its files at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tidegate.declarations.derived_streams import DerivedStreams
from tidegate.declarations.errors import DeclarationErrors, Mistake
from tidegate.declarations.models import Pipeline, Query
from tidegate.declarations.names import identifier_refusal
from tidegate.declarations.pipeline_file import PipelineFile, read_pipeline_file
from tidegate.declarations.positions import Report, read_source
from tidegate.declarations.query_parser import parse_query
from tidegate.declarations.schedule import query_files
from tidegate.declarations.units import SECOND_US


def load_pipeline(folder: Path) -> Pipeline:
    """The pipeline that a folder declares: ``pipeline.yml``, ``streams/*.sql`` and ``queries/*.sql``.

    Raises:
        DeclarationErrors: every mistake of every file, in order of file and position.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DeclarationErrors([Mistake(folder, 1, 1, "the folder does not exist", "a pipeline's folder")])
    absolute = folder.resolve()
    mistakes: list[Mistake] = []
    declared = PipelineFile()
    source = read_source(folder / "pipeline.yml")
    if isinstance(source, Mistake):
        mistakes.append(source)
    else:
        report = Report(source)
        declared = read_pipeline_file(report, absolute)
        mistakes += _in_order(report)
    derived = DerivedStreams(declared.schemas, declared.tables)
    derived.read(folder)
    mistakes += derived.mistakes
    queries = _read_queries(folder, replace(declared, schemas=derived.schemas), mistakes)
    if mistakes:
        raise DeclarationErrors(mistakes)
    return Pipeline(
        folder=absolute,
        streams=declared.streams,
        tables=tuple(table for table in declared.tables.values() if table is not None),
        derived=tuple(sorted(derived.streams, key=lambda stream: stream.name)),
        queries=queries,
        **declared.values,
    )


def _read_queries(folder: Path, declared: PipelineFile, mistakes: list[Mistake]) -> tuple[Query, ...]:
    queries: list[Query] = []
    files = query_files(folder)
    horizon_s = declared.values.get("horizon_s")
    horizon_us = None if horizon_s is None else round(horizon_s * SECOND_US)
    if not files:
        mistakes.append(
            Mistake(folder / "queries", 1, 1, "the pipeline has no queries", "at least one queries/<id>.sql")
        )
    for file in files:
        problem = identifier_refusal(file.stem, "query")
        if problem:
            mistakes.append(Mistake(file, 1, 1, *problem))
        elif file.stem == "corrected":
            mistakes.append(Mistake(file, 1, 1, "the mart answers_corrected is that of all queries", "another name"))
        source = read_source(file)
        if isinstance(source, Mistake):
            mistakes.append(source)
            continue
        report = Report(source)
        query = parse_query(file.stem, report, declared.schemas, declared.tick_us, declared.tables, horizon_us)
        mistakes += _in_order(report)
        if query is not None:
            queries.append(query)
    return tuple(queries)


def _in_order(report: Report) -> list[Mistake]:
    return sorted(report.mistakes, key=lambda mistake: (mistake.line, mistake.column))
