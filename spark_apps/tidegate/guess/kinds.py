"""Which files are of one stream: those of one format with mostly the same fields."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tidegate.declarations.errors import UserError
from tidegate.guess.records import FileSample, Topic, fields_of
from tidegate.guess.sampling import MOST_FILES, chosen, files_in, newest, octets_of, read_sample

_ALIKE = 0.5
_MOST_RECORDS = 20_000


@dataclass(frozen=True)
class Kind:
    """The files of one stream. ``files``: all; ``samples``: those that were read; ``folder``: what was named.

    ``topic``: of records that are in Kafka; then there are no files, and one sample.
    """

    files: tuple[Path, ...]
    samples: tuple[FileSample, ...]
    folder: Path | None
    bytes: int = 0
    topic: Topic | None = None

    @property
    def about(self) -> str:
        """What it is, in words for a message."""
        if self.topic is not None:
            return f"the topic {self.topic.name}"
        first = self.files[0].name
        return first if len(self.files) == 1 else f"the {len(self.files)} files like {first}"

    @property
    def records(self) -> float:
        """How many records all its files have, estimated from those that were read."""
        if self.topic is not None:
            return self.topic.records
        read = sum(sample.size for sample in self.samples)
        return sum(sample.about for sample in self.samples) * max(self.bytes / read if read else 1.0, 1.0)


def kinds_in(named: Sequence[Path]) -> tuple[list[Kind], list[str]]:
    """The kinds of the files that were named, in the order of their first files; why others in folders are left out.

    Raises:
        UserError: something is not there, cannot be read, or is of no known format.
    """
    kinds: list[Kind] = []
    skipped: list[str] = []
    singly = {path.absolute() for path in named if path.is_file()}
    folders = [path.absolute() for path in named if path.is_dir()]
    for files in _alike_by_name(files_in(named)):
        some = chosen(files)
        last = {newest(some), some[-1]}
        samples: list[FileSample] = []
        for file in some:
            try:
                samples.append(read_sample(file, tail=file in last))
            except UserError as error:
                if file in singly:
                    raise
                skipped.append(str(error))
        if any(sample.records for sample in samples):
            folder = next((f for f in folders if files[0].is_relative_to(f)), None)
            kinds += _alike(files, samples, folder)
    if not kinds:
        reasons = skipped[:5] or ["the files have no records"]
        raise UserError("no file can be read as records:\n  " + "\n  ".join(reasons))
    return [_bounded(kind) for kind in _merged(kinds)], skipped


def _alike_by_name(files: Sequence[Path]) -> list[list[Path]]:
    """Files whose names differ in digits only, by name."""
    groups: dict[str, list[Path]] = {}
    for file in files:
        groups.setdefault(re.sub(r"\d+", "0", file.as_posix()), []).append(file)
    return list(groups.values())


def _alike(files: Sequence[Path], samples: Sequence[FileSample], folder: Path | None) -> list[Kind]:
    """The kinds among files that are named alike; files that were not read, or have no records, go with the first."""
    groups: list[list[FileSample]] = []
    for sample in samples:
        if not sample.records:
            continue
        group = next((group for group in groups if are_alike(group[0], sample)), None)
        if group is None:
            groups.append([sample])
        else:
            group.append(sample)
    read = {sample.path for group in groups for sample in group}
    empty = {sample.path for sample in samples} - read
    rest = [file for file in files if file in empty or (len(files) > MOST_FILES and file not in read)]
    kinds = []
    for number, group in enumerate(groups):
        paths = sorted([*(sample.path for sample in group), *(rest if number == 0 else ())])
        kinds.append(Kind(tuple(paths), tuple(group), folder, octets_of(paths)))
    return kinds


def are_alike(one: FileSample, other: FileSample) -> bool:
    """Whether two files are of one stream: one format, written alike, and half of the fields are in both."""
    if one.format != other.format:
        return False
    if one.csv is not None and other.csv is not None and one.csv.header != other.csv.header:
        return False
    first, second = fields_of(one.records), fields_of(other.records)
    return len(first & second) >= _ALIKE * max(len(first | second), 1)


def _merged(kinds: Sequence[Kind]) -> list[Kind]:
    """The kinds, those alike as one."""
    merged: list[Kind] = []
    for kind in kinds:
        place = next((n for n, other in enumerate(merged) if are_alike(other.samples[0], kind.samples[0])), None)
        if place is None:
            merged.append(kind)
            continue
        other = merged[place]
        files = tuple(sorted([*other.files, *kind.files]))
        samples = tuple(sorted([*other.samples, *kind.samples], key=lambda sample: sample.path))
        merged[place] = replace(other, files=files, samples=samples, bytes=other.bytes + kind.bytes)
    return merged


def _bounded(kind: Kind) -> Kind:
    """The kind with so many records of each file that there are not too many together."""
    some = set(chosen([sample.path for sample in kind.samples]))
    samples = [sample for sample in kind.samples if sample.path in some]
    most = max(_MOST_RECORDS // len(samples), 100)
    cut = [
        sample if len(sample.records) <= most else replace(sample, records=sample.records[:most], whole=False)
        for sample in samples
    ]
    return replace(kind, samples=tuple(cut))
