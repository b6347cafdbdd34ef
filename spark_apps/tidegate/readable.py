"""Bytes and seconds as people read them."""

from __future__ import annotations


def format_bytes(value: float) -> str:
    """Bytes in the largest binary unit that leaves at least one: 1536 → "1.5 KiB"."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1024 or unit == "TiB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.4g} {unit}"
        value /= 1024
    raise AssertionError


def duration(seconds: float) -> str:
    """Whole seconds, in the two largest units that are not zero.

    >>> duration(45), duration(89.4), duration(900), duration(9000), duration(90061)
    ('45 s', '1 min 29 s', '15 min', '2 h 30 min', '1 d 1 h')
    """
    rest, parts = round(seconds), []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"


def format_seconds(value: float) -> str:
    """Seconds in the largest unit that divides into a short number: 5400 → "1.5 h"."""
    for unit, size in (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if value >= size:
            return f"{value / size:.4g} {unit}"
    return f"{value:.4g} s"
