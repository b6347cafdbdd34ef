"""A campaign: ``python -m tests.oracle --seed 1 --count 20000``; a seed is a pair of streams and twenty queries."""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.oracle.bounded import compared_bounded
from tests.oracle.evaluation import CUTS, NotTakenError, compared, parse
from tests.oracle.meanings import write_meanings
from tests.oracle.queries import draw_bounded_query, draw_calendar_query, draw_query, draw_session_query
from tests.oracle.sessions import compared_sessions
from tests.oracle.streams import draw_streams

from tidegate.queries.scan import EventFiles

QUERIES_OF_A_SEED = 20
SESSIONS_OF_A_SEED = 2
BOUNDED_OF_A_SEED = 3
COMPLETE = 600
"""Minutes after which all has arrived."""
SLOWER = 144


def differences(seed: int) -> Iterator[tuple[str, str]]:
    """Each of the seed's queries, and what differs; empty if nothing does."""
    chance = random.Random(seed)
    with TemporaryDirectory(prefix="tidegate-oracle-") as name:
        folder, slow = Path(name), Path(name) / "slow"
        files = write_meanings(draw_streams(chance, folder), folder)
        # The same half hour, as three days.
        slow_files = write_meanings(draw_streams(chance, slow, slower=SLOWER), slow)
        for number in range(QUERIES_OF_A_SEED):
            by_days = number % 5 == 4
            text = draw_calendar_query(chance) if by_days else draw_query(chance)
            slack, held, cut = chance.randint(0, 9), chance.choice([10, 10, 10, 6, 4]), chance.choice(CUTS)
            slack *= SLOWER if by_days else 1
            where = f"{text}  (waits {slack} min, holds {held}/10, {cut})"
            try:
                read, of = (slow_files, slow) if by_days else (files, folder)
                comparison = compared(parse(text), text, read, of, slack, held, cut)
            except NotTakenError as refused:
                yield where, f"refused: {refused}"
                continue
            yield where, "" if comparison is None or comparison.equal else str(comparison)
        yield from of_own_windows(random.Random(f"{seed}/own windows"), files, folder)


def of_own_windows(chance: random.Random, files: Mapping[str, EventFiles], folder: Path) -> Iterator[tuple[str, str]]:
    """Sessions, and joins with a bound: what tuples decide the windows of."""
    for number in range(SESSIONS_OF_A_SEED + BOUNDED_OF_A_SEED):
        slack, cut = chance.choice([*range(10), COMPLETE]), chance.choice(CUTS)
        try:
            if number < SESSIONS_OF_A_SEED:
                text = draw_session_query(chance)
                comparison = compared_sessions(text, files, folder, slack, cut)
            else:
                bounded = draw_bounded_query(chance)
                text = bounded.text
                comparison = compared_bounded(bounded, files, folder, slack, cut)
        except NotTakenError as refused:
            yield text, f"refused: {refused}"
            continue
        where = f"{text}  (waits {slack} min, {cut})"
        yield where, "" if comparison is None or comparison.equal else str(comparison)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.oracle", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--count", type=int, default=1000, help="queries, at least")
    args = parser.parse_args()
    seeds = range(args.seed, args.seed + -(-args.count // QUERIES_OF_A_SEED))
    began, asked, wrong = time.monotonic(), 0, 0
    for seed in seeds:
        for where, what in differences(seed):
            asked += 1
            if what:
                wrong += 1
                print(f"seed {seed}: {where}\n  {what}", flush=True)
        if (seed - args.seed) % 50 == 49:
            print(f"{asked} queries, {wrong} differ, {time.monotonic() - began:.0f} s", flush=True)
    print(f"seeds {seeds[0]} to {seeds[-1]}: {asked} queries, {wrong} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
