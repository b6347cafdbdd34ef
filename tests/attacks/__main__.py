"""``python -m tests.attacks CAMPAIGN --seed N --count M``: attacks from seeds, one after another."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from tests.attacks import declarations, faults, full_disk, histories, kills, landings, records, store_faults

# Name → what attacks once with a seed, in an empty folder: how much was tried, and the faults that it found.
CAMPAIGNS: dict[str, Callable[..., tuple[int, list[str]]]] = {
    "records": records.attack,
    "declarations": declarations.attack,
    "kills": kills.attack,
    "histories": histories.attack,
    "object-kills": kills.attack_objects,
    "faults": faults.attack,
    "sites": faults.sites,
    "calls": faults.calls,
    "requests": store_faults.attack,
    "full-disk": full_disk.attack,
    "landings": landings.attack,
}
# What landings is told beside its seed: records that are committed, kills, and the minutes after which they end.
_LANDINGS = {"records": landings.RECORDS, "kills": landings.KILLS, "minutes": landings.MINUTES}


def main() -> int:
    """Run them; 1 if there is a fault."""
    parser = argparse.ArgumentParser(prog="python -m tests.attacks", description=__doc__)
    parser.add_argument("campaign", choices=CAMPAIGNS)
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the first seed")
    parser.add_argument("--count", type=int, default=1, metavar="M", help="how many seeds, one after another")
    for name, default in _LANDINGS.items():
        parser.add_argument(f"--{name}", type=type(default), metavar="N", help=f"of landings (default {default:g})")
    arguments = parser.parse_args()
    more = {name: vars(arguments)[name] for name in _LANDINGS if vars(arguments)[name] is not None}
    if more and arguments.campaign != "landings":
        parser.error(f"{' and '.join(f'--{name}' for name in more)}: landings alone has this")
    clock, tried, found = time.monotonic(), 0, 0
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        with tempfile.TemporaryDirectory(prefix="attack-") as folder:
            try:
                number, faults = CAMPAIGNS[arguments.campaign](seed, Path(folder), **more)
            except Exception:
                number, faults = 0, [traceback.format_exc()]
        tried, found = tried + number, found + len(faults)
        print(*faults, f"{arguments.campaign} {seed}: {number}, {len(faults)} faults", sep="\n", flush=True)
    seconds = time.monotonic() - clock
    print(f"{tried} {arguments.campaign}, {found} faults, {seconds:.0f} s, {sum(os.times()[:4]):.0f} s of processors")
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
