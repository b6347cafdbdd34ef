"""The k best tuples of each sliding window of an out-of-order stream."""

from tidegate.operators.top_k.operator import State, advance, finish, merge, start, state_bytes, step
from tidegate.operators.top_k.sifting import sifted
from tidegate.operators.top_k.spec import Spec, Term

__all__ = [
    "Spec",
    "State",
    "Term",
    "advance",
    "finish",
    "merge",
    "sifted",
    "start",
    "state_bytes",
    "step",
]
