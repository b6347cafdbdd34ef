"""The formats that files of records may have, as users name them; ``tidegate.sources.formats`` reads them."""

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
