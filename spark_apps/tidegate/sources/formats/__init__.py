"""The formats of files: what reads each. Nothing else asks for a format's name.

To add one, write a :class:`~tidegate.sources.formats.base.Format`, name it here and in
``tidegate.declarations.file_formats``.
"""

from __future__ import annotations

import importlib
from functools import cache

from tidegate.sources.formats.base import Batch, Count, Format, Raw, Reading

_CLASSES = {
    "jsonl": ("json_lines", "JsonLines"),
    "json": ("json_documents", "JsonDocuments"),
    "csv": ("csv", "Csv"),
    "parquet": ("parquet", "Parquet"),
    "avro": ("avro", "Avro"),
}
"""Format → the module here and the class that reads it; imported when first asked for."""


@cache
def format_named(name: str) -> Format:
    """The format of that name; KeyError if there is none.

    >>> format_named("csv").name
    'csv'
    """
    module, kind = _CLASSES[name]
    made: Format = getattr(importlib.import_module(f"{__name__}.{module}"), kind)()
    return made


__all__ = ["Batch", "Count", "Format", "Raw", "Reading", "format_named"]
