"""Values that have been, or might be, taken for what they are not."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa

# Texts that have been, or might be, taken for values that they are not.
TEXTS = [
    *[
        "",
        " ",
        "0",
        "-0",
        "+1",
        " 7 ",
        "\t7",
        "007",
        "12.0",
        "12.00",
        "12.5",
        "1.0000000001",
        "1e3",
        "0x10",
        "1d",
        "1_0",
    ],
    *["9223372036854775807", "9223372036854775808", "-9223372036854775808", "99999999999999999999999999", "１２"],
    *["1.", ".5", "-.5e-3", "1e400", "-1e400", "1e", "e5", ".", "-", "0x1p3", "1f", "nan", "NaN", "-inf", "Infinity"],
    *[
        "true",
        "FALSE",
        "yes",
        "t",
        "12:30",
        "10",
        "2024",
        "2024-03",
        "2024-3-1",
        "2024-03-01",
        "2024-02-30",
        "0000-01-01",
    ],
    *["2024-03-01 xyz", "2024-03-01T10", "2024-03-01T10Z", "2024-03-01T10:05", "2024-03-01 10:05:06", "20240301"],
    *["2024-03-01T10:05:06.1Z", "2024-03-01T10:05:06.123456789Z", "2024-03-01T10:05:06.1234567890Z", "2024-03-01Z"],
    *["2024-03-01T11:05:06+01:00", "2024-03-01T11:05:06+0100", "2024-03-01T09:05:06-01", "2024-03-01T10:05:06z"],
    *["2024-03-01T24:00:00Z", "2024-03-01T10:60:00Z", "2024-03-01T10:05:60Z", "2024-03-01T10:05:06+24:00", "now"],
    *[
        "0001-01-01T00:00:00+01:00",
        "0000-12-31T23:30:00-01:00",
        "9999-12-31T23:30:00-01:00",
        "12024-01-01",
        "-0001-01-01",
    ],
    *["ä", "\u0000", "\ufeff", "a,b", 'a"b', '"', '""', "a\tb", "2024-03-01T10:05:06.Z", "2024-03-01T100506Z", "null"],
]
JSON_TOKENS = [
    *["null", "true", "false", "0", "-0", "12.0", "1e3", "1.5", "1e400", "NaN", "-Infinity", "01", "1.", "+1", "[]"],
    *['{"a": 1}', '"\\u00e4"', '"\\ud800"', '"\\ud83d\\ude00"', '"\\x"', '"\u0001"', "nul", "9223372036854775808", ""],
    *["[1,", "'a'", "123456789012345678901234567890", '"a\\nb"', "1 2", '"a" "b"', "}{", "{}", "\\u0031"],
]

_HOUR_US = int(datetime(2024, 3, 1, 10, tzinfo=UTC).timestamp()) * 1_000_000
ARROW = [
    pa.array(["a", None, "12.0", "2024-03-01T10:00:00Z"]),
    pa.array(["a", "2024-03-01"], pa.large_string()),
    pa.array(["a", "true", None], pa.string_view()),
    pa.array(["a", "b", "a"]).dictionary_encode(),
    pa.array([1, None, 2**63 - 1, 0]),
    pa.array([1, 2**64 - 1], pa.uint64()),
    pa.array([1, -128], pa.int8()),
    pa.array([1.5, float("nan"), None, 12.0, 1e300, -0.0]),
    pa.array(np.array([1.5, 2.0, float("inf")], np.float16)),
    pa.array([1.5, 2.0], pa.float32()),
    pa.array([Decimal("1.50"), Decimal("2.00"), None]),
    pa.array([Decimal("1.5"), Decimal("2")], pa.decimal256(60, 3)),
    pa.array([True, None, False]),
    pa.array([_HOUR_US, _HOUR_US + 1, None], pa.int64()).cast(pa.timestamp("us")),
    pa.array([_HOUR_US * 1000 + 999, -1], pa.int64()).cast(pa.timestamp("ns", "Europe/Berlin")),
    pa.array([_HOUR_US // 1000], pa.int64()).cast(pa.timestamp("ms", "UTC")),
    pa.array([_HOUR_US // 1_000_000, -(2**62)], pa.int64()).cast(pa.timestamp("s")),
    pa.array([-9223372036854775808, 2**62], pa.int64()).cast(pa.timestamp("us")),
    pa.array([19783, None, -800_000, 3_000_000], pa.int32()).cast(pa.date32()),
    pa.array([19783 * 86_400_000], pa.int64()).cast(pa.date64()),
    pa.array([1000], pa.int32()).cast(pa.time32("ms")),
    pa.array([1000], pa.int64()).cast(pa.time64("us")),
    pa.array([1000], pa.duration("us")),
    pa.array([b"a", b"\xff"]),
    pa.array([b"a\xff", b"ok"]).view(pa.string()),
    pa.array([[1], None]),
    pa.array([{"a": 1}]),
    pa.nulls(3),
]
