"""The paper's cost model: accesses per tuple that arrives, when the windows hold α and β tuples."""

from __future__ import annotations


def ic_accesses(alpha: float, beta: float, buckets: int, expired_a: float, expired_b: float) -> float:
    """Eq. 3, for a tuple that arrives on A.

    >>> ic_accesses(100, 100, 20, 1, 1)
    216.0
    """
    joins = beta / buckets + expired_a * beta / buckets + expired_b * alpha / buckets
    return alpha + beta + joins + expired_a * expired_b


def tc_accesses(alpha: float, beta: float, buckets: int) -> float:
    """Eq. 6, for a tuple that arrives on A.

    >>> tc_accesses(100, 100, 20)
    405.0
    """
    return 2 * (alpha + beta) + beta / buckets
