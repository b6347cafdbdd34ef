"""How right answers were, and how long they would have had to wait, how much to hold, to be right enough."""

from tidegate.operators.accuracy.delay_law import SAMPLE_TUPLES, DelayLaw, DelaySample
from tidegate.operators.accuracy.error_width import (
    MISS_RATE,
    ShareChoice,
    choose_share,
    error_bounds,
    evidence_s,
    least_evidence,
    sample_stride,
    widths_to_try,
)
from tidegate.operators.accuracy.judge import OfGroups, Tally, judge, within
from tidegate.operators.accuracy.likeness import recent_delay
from tidegate.operators.accuracy.measures import (
    NOWHERE,
    Tolerance,
    group_errors,
    hit_rate,
    relative_error,
    row_errors,
    window_errors,
)
from tidegate.operators.accuracy.promise import Choice, Needed, Promise, PromiseState
from tidegate.operators.accuracy.promise import oracle as promise_oracle
from tidegate.operators.accuracy.promise import step as promise_step
from tidegate.operators.accuracy.slack import (
    SlackChoice,
    accuracy_at,
    choose_slack,
    needed_slack,
    needed_slack_on_grid,
    oracle_slack,
)
from tidegate.operators.accuracy.support import SHARES, Support, expected_accuracy

__all__ = [
    "NOWHERE",
    "MISS_RATE",
    "SAMPLE_TUPLES",
    "SHARES",
    "Choice",
    "DelayLaw",
    "DelaySample",
    "Needed",
    "OfGroups",
    "Promise",
    "PromiseState",
    "ShareChoice",
    "SlackChoice",
    "Support",
    "Tally",
    "Tolerance",
    "accuracy_at",
    "choose_share",
    "choose_slack",
    "error_bounds",
    "evidence_s",
    "expected_accuracy",
    "group_errors",
    "hit_rate",
    "judge",
    "least_evidence",
    "needed_slack",
    "needed_slack_on_grid",
    "oracle_slack",
    "promise_oracle",
    "promise_step",
    "recent_delay",
    "relative_error",
    "row_errors",
    "sample_stride",
    "widths_to_try",
    "window_errors",
    "within",
]
