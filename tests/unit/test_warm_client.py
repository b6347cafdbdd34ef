"""Which commands a warm host is asked for, and which are started as ever."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

BIN = Path(__file__).resolve().parents[2] / "infra" / "spark" / "bin"


@pytest.fixture(scope="module")
def client() -> ModuleType:
    spec = importlib.util.spec_from_file_location("warm_client", BIN.parent / "warm_client.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_modules_and_applications_are_understood(client: ModuleType):
    assert client.request(["-m", "tidegate.cli", "run", "-m"]) == {"module": "tidegate.cli", "arguments": ["run", "-m"]}
    assert client.request(["/stages/top_k.py", "/flights"]) == {"script": "/stages/top_k.py", "arguments": ["/flights"]}
    for words in (["-c", "pass"], ["-m"], ["-u", "app.py"], []):
        assert client.request(words) is None


def test_a_host_is_used_by_one_client_at_a_time(client: ModuleType, tmp_path: Path):
    first, lock = client.free_host(str(tmp_path), 1)
    assert first == str(tmp_path / "host-0.sock")
    assert client.free_host(str(tmp_path), 1) == (None, None)
    os.close(lock)
    assert client.free_host(str(tmp_path), 1)[0] == first


@pytest.mark.parametrize("hosts", [None, "elsewhere"])
def test_without_a_host_it_is_the_command_itself(hosts: str | None, tmp_path: Path):
    """No folder for hosts, or a host that does not come: the same output and the same status."""
    environment = {**os.environ, "TIDEGATE_WARM_PYTHON": sys.executable}
    environment.pop("TIDEGATE_WARM_HOSTS", None)
    words = ["-m", "this.is.no.module"]
    if hosts:
        # A Python that ends at once is a host that does not come, and is the command as well.
        environment |= {"TIDEGATE_WARM_HOSTS": str(tmp_path / hosts), "TIDEGATE_WARM_PYTHON": "/bin/false"}
    done = subprocess.run([BIN / "warm_python", *words], env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert hosts or "No module named" in done.stderr
