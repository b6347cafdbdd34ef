"""Window sizing: which window holds how much, within a memory budget that is never exceeded.

One instant (:func:`plan`), a running pipeline (:func:`step`, :func:`advance_counts`) and what windows really hold under
changing plans (:class:`EffectiveBounds`). Source: papers/01 (Li & Zhang, "Algorithms for dynamically adjusting the
sizes of sliding windows", Journal of Software 15(12), 2004).
"""

from tidegate.operators.window_sizing.bounds import NOT_YET_US, UNBOUNDED_US, EffectiveBounds
from tidegate.operators.window_sizing.c_support import MOST_WINDOWS, Method, TooManyWindowsError
from tidegate.operators.window_sizing.controller import (
    PLAN_SCHEMA,
    RATES_SCHEMA,
    STATE_SCHEMA,
    ControllerSpec,
    ControllerState,
    PlanRow,
    RateRow,
    SizedQuery,
    SizedStream,
    StreamState,
    advance,
    advance_counts,
    declared_tuple_bytes,
    plan_table,
    rates_table,
    step,
)
from tidegate.operators.window_sizing.needs import LARGEST, Needs, QueryNeed, WindowNeed
from tidegate.operators.window_sizing.planning import (
    GroupPlan,
    NeededBytes,
    Plan,
    SupportLevel,
    WindowPlan,
    live_widths,
    plan,
    support_level,
)

__all__ = [
    "LARGEST",
    "MOST_WINDOWS",
    "NOT_YET_US",
    "PLAN_SCHEMA",
    "RATES_SCHEMA",
    "STATE_SCHEMA",
    "UNBOUNDED_US",
    "ControllerSpec",
    "ControllerState",
    "EffectiveBounds",
    "GroupPlan",
    "Method",
    "NeededBytes",
    "Needs",
    "Plan",
    "PlanRow",
    "QueryNeed",
    "RateRow",
    "SizedQuery",
    "SizedStream",
    "StreamState",
    "SupportLevel",
    "TooManyWindowsError",
    "WindowNeed",
    "WindowPlan",
    "advance",
    "advance_counts",
    "declared_tuple_bytes",
    "live_widths",
    "plan",
    "plan_table",
    "rates_table",
    "step",
    "support_level",
]
