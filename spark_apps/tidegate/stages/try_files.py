"""A declaration tried on the newest files of its streams, without a warehouse."""

from __future__ import annotations

import tempfile
from collections import Counter

from tidegate.declarations.models import Pipeline, Stream
from tidegate.engine import Slice
from tidegate.sources.files import Piece, SourceFile, newest_files
from tidegate.sources.parse import ParseTask, parse_pieces
from tidegate.stages.ingest_account import facts_of
from tidegate.stages.ingest_summary import Summary

MOST_BYTES = 64 << 20
"""Of a stream's newest files so many are read; the newest one is, however large it is."""
MOST_FILES = 20
_FOREVER_US = 2**62


def try_newest_files(pipeline: Pipeline) -> Summary:
    """What would become of the records of each stream's newest files. Duplicates are not looked for.

    Streams that come through Spark have no files: they are passed over.
    """
    summary = Summary()
    for stream in (stream for stream in pipeline.streams if stream.source is None):
        files = _newest(stream)
        if not files:
            summary.missing.append(stream.path)
            continue
        pieces = tuple(Piece(stream, file) for file in files)
        with tempfile.TemporaryDirectory() as folder:
            task = ParseTask(pieces, -_FOREVER_US, _FOREVER_US, folder, pipeline.interval_s * 1_000_000)
            result = parse_pieces(Slice(0, task))
        summary.add(result.reports, facts_of(result.reports, {}, 0), ())
    return summary


def _newest(stream: Stream) -> list[SourceFile]:
    chosen: list[SourceFile] = []
    sizes: Counter[str] = Counter()
    for file in newest_files(stream):
        if chosen and (len(chosen) == MOST_FILES or sizes.total() + file.bytes > MOST_BYTES):
            break
        sizes[file.name] = file.bytes
        chosen.append(file)
    return chosen
