"""The formats of files: which there are, and what reads them. Nothing else asks for a format's name."""

from __future__ import annotations

from tidegate.sources.formats.base import Batch, Count, Format, Raw, Reading
from tidegate.sources.formats.csv import Csv
from tidegate.sources.formats.json_documents import JsonDocuments
from tidegate.sources.formats.json_lines import JsonLines
from tidegate.sources.formats.parquet import Parquet

_EAGER: tuple[Format, ...] = (JsonLines(), JsonDocuments(), Csv(), Parquet())
_FORMATS: dict[str, Format] = {one.name: one for one in _EAGER}


def format_named(name: str) -> Format:
    """The format of that name; KeyError if there is none.

    >>> format_named("csv").is_text
    True
    """
    if name == "avro" and name not in _FORMATS:
        from tidegate.sources.formats.avro import Avro

        _FORMATS[name] = Avro()
    return _FORMATS[name]


__all__ = ["Batch", "Count", "Format", "Raw", "Reading", "format_named"]
