"""Top-k over out-of-order streams as published: methods to compare with, not to run a pipeline by."""

from infra.research.published.top_k.catalogue import METHODS, start
from infra.research.published.top_k.query import Answer, Arrival, Options, Query, arrivals
from infra.research.published.top_k.running import run, windows_of

__all__ = ["METHODS", "Answer", "Arrival", "Options", "Query", "arrivals", "run", "start", "windows_of"]
