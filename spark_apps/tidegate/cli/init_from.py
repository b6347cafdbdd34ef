"""`tidegate init --from`: a pipeline for files or topics of the user's, as far as a sample of them says."""

from __future__ import annotations

import re
import tempfile
import textwrap
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from tidegate.cli.new_folder import check_empty, check_name, refusing_unwritable, run_command, write_dag, written_aside
from tidegate.declarations import load_pipeline
from tidegate.declarations.errors import DeclarationErrors
from tidegate.guess.first_queries import FirstQuery, first_queries
from tidegate.guess.kinds import kinds_in
from tidegate.guess.proposal import Proposal, propose
from tidegate.guess.sampling import beside
from tidegate.guess.topics import SCHEME, kind_of_topic
from tidegate.guess.writing import pipeline_file, range_of, readme, summary


def init_from(folder: Path, named: Sequence[str | Path], now_s: float | None = None) -> str:
    """Write a pipeline for the named files, folders and topics into the folder; returns what to tell the user.

    The folder must not exist or be empty. The files are neither moved nor copied. The last line is the command that
    runs the pipeline to answers.

    ``now_s``: the time, seconds since 1970; None: the machine's clock.

    Raises:
        UserError: the folder cannot be one, a file cannot be read, or no time can be seen in its records; or a topic
            cannot be looked at.
    """
    target = folder.resolve()
    check_name(folder, target)
    check_empty(folder, target)
    topics = [str(name) for name in named if str(name).startswith(SCHEME)]
    files_named = [Path(name) for name in named if not str(name).startswith(SCHEME)]
    kinds, skipped = kinds_in(files_named) if files_named else ([], [])
    kinds += map(kind_of_topic, topics)
    proposal = propose(target, kinds, beside([file for kind in kinds for file in kind.files]), skipped)
    if topics:
        proposal = proposal.until(time.time() if now_s is None else now_s)
    declaration = pipeline_file(proposal)
    queries = _chosen_queries(proposal, declaration)
    files = {"pipeline.yml": declaration, "README.md": readme(proposal, queries)}
    files |= {f"queries/{query.id}.sql": query.text for query in queries}
    with refusing_unwritable(folder), written_aside(target) as aside:
        _write(aside, files)
        write_dag(aside, target, datetime.fromtimestamp(proposal.clock.to_s, UTC).isoformat())
    return _what_next(folder, target, proposal)


def _chosen_queries(proposal: Proposal, declaration: str) -> list[FirstQuery]:
    """Of each stream the best query that Tidegate takes.

    Raises:
        DeclarationErrors: the proposal itself is no pipeline, which is a mistake of ours.
    """
    chosen: list[FirstQuery] = []
    for stream in proposal.streams:
        refused: DeclarationErrors | None = None
        for query in first_queries(stream, proposal.clock):
            try:
                _load(proposal.name, {"pipeline.yml": declaration, f"queries/{query.id}.sql": query.text})
            except DeclarationErrors as error:
                refused = refused or error
                continue
            chosen.append(query)
            break
        else:
            assert refused is not None
            raise refused
    return chosen


def _load(name: str, files: Mapping[str, str]) -> None:
    with tempfile.TemporaryDirectory(prefix="tidegate-init-") as scratch:
        folder = Path(scratch) / name
        _write(folder, files)
        load_pipeline(folder)


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


def _what_next(folder: Path, target: Path, proposal: Proposal) -> str:
    contents = {
        "pipeline.yml": "the streams, with what was seen beside each guess: read it first",
        "queries/": "a first question for each stream, in SQL",
        f"dags/{target.name}.py": "runs it every interval, for Airflow",
        "README.md": "what to run next",
    }
    width = max(map(len, contents))
    said = [part for line in summary(proposal) for part in _wrapped(line)]
    listed = [f"  {name:<{width}}  {what}" for name, what in contents.items()]
    run = run_command(folder, *range_of(proposal))
    return "\n".join([*said, "", *listed, "", "This runs it to answers:", "", run])


def _wrapped(line: str) -> list[str]:
    indent = re.match(r" *", line)
    ahead = indent[0] if indent else ""
    return textwrap.wrap(
        line.strip(),
        78,
        initial_indent=ahead,
        subsequent_indent=ahead + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
