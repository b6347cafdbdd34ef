"""TPC-H's CUSTOMER as a stream, as in the paper: one tuple a tick, 1 000 000 of them."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from infra.research.figures.running import Skipped

from tidegate.operators.history.laws import Float64s, Int64s

FOLDER = Path(".tidegate/tpch")
TICKS, SCALE_FACTOR = 1_000_000, 7
GENERATOR = f"tpchgen-cli, table CUSTOMER at scale factor {SCALE_FACTOR}, the first {TICKS:,} rows in order"


@dataclass(frozen=True, eq=False)
class Customers:
    """The stream: a balance and a nation a tick."""

    balance: Float64s
    nation: Int64s

    @property
    def ticks(self) -> int:
        """How many tuples there are."""
        return len(self.balance)


def make() -> None:
    """Generate the table, if it is not there; :class:`Skipped` without the generator."""
    if (FOLDER / "customer.parquet").exists():
        return
    beside = Path(sys.executable).parent / "tpchgen-cli"
    program = str(beside) if beside.exists() else shutil.which("tpchgen-cli")
    if program is None:
        raise Skipped("it needs TPC-H's tables: pip install tpchgen-cli")
    FOLDER.mkdir(parents=True, exist_ok=True)
    asked = ["parquet", "-s", str(SCALE_FACTOR), "--tables=customer", f"--output-dir={FOLDER}"]
    subprocess.run([program, *asked], check=True, stdout=subprocess.DEVNULL)


@functools.lru_cache(maxsize=1)
def customers() -> Customers:
    """The stream, from the file that ``make`` has left."""
    table = pq.read_table(FOLDER / "customer.parquet", columns=["c_acctbal", "c_nationkey"]).slice(0, TICKS)
    return Customers(
        table.column("c_acctbal").cast("float64").to_numpy(), table.column("c_nationkey").cast("int64").to_numpy()
    )
