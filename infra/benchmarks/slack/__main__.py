"""The calibration of K over streams whose mean delay steps by up to 30 % an hour, between 4 and 20 s.

Top 5 of windows of 60 s by 5 s, 20 tuples a second, ACCURACY 95 %, a choice a minute. Two promises, each with scores
that do not depend on the delays and with scores that do: on average over all hours, and kept in 99 % of the hours. K is
compared with the one of a controller that knows the law of the winners' delays, for the second promise lengthened by
the factor with which it keeps the promise in as many hours.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from infra.benchmarks.generator.randomness import Floats
from infra.benchmarks.slack.control import HORIZON_S, course, kept_by_hour, matching_factor
from infra.benchmarks.slack.stream import (
    RANGE_S,
    expected_accuracy,
    hours_of,
    known_law_slack_s,
    stepping_thetas,
    stream,
    winners,
)

from tidegate.operators.accuracy import Promise

TARGET, CONFIDENCE = 0.95, 0.99
WARM_UP_HOURS = 8
TOLERATED = 0.005


@dataclass(frozen=True)
class Result:
    """Of one seed, hour by hour after the warm-up.

    ``expected``, ``measured``: accuracy, by the law and of the windows. ``slack_s``, ``known_s``: mean K, and that of
    the one who knows the law. ``factors``: the least factor with which that one's K keeps each hour's promise.
    """

    expected: Floats
    measured: Floats
    slack_s: Floats
    known_s: Floats
    factors: Floats


def run(seed: int, hours: int, correlation: float, confidence: float | None) -> Result:
    """One stream, one promise."""
    theta_s = stepping_thetas(seed, hours)
    of = stream(theta_s, seed, correlation)
    found = winners(of)
    promise = Promise(TARGET, 3600, HORIZON_S, confidence, offset_s=RANGE_S / 10)
    chosen = course(of, found, promise)
    hour = hours_of(chosen.at_s)
    now_s = theta_s[hour]
    known_s = known_law_slack_s(correlation, TARGET, now_s)
    count = np.bincount(hour, minlength=hours)

    def by_hour(values: Floats) -> Floats:
        return np.asarray(np.bincount(hour, values, hours) / count)[WARM_UP_HOURS:]

    return Result(
        by_hour(expected_accuracy(correlation, chosen.slack_s, now_s)),
        kept_by_hour(found, chosen.of_windows(found.end_us), hours)[WARM_UP_HOURS:],
        by_hour(chosen.slack_s),
        by_hour(known_s),
        matching_factor(of, found, correlation, TARGET)[WARM_UP_HOURS:],
    )


def summary(results: Sequence[Result]) -> dict[str, float]:
    """Shares of the hours, and K over that of the one who knows the law."""
    expected, measured, slack_s, known_s, factors = (
        np.concatenate([getattr(r, name) for r in results])
        for name in ("expected", "measured", "slack_s", "known_s", "factors")
    )
    kept = measured >= TARGET
    # The factor with which the one who knows the law keeps as many hours.
    factor = np.sort(factors)[max(int(kept.sum()) - 1, 0)]
    return {
        "expected_within": float((expected >= TARGET - TOLERATED).mean()),
        "expected_worst": float(expected.min()),
        "slack_over_known": float(slack_s.mean() / known_s.mean()),
        "kept": float(kept.mean()),
        "slack_over_equal": float(slack_s.mean() / (known_s.mean() * factor)),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m infra.benchmarks.slack",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", type=int, default=20, help="streams a row (default 20)")
    parser.add_argument("--hours", type=int, default=72, help="length of each (default 72)")
    asked = parser.parse_args(arguments)
    if asked.hours <= WARM_UP_HOURS or asked.seeds < 1:
        parser.error(f"--hours must be more than {WARM_UP_HOURS}, --seeds at least 1")
    print(f"{asked.seeds} streams of {asked.hours} hours, the first {WARM_UP_HOURS} left out")
    heads = f"{'≥ 94.5 %':>9} {'worst':>7} {'K/law':>6} {'kept':>7} {'K/equal':>8} {'s':>6}"
    print(f"{'scores':<12} {'promise':<12} {heads}")
    for correlation in (0.0, 0.5):
        for confidence in (None, CONFIDENCE):
            began, results = time.perf_counter(), []
            for seed in range(asked.seeds):
                results.append(run(seed, asked.hours, correlation, confidence))
                if sys.stderr.isatty():
                    print(f"\r{seed + 1} of {asked.seeds} streams", end="", file=sys.stderr)
            found = summary(results)
            scores = "independent" if correlation == 0 else "correlated"
            promise = "on average" if confidence is None else f"{confidence:.0%} of hours"
            print(
                f"\r{scores:<12} {promise:<12} {found['expected_within']:>9.1%} {found['expected_worst']:>7.4f} "
                f"{found['slack_over_known']:>6.3f} {found['kept']:>7.1%} {found['slack_over_equal']:>8.3f} "
                f"{time.perf_counter() - began:>6.0f}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
