"""A second process for stages: what it raises is raised here, and it does not outlive this one."""

from __future__ import annotations

import io
import subprocess
import sys
from multiprocessing import Pipe
from pathlib import Path

import pytest
from tests.quality.good_warehouse import good_pipeline, intervals

from tidegate.declarations.errors import UserError
from tidegate.engine.context import RunContext
from tidegate.stages.companion import Companion


def test_what_a_stage_raises_is_raised_by_whoever_waits(tmp_path: Path) -> None:
    pipeline = good_pipeline()
    with RunContext(pipeline, tmp_path, output=io.StringIO()) as context:
        with pytest.raises(UserError, match="has no partition for 2013-02-08T00"), Companion(context) as companion:
            companion.run(["sample_history"], intervals(pipeline)[:1])
        # The failure of what is done here comes first.
        with pytest.raises(KeyError), Companion(context) as companion:
            companion.run(["sample_history"], intervals(pipeline)[:1])
            raise KeyError


def test_a_process_that_was_ended_is_told_of(tmp_path: Path) -> None:
    pipeline = good_pipeline()
    with RunContext(pipeline, tmp_path, output=io.StringIO()) as context, Companion(context) as companion:
        companion.run(["sample_history"], intervals(pipeline)[:1])
        assert companion._process is not None
        companion._process.kill()
        companion._process.wait()
        with pytest.raises(RuntimeError, match="ended from outside"):
            companion.wait()


def test_it_ends_with_the_process_that_started_it() -> None:
    ours, theirs = Pipe()
    command = [sys.executable, "-m", "tidegate.stages.companion", str(theirs.fileno())]
    process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
    theirs.close()
    ours.send((good_pipeline(), Path("warehouse")))
    ours.close()
    assert process.wait(60) == 1
