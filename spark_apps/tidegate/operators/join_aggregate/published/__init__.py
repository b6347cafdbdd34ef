"""The join-aggregate algorithms of Wang et al. (2006) as published: to compare with, not to run a pipeline by."""

from tidegate.operators.join_aggregate.published.catalogue import METHODS, resize, start, step
from tidegate.operators.join_aggregate.published.query import Answer, Arrival, Query
from tidegate.operators.join_aggregate.published.windows import Touched

__all__ = ["METHODS", "Answer", "Arrival", "Query", "Touched", "resize", "start", "step"]
