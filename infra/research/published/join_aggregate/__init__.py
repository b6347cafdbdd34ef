"""The join-aggregate algorithms of Wang et al. (2006) as published: to compare with, not to run a pipeline by."""

from infra.research.published.join_aggregate.catalogue import METHODS, resize, start, step
from infra.research.published.join_aggregate.query import Answer, Arrival, Query
from infra.research.published.join_aggregate.windows import Touched

__all__ = ["METHODS", "Answer", "Arrival", "Query", "Touched", "resize", "start", "step"]
