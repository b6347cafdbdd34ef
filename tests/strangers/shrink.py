"""Makes a broken case small: whatever can go while the same law stays broken, goes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.strangers.case import Case
from tests.strangers.machine import judge

MOST_TRIALS = 60
OPTIONAL = {"description", "initial_slack", "promise_period", "rate_change", "partitions", "tables"}
OPTIONAL_OF_STREAM = {"history", "max_early", "max_width", "missing_file"}


def shrink(case: Case, law: str, spark: Any) -> Case:
    """The smallest case found that breaks the law; at most `MOST_TRIALS` runs."""
    trials, progress = 0, True
    while progress:
        progress = False
        for smaller in simpler(case):
            if trials >= MOST_TRIALS:
                return case
            trials += 1
            with tempfile.TemporaryDirectory(prefix="stranger-") as folder:
                broken = {breach.law for breach in judge(smaller, Path(folder), spark).breaches}
            if law in broken:
                case, progress = smaller, True
                break
    return case


def simpler(case: Case) -> Iterator[Case]:
    """The case with one thing less, the largest things first."""
    if case.publish:
        yield replace(case, publish=False)
    if case.live:
        yield replace(case, live=False)
    if case.again:
        yield replace(case, again=())
    if case.cuts:
        yield replace(case, cuts=(), again=())
    for name in list(case.queries):
        yield replace(case, queries={k: v for k, v in case.queries.items() if k != name})
    for name in list(case.derived):
        yield replace(case, derived={k: v for k, v in case.derived.items() if k != name})
    streams = case.declaration["streams"]
    for name in streams:
        if len(streams) > 1 and not any(name in sql for sql in (*case.queries.values(), *case.derived.values())):
            declaration = {**case.declaration, "streams": {k: v for k, v in streams.items() if k != name}}
            yield replace(case, declaration=declaration, files=tuple(f for f in case.files if f.stream != name))
    if case.questions:
        yield replace(case, questions=())
    for parts in (2, 4):
        size = max(1, len(case.files) // parts)
        for first in range(0, len(case.files), size):
            if len(case.files) > 1:
                yield replace(case, files=case.files[:first] + case.files[first + size :])
    for number, file in enumerate(case.files):
        size = max(1, len(file.records) // 2)
        for first in range(0, len(file.records), size):
            if len(file.records) > 1:
                kept = replace(file, records=file.records[:first] + file.records[first + size :])
                yield replace(case, files=(*case.files[:number], kept, *case.files[number + 1 :]))
    for key in sorted(OPTIONAL & set(case.declaration)):
        yield replace(case, declaration={k: v for k, v in case.declaration.items() if k != key})
    for name, stream in streams.items():
        for key in sorted(OPTIONAL_OF_STREAM & set(stream)):
            less = {k: v for k, v in stream.items() if k != key}
            yield replace(case, declaration={**case.declaration, "streams": {**streams, name: less}})
    if case.intervals > 1:
        yield replace(case, intervals=case.intervals - 1)
