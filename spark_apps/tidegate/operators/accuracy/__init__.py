"""How right answers were, and how long they would have had to wait to be right enough."""

from tidegate.operators.accuracy.measures import hit_rate, relative_error
from tidegate.operators.accuracy.slack import (
    SlackChoice,
    accuracy_at,
    choose_slack,
    needed_slack,
    needed_slack_on_grid,
    oracle_slack,
)

__all__ = [
    "SlackChoice",
    "accuracy_at",
    "choose_slack",
    "hit_rate",
    "needed_slack",
    "needed_slack_on_grid",
    "oracle_slack",
    "relative_error",
]
