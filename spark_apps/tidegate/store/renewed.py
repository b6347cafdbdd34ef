"""Rows of partitions that a reader keeps: those of partitions that have not changed are not read again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

Files = Mapping[str, Sequence[str]]
"""Label of a partition → the names of its files. No file changes under its name."""


def changed(kept: Files, now: Files) -> list[str]:
    """The labels of those partitions of ``now`` that have other files than what is kept."""
    return [label for label, own in now.items() if kept.get(label) != own]


def renewed(rows: pa.Table, kept: Files, now: Files, read: Callable[[list[str]], pa.Table]) -> pa.Table:
    """The rows of the partitions of ``now``, labels ascending; within one, in the order of its files.

    Args:
        rows: of the partitions ``kept``, with a column ``interval``.
        read: gives the rows of the named partitions, in the same columns; asked for those that have changed.
    """
    stale = changed(kept, now)
    stands = pa.array(sorted(now.keys() - set(stale)), pa.string())
    held = rows.filter(pc.is_in(rows.column("interval"), stands))
    # The sort is stable.
    return pa.concat_tables([held, read(stale)]).sort_by("interval")
