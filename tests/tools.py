"""Tools beside Python that some tests need: there, or a failure that says how to get them."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

HOW = {
    "bash": "apt-get install bash",
    "chromium": "apt-get install chromium, or name another one by TIDEGATE_CHROMIUM",
    "kubectl": "https://kubernetes.io/docs/tasks/tools/",
}


def tool(name: str) -> str:
    """The path of a tool of this environment or of the machine; the test fails without it."""
    environment = Path(sys.executable).parent
    path = os.environ.get(f"TIDEGATE_{name.upper()}") or shutil.which(name, path=str(environment)) or shutil.which(name)
    if path is None:
        pytest.fail(f"{name} is not installed: {HOW.get(name, 'make setup installs it')}", pytrace=False)
    return path
