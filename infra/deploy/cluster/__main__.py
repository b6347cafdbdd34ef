"""Run a cluster on this machine until Ctrl-C: python -m infra.deploy.cluster --workers 2 --cores 1."""

from __future__ import annotations

import argparse
import tempfile
from contextlib import suppress
from pathlib import Path

from infra.deploy.cluster.standalone import serve

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m infra.deploy.cluster", description=__doc__)
    parser.add_argument("--workers", type=int, default=2, metavar="N")
    parser.add_argument("--cores", type=int, default=1, metavar="N", help="tasks at a time, of each worker")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidegate-cluster-") as folder, suppress(KeyboardInterrupt):
        serve(Path(folder), arguments.workers, arguments.cores)
