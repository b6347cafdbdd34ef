"""Top-k over out-of-order streams as published: methods to compare with, not to run a pipeline by."""

from tidegate.operators.top_k.published.catalogue import METHODS, start
from tidegate.operators.top_k.published.query import Answer, Arrival, Options, Query, arrivals
from tidegate.operators.top_k.published.running import run, windows_of

__all__ = ["METHODS", "Answer", "Arrival", "Options", "Query", "arrivals", "run", "start", "windows_of"]
