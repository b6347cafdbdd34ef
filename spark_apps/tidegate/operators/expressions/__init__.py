"""The query language's expressions, computed by pyarrow and numpy on whole columns.

There is one translator, for everything that `declarations` lets through: conditions, measured values, what is ranked
by, outputs over aggregates, HAVING, and questions to history. Values are those of Spark SQL, and no row stops a stage:

- SQL's three-valued logic. NaN equals NaN and is larger than all other numbers; -0.0 equals 0.0.
- Whole numbers have 64 bits. What overflows, a division by zero, and a cast that does not fit are NULL.
- Instants are UTC microseconds. Text is compared byte by byte (UTF-8); LENGTH and SUBSTRING count code points.
- LIKE knows ``%``, ``_`` and ``\\``. Regular expressions are Java's as far as they need no backtracking (``patterns``).
- CAST reads numbers, instants and booleans strictly (``casts``).

**Cost**: a pass of pyarrow or numpy a node. Text functions without one of their own (case mapping beyond ASCII,
arguments that are columns themselves) and casts to and from text compute each distinct value once, in Python.
"""

from tidegate.operators.expressions.evaluation import columns_of, evaluate, truth
from tidegate.operators.expressions.failures import Failed, can_fail, checked
from tidegate.operators.expressions.pruning import pushed_down

__all__ = ["Failed", "can_fail", "checked", "columns_of", "evaluate", "pushed_down", "truth"]
