"""What one random instance says: the numbers behind the figures."""

from __future__ import annotations

import math

import numpy as np
from infra.benchmarks.window_sizing.instances import random_needs
from infra.research.figures.running import Row

from tidegate.operators.window_sizing.b_support import b_support
from tidegate.operators.window_sizing.c_support import MOST_WINDOWS, serial_groups, swings
from tidegate.operators.window_sizing.needs import Floats, Needs
from tidegate.operators.window_sizing.slots import slot_schedule

RANGE_S = (60.0, 3_600.0)
BYTE_RATE = (10.0, 1_000.0)
SLACK_FRACTION = (0.0, 0.5)
DELAY_S = (600.0, 7_200.0)
GENERATOR = (
    "random_needs of infra/benchmarks/window_sizing/instances.py: each query reads one window; ranges 1 to 60 min, "
    "byte rates 10 to 1000 bytes/s and delays 10 to 120 min log-uniform, slack widths 0 to 50 % of the range uniform"
)

SPARE_SHARE = 0.5
"""The budget of the figures of level B: so much of the way from what level B needs to what level A needs."""


def instance(queries: int, windows: int, seed: int) -> Needs:
    """The random instance of every figure."""
    return random_needs(
        seed, windows, queries, byte_rate=BYTE_RATE, range_s=RANGE_S, slack_fraction=SLACK_FRACTION, delay_s=DELAY_S
    )


def accumulated_error(queries: int, windows: int, seed: int) -> Row:
    """Σ E(w) in seconds with the spare memory shared equally, at random, and by B-Support; all hold Min_T and fit M."""
    needs = instance(queries, windows, seed)
    floors = needs.bytes_of(needs.min_t)
    spare = SPARE_SHARE * (needs.bytes_of(needs.max_t) - floors)
    at_random = np.random.default_rng(seed).random(windows)
    return {
        "equal_s": needs.accumulated_error_s(shared_out(needs, spare, np.ones(windows))),
        "random_s": needs.accumulated_error_s(shared_out(needs, spare, at_random)),
        "b_support_s": needs.accumulated_error_s(b_support(needs, floors + spare, needs.min_t)),
    }


def shared_out(needs: Needs, spare_bytes: float, weight: Floats) -> Floats:
    """Widths when spare memory goes to the windows by weight; what one cannot use (Max_T) goes to the others alike."""
    room = (needs.max_t - needs.min_t) * needs.byte_rate
    order = np.argsort(room / weight)
    left, weight_left, given = spare_bytes, float(weight.sum()), np.zeros(len(room))
    for window in order:
        given[window] = min(room[window], left * weight[window] / weight_left)
        left -= given[window]
        weight_left -= weight[window]
    return needs.min_t + given / needs.byte_rate


def shared_memory(queries: int, windows: int, seed: int) -> Row:
    """Exchange memory in bytes: every window its own (before), and in serial groups (after), by DP and by AP."""
    swing = swings(instance(queries, windows, seed))
    return {
        "exchange_bytes": math.fsum(swing.exchange_bytes.tolist()),
        "dp_share_bytes": serial_groups(swing, "dp").share_bytes,
        "ap_share_bytes": serial_groups(swing, "ap").share_bytes,
    }


def many_windows(queries: int, windows: int, seed: int) -> Row:
    """Share of AP, of the exact planner and, where it can, of DP, over what the exact planner proves to be needed."""
    swing = swings(instance(queries, windows, seed))
    exact = serial_groups(swing, "exact")
    dp = serial_groups(swing, "dp").share_bytes if windows <= MOST_WINDOWS else math.nan
    bound = exact.share_bound_bytes
    return {
        "bound_bytes": bound,
        "exact_excess": exact.share_bytes / bound - 1,
        "ap_excess": serial_groups(swing, "ap").share_bytes / bound - 1,
        "dp_excess": dp / bound - 1,
    }


def level_c_memory(queries: int, windows: int, seed: int) -> Row:
    """Bytes that level C needs: everything held at all times (level B), the paper's optimum, and ``joint``."""
    needs = instance(queries, windows, seed)
    return {
        "static_bytes": needs.bytes_of(needs.min_t),
        "paper_bytes": slot_schedule(needs, "dp").peak_bytes,
        "joint_bytes": slot_schedule(needs, "joint").peak_bytes,
    }
