"""Sessions: which there are at the instants at which they are answered, and of which tuples each consists."""

from tidegate.operators.sessions.finding import Answered, Spec, Tuples

__all__ = ["Answered", "Spec", "Tuples"]
