"""The formats that records may have, as users name them; ``tidegate.sources.formats`` reads them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FileFormat:
    """A format of files. ``cells``: records are cells in a row, named by a header or by their place, in a dialect."""

    about: str
    cells: bool = False


FILE_FORMATS = {
    "jsonl": FileFormat("one JSON object a line"),
    "json": FileFormat("documents on any lines, or arrays of them"),
    "csv": FileFormat("cells between delimiters", cells=True),
    "parquet": FileFormat("row groups of columns"),
    "avro": FileFormat("container files"),
}
MESSAGE_FORMATS = ("jsonl", "json", "avro")
"""Those of the values of Kafka's records; one is one JSON object, so the first two are the same."""


def has_cells(name: str) -> bool:
    """Whether records of the format are cells in a row; "" is the format of a source that has columns.

    >>> has_cells("csv"), has_cells("jsonl"), has_cells("")
    (True, False, False)
    """
    return name in FILE_FORMATS and FILE_FORMATS[name].cells
