"""What one run of the paper's experiments says: the numbers behind the figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from infra.benchmarks.generator.lateness import Exponential
from infra.benchmarks.generator.randomness import Floats
from infra.research.figures.running import Row
from infra.research.figures.top_k.controllers import TARGET, accuracies, known_law_slack_s, learnt_slack_s
from infra.research.figures.top_k.streams import LAWS, SECOND_US, departures_stream, random_stream
from infra.research.published.top_k import Arrival, Options, Query, oracle, run, start, windows_of

from tidegate.declarations.promises import PERIODS_KEPT

QUERY = Query(60 * SECOND_US, 5 * SECOND_US, 5)
THETAS_S = (1, 6, 20)
HOUR_S = 3600
OPTIONS = Options(horizon_us=180 * SECOND_US)
WIDE = replace(OPTIONS, slack_us=60 * SECOND_US, grain_us=SECOND_US)
COARSE = replace(OPTIONS, slack_us=20 * SECOND_US, grain_us=2 * SECOND_US)

RUN_HOURS, RUN_RATE, BIN_S = 2, 1.0, 600
STEP_HOURS, STEP_AT_HOURS, STEP_RATE, STEP_BIN_S = 12, 2, 1.0, 300
STEP_THETAS_S = (6.0, 20.0)
RECHOSEN_S = 60
POOL_S = HOUR_S

TARGETS = (0.8, 0.9, 0.95, 0.99)
FIXED_S = (0, 0.5, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
FLIGHTS_QUERY = Query(HOUR_S * SECOND_US, 300 * SECOND_US, 10)
FLIGHTS_OPTIONS = Options(slack_us=4 * HOUR_S * SECOND_US, horizon_us=24 * HOUR_S * SECOND_US, grain_us=300 * SECOND_US)
FLIGHTS_FIXED_S = tuple(minutes * 60 for minutes in (0, 5, 15, 30, 60, 90, 120, 180, 240, 300, 360, 480, 720))
FLIGHTS_WARM_UP_S = 21 * 24 * HOUR_S

MINTOPK, LATER, GSTOPK = "dropped", "later", "gstopk"
K_SLACK, MP, AQ, PAPER, PAPER_WIDE, OURS = "k_slack", "mp", "aq", "paper", "paper_wide", "ours"
RUNS: dict[str, tuple[str, Options]] = {
    MINTOPK: ("MINTOPK", OPTIONS),
    LATER: ("MINTOPK-LATER", OPTIONS),
    GSTOPK: ("GSTOPK", OPTIONS),
    K_SLACK: ("K-SLACK", OPTIONS),
    MP: ("MP-K-SLACK", OPTIONS),
    AQ: ("AQ-K-SLACK", OPTIONS),
    PAPER: ("MINTOPK-ADAPTIVE", OPTIONS),
    PAPER_WIDE: ("MINTOPK-ADAPTIVE", WIDE),
}


Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Course:
    """One method's windows in order: accuracy, delay, K, and accesses a tuple (NaN where none are counted)."""

    accuracy: Floats
    delay_s: Floats
    slack_s: Floats
    touched: float = float("nan")


class Judged:
    """A stream with its truth, to run methods over."""

    def __init__(self, query: Query, stream: Sequence[Arrival]) -> None:
        self.query, self.stream = query, stream
        self.windows = windows_of(query, stream)
        self.truth = oracle.truth(query, stream, self.windows)
        self.needed_us = oracle.needed_slacks_us(query, self.truth)
        self.end_s = (np.asarray(self.windows) + 1) * query.slide_us / SECOND_US

    def course(self, name: str, options: Options) -> Course:
        """A published method, run tuple by tuple."""
        method = start(name, self.query, self.windows[0], options)
        found = list(run(method, self.stream, self.windows))
        return Course(
            np.array([oracle.accuracy(one, self.truth[one.window]) for one in found]),
            np.array([one.delay_us for one in found]) / SECOND_US,
            np.array([one.slack_us for one in found]) / SECOND_US,
            method.touched.total / len(self.stream),
        )

    def waited(self, slack_s: Floats) -> Course:
        """Whoever answers each window its K after its end: by the identity of the needed slacks."""
        return Course(accuracies(self.needed_us, slack_s), slack_s, slack_s)

    def ours(
        self, target: float, options: Options, pool_s: float, every_s: float, confidence: float | None = None
    ) -> Course:
        """Tidegate's rule: on average, or in this share of the periods of ``pool_s``."""
        return self.waited(
            learnt_slack_s(
                self.query,
                self.stream,
                self.needed_us,
                target,
                first_s=options.slack_us / SECOND_US,
                horizon_s=options.horizon_us / SECOND_US,
                pool_s=pool_s,
                every_s=every_s,
                confidence=confidence,
            )
        )


def binned(courses: Mapping[str, Course], end_s: Floats, bin_s: float, from_s: float) -> Row:
    """Means by bin of the windows' ends: columns ``<method>_<what>_<bin>``, the bin named by its end in seconds."""
    bins = (np.ceil(end_s / bin_s) * bin_s).astype(np.int64)
    row = {}
    for upto_s in np.unique(bins[end_s >= from_s]):
        own = (bins == upto_s) & (end_s >= from_s)
        for name, course in courses.items():
            for what in ("accuracy", "delay_s", "slack_s"):
                row[f"{name}_{what}_{upto_s}"] = float(getattr(course, what)[own].mean())
    return row


def over_time(theta_s: int, seed: int) -> Row:
    """Figs. 6a–c: every method at one disorder; means by bin, and over the run's second half (``_half``)."""
    judged = Judged(QUERY, random_stream([(RUN_HOURS * HOUR_S, Exponential(theta_s))], RUN_RATE, seed))
    courses = {prefix: judged.course(name, options) for prefix, (name, options) in RUNS.items()}
    courses[OURS] = judged.ours(TARGET, OPTIONS, POOL_S, RECHOSEN_S)
    warm_s = QUERY.width_us / SECOND_US
    row = dict(binned(courses, judged.end_s, BIN_S, warm_s))
    half = judged.end_s > RUN_HOURS * HOUR_S / 2
    for name, course in courses.items():
        row[f"{name}_accuracy_half"] = float(course.accuracy[half].mean())
        row[f"{name}_delay_s_half"] = float(course.delay_s[half].mean())
        row[f"{name}_touched_half"] = course.touched
    return row


def step_of_delays(seed: int) -> Row:
    """K and accuracy over time when the delays' mean steps up: the search with two grains, ours, and the law's."""
    before_s, after_s = STEP_THETAS_S
    step_s = STEP_AT_HOURS * HOUR_S
    laws = [(step_s, Exponential(before_s)), ((STEP_HOURS - STEP_AT_HOURS) * HOUR_S, Exponential(after_s))]
    judged = Judged(QUERY, random_stream(laws, STEP_RATE, seed))
    courses = {
        "paper": judged.course("MINTOPK-ADAPTIVE", OPTIONS),
        "coarse": judged.course("MINTOPK-ADAPTIVE", COARSE),
        "ours": judged.ours(TARGET, OPTIONS, POOL_S, RECHOSEN_S),
        "law": judged.waited(known_law_slack_s(QUERY, judged.windows, before_s, after_s, step_s)),
    }
    return binned(courses, judged.end_s, STEP_BIN_S, QUERY.width_us / SECOND_US)


def frontier(law: int, seed: int) -> Row:
    """Accuracy and mean delay of every method, over the second half of the run; after the last law the departures."""
    if law == len(LAWS):
        return flights_frontier()
    length_s = RUN_HOURS * HOUR_S
    judged = Judged(QUERY, random_stream([(length_s, list(LAWS.values())[law])], RUN_RATE, seed))
    return _frontier(judged, judged.end_s > length_s / 2, WIDE, FIXED_S, POOL_S, RECHOSEN_S)


def flights_frontier() -> Row:
    """The same of the departures, after three weeks; windows without departures are left out."""
    judged = Judged(FLIGHTS_QUERY, departures_stream())
    full = np.array([bool(found) for found in judged.truth.values()])
    own = full & (judged.end_s > FLIGHTS_WARM_UP_S)
    return _frontier(judged, own, FLIGHTS_OPTIONS, FLIGHTS_FIXED_S, 24 * HOUR_S, HOUR_S, PERIODS_KEPT)


def _frontier(
    judged: Judged,
    own: Mask,
    options: Options,
    fixed_s: Sequence[float],
    pool_s: float,
    every_s: float,
    confidence: float | None = None,
) -> Row:
    row = {}
    for name, index, course in _settings(judged, options, fixed_s, pool_s, every_s, confidence):
        row[f"{name}_accuracy_{index}"] = float(course.accuracy[own].mean())
        row[f"{name}_delay_s_{index}"] = float(course.delay_s[own].mean())
    return row


def _settings(
    judged: Judged,
    options: Options,
    fixed_s: Sequence[float],
    pool_s: float,
    every_s: float,
    confidence: float | None,
) -> Iterator[tuple[str, int, Course]]:
    for prefix in (MINTOPK, LATER, GSTOPK, MP):
        yield prefix, 0, judged.course(RUNS[prefix][0], options)
    for index, slack_s in enumerate(fixed_s):
        yield K_SLACK, index, judged.waited(np.full(len(judged.windows), float(slack_s)))
    for index, target in enumerate(TARGETS):
        asked = replace(options, target=target)
        yield AQ, index, judged.course("AQ-K-SLACK", asked)
        yield PAPER_WIDE, index, judged.course("MINTOPK-ADAPTIVE", asked)
        yield OURS, index, judged.ours(target, options, pool_s, every_s, confidence)
