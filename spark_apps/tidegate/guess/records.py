"""Records as they were read, and the values at each path of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tidegate.declarations.models import CsvDialect, PathStep
from tidegate.values.types import ColumnType

if TYPE_CHECKING:
    from tidegate.guess.columns import Seen

Steps = tuple[PathStep, ...]
"""The path of a value in a record, as ``Column.path`` has it."""
_DEEPEST = 8


@dataclass(frozen=True)
class FileSample:
    """What was read of one file.

    ``records``: its first records. ``tail``: its last ones, if they were read and are not among the first. ``whole``:
    whether ``records`` are all it has. ``about``: how many records it has, estimated if not ``whole``.
    ``size``: its octets.
    ``remarks``: what its reader saw that a user should know. ``types``: those of decimals that the file declares.
    """

    path: Path
    format: str
    records: Sequence[Mapping[Any, Any]]
    tail: Sequence[Mapping[Any, Any]] = ()
    whole: bool = True
    about: float = 0.0
    csv: CsvDialect | None = None
    packed: bool = False
    modified_s: float = 0.0
    size: int = 0
    remarks: tuple[str, ...] = ()
    types: Mapping[Steps, ColumnType] = field(default_factory=dict)


@dataclass(frozen=True)
class Topic:
    """What was seen of a topic beside its records' values.

    ``records``: how many it has, by its offsets. ``stamps``: Kafka's timestamps of the records that were read,
    microseconds. ``parts``: their keys and headers, as columns.
    """

    servers: str
    name: str
    partitions: int
    records: int
    stamps: tuple[int, ...] = field(repr=False)
    parts: tuple[Seen, ...]


@dataclass
class Sample:
    """The records of one stream's files, column by column.

    ``columns``: path → one value per record, None where the record has none. ``file_of``: of each record the number of
    its file.
    """

    columns: dict[Steps, list[Any]] = field(default_factory=dict)
    file_of: list[int] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How many records there are."""
        return len(self.file_of)

    def add(self, record: Mapping[Any, Any], file: int) -> None:
        """Add a record of a file."""
        number = self.count
        self.file_of.append(file)
        for path, value in leaves(record):
            values = self.columns.setdefault(path, [])
            if len(values) <= number:
                values.extend([None] * (number - len(values)))
                values.append(value)

    def closed(self) -> Sample:
        """The sample with every column as long as there are records."""
        for values in self.columns.values():
            values.extend([None] * (self.count - len(values)))
        return self


def sample_of(files: Sequence[FileSample]) -> Sample:
    """The records of the files, heads and tails, in the files' order."""
    sample = Sample()
    for number, file in enumerate(files):
        for record in (*file.records, *file.tail):
            sample.add(record, number)
    return sample.closed()


def leaves(value: Any, path: Steps = ()) -> list[tuple[Steps, Any]]:
    """The values of a record that are no objects, with their paths; of a list of objects those of its first.

    An object that is too deep is a value as it is, and so is a list of anything else; empty ones are none.

    >>> leaves({"a": {"b": 1}, "c": [{"d": 2}, {"d": 3}], "e": [4], "f": None})
    [(('a', 'b'), 1), (('c', 0, 'd'), 2), (('e',), [4])]
    """
    if isinstance(value, Mapping):
        if path and (not value or len(path) >= _DEEPEST):
            return [(path, value)] if value else []
        return [leaf for name, part in value.items() for leaf in leaves(part, (*path, name))]
    if isinstance(value, (list, tuple)):
        if value and isinstance(value[0], Mapping):
            return leaves(value[0], (*path, 0))
        return [(path, value)] if value else []
    return [] if value is None else [(path, str(value) if isinstance(value, UUID) else value)]


def fields_of(records: Sequence[Mapping[Any, Any]]) -> frozenset[PathStep]:
    """The names at the top of the records."""
    return frozenset(name for record in records for name in record)
