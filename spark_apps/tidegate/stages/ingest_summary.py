"""What an ingest has seen, for whoever watches it: files, records, why some were refused, columns without values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tidegate.declarations.models import Pipeline
from tidegate.declarations.positions import nearest_name
from tidegate.declarations.source_paths import show_path
from tidegate.sources.parse import Example, PieceReport
from tidegate.stages.ingest_account import FileFacts

STAGE = "ingest"


@dataclass(frozen=True)
class Refusal:
    """Why records of a stream were refused.

    ``examples``: the first of them, each with its file and line, from 1; 0: the file as a whole.
    """

    stream: str
    reason: str
    column: str
    records: int
    examples: tuple[tuple[str, int, Example], ...]


@dataclass(frozen=True)
class FileSummary:
    """What a file holds. ``records``: all, whenever they arrived; ``first_us``, ``last_us``: of good arrivals."""

    stream: str
    status: str
    records: int = 0
    first_us: int | None = None
    last_us: int | None = None
    refusals: tuple[Refusal, ...] = ()


@dataclass
class Summary:
    """Of all passes of a run. A file that several passes read counts once.

    ``columns``, ``names``: stream → columns of which any record has a value, and names of fields. ``missing``: files
    that should be there.
    """

    files: dict[str, FileSummary] = field(default_factory=dict)
    columns: dict[str, set[str]] = field(default_factory=dict)
    names: dict[str, dict[str, None]] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    def add(self, reports: Sequence[PieceReport], facts: FileFacts, missing: Sequence[str]) -> None:
        """Take note of a pass."""
        by_file: dict[str, list[PieceReport]] = {}
        for report in reports:
            by_file.setdefault(report.file.name, []).append(report)
        for name, pieces in by_file.items():
            self.files[name] = _file(name, sorted(pieces, key=lambda r: r.start), facts)
        for stream, columns in facts.columns.items():
            self.columns.setdefault(stream, set()).update(columns)
        for stream, names in facts.names.items():
            self.names.setdefault(stream, {}).update(names)
        self.missing += missing

    @property
    def records(self) -> int:
        """How many records the files hold."""
        return sum(one.records for one in self.files.values())

    def refusals(self) -> Iterator[Refusal]:
        """Why records were refused, the most frequent first."""
        together: dict[tuple[str, str, str], list[Refusal]] = {}
        for name in sorted(self.files):
            for one in self.files[name].refusals:
                together.setdefault((one.stream, one.reason, one.column), []).append(one)
        counts = Counter({key: sum(one.records for one in several) for key, several in together.items()})
        for key, records in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
            examples = tuple(example for one in together[key] for example in one.examples)
            yield Refusal(*key, records, examples)

    def columns_without_values(self, pipeline: Pipeline) -> Iterator[tuple[str, str, str]]:
        """(stream, column, the nearest name of a field that no column is read from) of what no record has."""
        for stream in pipeline.streams:
            if not any(one.records for one in self.files.values() if one.stream == stream.name):
                continue
            read = {show_path(c.steps) for c in stream.columns} | {str(c.steps[0]) for c in stream.columns}
            others = [name for name in self.names.get(stream.name, ()) if name not in read]
            for column in stream.columns:
                if column.name not in self.columns.get(stream.name, ()):
                    path = show_path(column.steps)
                    last = {name.rpartition(".")[2]: name for name in reversed(others)}
                    near = nearest_name(path, others) or last.get(nearest_name(path.rpartition(".")[2], last), "")
                    yield stream.name, column.name, near


def _file(name: str, pieces: Sequence[PieceReport], facts: FileFacts) -> FileSummary:
    refusals: dict[tuple[str, str], list[tuple[str, int, Example]]] = {}
    counts: Counter[tuple[str, str]] = Counter()
    for piece in pieces:
        before = facts.first_lines.get((name, piece.start), 0)
        for key, (count, examples) in piece.refusals.items():
            counts[key] += count
            refusals.setdefault(key, []).extend((name, before + one.line + 1, one) for one in examples)
    stream = pieces[0].stream
    if name in facts.errors:
        refusals["broken_file", ""] = [(name, 0, Example(0, facts.errors[name][2], None))]
        counts["broken_file", ""] = 1
    return FileSummary(
        stream,
        facts.status[name],
        sum(piece.records for piece in pieces),
        min((p.first_us for p in pieces if p.first_us is not None), default=None),
        max((p.last_us for p in pieces if p.last_us is not None), default=None),
        tuple(Refusal(stream, *key, counts[key], tuple(some)) for key, some in refusals.items()),
    )
