"""A confined process reads what it may and does nothing else, root or not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.sql.confine import landlock_version

_TRIES = """
import os, socket, subprocess, sys
from pathlib import Path
from tidegate.sql.confine import NETWORK_SINCE, SCOPES_SINCE, confine, landlock_version
may, not_may, again = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "again"
if landlock_version() < 1:
    # There is nothing to see on this kernel but that the caller is told so.
    assert not confine([may])
    print("none")
    sys.exit()
opened = (not_may / "opened").open("w")
listening = socket.create_server(("127.0.0.1", 0))
parent = os.getppid()
assert confine([may, Path("/proc")])
if again:
    assert confine([may], siblings=True)

def tried(what):
    try:
        what()
    except OSError as error:
        return os.strerror(error.errno)
    return "done"

print("read", tried(lambda: (may / "file").read_text()))
print("list", tried(lambda: os.listdir(may)))
print("import", tried(lambda: __import__("decimal")))
opened.write("still"); opened.flush()
for name, what in {
    "read": lambda: (not_may / "file").read_text(),
    "password": lambda: Path("/etc/passwd").read_text(),
    "list": lambda: os.listdir(not_may),
    "write": lambda: (may / "file").write_text("x"),
    "make": lambda: (may / "new").write_text("x"),
    "temporary": lambda: Path("/tmp/tidegate-confined").write_text("x"),
    "folder": lambda: (may / "new").mkdir(),
    "remove": lambda: (may / "file").unlink(),
    "rename": lambda: (may / "file").rename(may / "other"),
    "link": lambda: os.symlink("/etc/passwd", may / "link"),
    "truncate": lambda: os.truncate(may / "file", 0),
    "run": lambda: subprocess.run(["/bin/true"]),
    **({} if landlock_version() < NETWORK_SINCE else {
    "call": lambda: socket.create_connection(listening.getsockname()[:2]),
    "listen": lambda: socket.create_server(("127.0.0.1", 0)),
    }),
    **({"kill": lambda: os.kill(parent, 0)} if landlock_version() >= SCOPES_SINCE else {}),
    **({"other processes": lambda: Path(f"/proc/{parent}/environ").read_text()} if again else {}),
}.items():
    found = tried(what)
    print(name, found)
    assert found in ("Permission denied", "Operation not permitted"), name
"""


@pytest.mark.parametrize("again", ["once", "again"])
def test_a_confined_process_only_reads_what_it_may(tmp_path: Path, again: str) -> None:
    may, not_may = tmp_path / "may", tmp_path / "not"
    for folder in (may, not_may):
        folder.mkdir()
        (folder / "file").write_text("content")
    run = subprocess.run([sys.executable, "-c", _TRIES, may, not_may, again], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    if landlock_version() < 1:
        assert run.stdout == "none\n"
        return
    assert run.stdout.startswith("read done\nlist done\nimport done\n")
    assert sorted(path.name for path in may.iterdir()) == ["file"]
    assert (may / "file").read_text() == "content"
    assert (not_may / "opened").read_text() == "still"


def test_a_limited_process_gets_no_more_memory_than_it_may() -> None:
    greedy = (
        "from tidegate.sql.confine import limit\nlimit(64 << 20)\nheld = bytearray(16 << 20)\n"
        "try:\n    bytearray(128 << 20)\nexcept MemoryError:\n    print('refused')\n"
    )
    run = subprocess.run([sys.executable, "-c", greedy], capture_output=True, text=True)
    assert run.stdout == "refused\n", run.stderr
