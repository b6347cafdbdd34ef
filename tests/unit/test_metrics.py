"""What is said of a process tree's memory is what the kernel says of it."""

from __future__ import annotations

import subprocess
import sys

import psutil  # type: ignore[import-untyped]

from tidegate.engine.metrics import tree_bytes

HOLDS = """
import sys
for line in sys.stdin:
    held = b"x" * int(line)
    print(len(held), flush=True)
"""


def test_a_tree_is_measured_again_where_it_has_changed() -> None:
    """As exactly as promised: a process whose resident size has changed by less than a sixteenth is not looked up."""
    child = subprocess.Popen([sys.executable, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdin is not None and child.stdout is not None
    process = psutil.Process(child.pid)
    measured = []
    try:
        for held in (1, 2_000_000, 4_000_000, 200_000_000, 203_000_000, 1):
            child.stdin.write(f"{held}\n")
            child.stdin.flush()
            child.stdout.readline()
            pss, resident = process.memory_full_info().pss, process.memory_info().rss
            measured.append(tree_bytes(child.pid))
            assert abs(measured[-1] - pss) <= resident / 16 + 1_000_000
    finally:
        child.stdin.close()
        child.wait()
        child.stdout.close()
    assert measured[3] - measured[0] > 190_000_000
    assert tree_bytes(child.pid) == 0
