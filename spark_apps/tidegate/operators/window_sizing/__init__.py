"""Window sizing: which window holds how much, within a memory budget that is never exceeded.

One instant (:func:`plan`), a running pipeline (:func:`advance_counts`) and what windows really hold under changing
plans (:class:`EffectiveBounds`). Source: papers/01 (Li & Zhang, "Algorithms for dynamically adjusting the sizes of
sliding windows", Journal of Software 15(12), 2004).
"""

from tidegate.operators.window_sizing.bounds import NOT_YET_US, UNBOUNDED_US, EffectiveBounds
from tidegate.operators.window_sizing.c_support import MOST_WINDOWS, Method, TooManyWindowsError
from tidegate.operators.window_sizing.controller import Advanced, advance, advance_counts
from tidegate.operators.window_sizing.footprint import FOOTPRINT_SCHEMA, Footprint, FootprintSpec, observed
from tidegate.operators.window_sizing.ledger import Arrivals
from tidegate.operators.window_sizing.live_planning import LivePlan, live_plan
from tidegate.operators.window_sizing.needs import LARGEST, Needs, QueryNeed, WindowNeed
from tidegate.operators.window_sizing.planning import (
    GroupPlan,
    NeededBytes,
    Plan,
    SupportLevel,
    WindowPlan,
    plan,
    support_level,
)
from tidegate.operators.window_sizing.rows import (
    PLAN_SCHEMA,
    QUERY_PLAN_SCHEMA,
    RATES_SCHEMA,
    PlanRow,
    QueryPlanRow,
    RateRow,
    plan_table,
    query_plan_table,
    rates_table,
)
from tidegate.operators.window_sizing.spec import (
    ControllerSpec,
    SizedQuery,
    SizedStream,
    declared_tuple_bytes,
    longest_wait_s,
)
from tidegate.operators.window_sizing.state import STATE_SCHEMA, ControllerState, QueryState, StreamState
from tidegate.operators.window_sizing.waits import Room, Wait, Want, choose_waits

__all__ = [
    "FOOTPRINT_SCHEMA",
    "LARGEST",
    "MOST_WINDOWS",
    "NOT_YET_US",
    "PLAN_SCHEMA",
    "QUERY_PLAN_SCHEMA",
    "RATES_SCHEMA",
    "STATE_SCHEMA",
    "UNBOUNDED_US",
    "Advanced",
    "Arrivals",
    "ControllerSpec",
    "ControllerState",
    "EffectiveBounds",
    "Footprint",
    "FootprintSpec",
    "GroupPlan",
    "LivePlan",
    "Method",
    "NeededBytes",
    "Needs",
    "Plan",
    "PlanRow",
    "QueryNeed",
    "QueryPlanRow",
    "QueryState",
    "RateRow",
    "Room",
    "SizedQuery",
    "SizedStream",
    "StreamState",
    "SupportLevel",
    "TooManyWindowsError",
    "Wait",
    "Want",
    "WindowNeed",
    "WindowPlan",
    "advance",
    "advance_counts",
    "choose_waits",
    "declared_tuple_bytes",
    "live_plan",
    "longest_wait_s",
    "observed",
    "plan",
    "plan_table",
    "query_plan_table",
    "rates_table",
    "support_level",
]
