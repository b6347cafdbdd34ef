"""Questions cut by keys: each slice takes the tuples of some keys for all windows; what they give is put together.

Where windows reach back as far as the interval is long, slices of time would all work on the same tuples. Pairs of a
join have one key, so that tuples of different keys have nothing to do with each other; without a join any cut will do.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from tidegate.engine import Slice
from tidegate.engine.context import RunContext, StageRun
from tidegate.queries.questions import Answering, Question, shared_key
from tidegate.queries.slices import cuts, slices_worth
from tidegate.store.places import output, place


@dataclass(frozen=True, eq=False)
class Keyed:
    """A question about the tuples of some keys (``Question.part``), and the folder for what it gives."""

    asked: Question
    folder: str


@dataclass(frozen=True)
class Given:
    """The files of partial answers of a question, and the sum of what the parts' operators held at most."""

    files: tuple[str, ...] = ()
    peak_state_bytes: int = 0


def partial(part: Slice) -> tuple[str, int]:
    """Write the partial answers of a :class:`Keyed`; their file, and the most that the operator held.

    **Memory**: what the operator holds, and a part of the answers.
    """
    keyed: Keyed = part.of
    path = f"{keyed.folder}/{uuid.uuid4().hex}.arrow"
    answering = Answering(keyed.asked)
    with output(place(path)) as file, pa.ipc.new_file(file, answering.partial_schema) as out:
        for _, _, rows in answering.partials():
            out.write_table(rows)
    return path, answering.peak_state_bytes


def key_parts(asked: Question, count: int, most: int) -> int:
    """Into how many parts by keys a question of ``count`` windows is cut; 1 where cutting by time does as well."""
    worth = slices_worth(asked.rows(), most)
    by_time = len(cuts(asked, count, most))
    return worth if shared_key(asked.query) is not None and 2 * by_time <= worth else 1


def answered_by_keys(context: RunContext, stage: StageRun, questions: Sequence[tuple[Question, int]]) -> list[Given]:
    """The partial answers of each question, from as many parts as it is cut into; nothing where that is one."""
    parts: list[Keyed] = []
    owners: list[int] = []
    folder = stage.commit.scratch / "keys"
    for owner, (asked, number) in enumerate(questions):
        if number > 1:
            parts += [Keyed(replace(asked, part=(index, number)), str(folder)) for index in range(number)]
            owners += [owner] * number
    if parts:
        folder.mkdir()
    rows = sum(part.asked.rows() for part in parts)
    given = [Given() for _ in questions]
    for owner, (path, peak) in zip(owners, context.run_slices(partial, parts, rows), strict=True):
        given[owner] = Given((*given[owner].files, path), given[owner].peak_state_bytes + peak)
    return given
