"""Validation results → outcomes by interval, and the rows of ``quality_results``.

One row for every failed row of a frame (the first few of each expectation, table and query), and one for every
expectation, table and query that passed, with the value that came closest to failing. Nothing in them depends on when
or how often the interval was judged, nor on which others were judged with it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from expectations.policy import Policy, Severity
from expectations.tables import instant

Row = dict[str, Any]
_TOLD = ("interval", "table", "query", "window_end")
_UNITS = {"_s": " s", "_bytes": " bytes"}


@dataclass(frozen=True)
class Outcome:
    """What became of one expectation in one interval.

    ``judged`` and ``failed`` count rows of the frame; ``rows`` are those of ``quality_results``.
    """

    rule: str
    says: str
    severity: Severity
    judged: int
    failed: int
    rows: tuple[Row, ...]

    @property
    def state(self) -> str:
        """``ok``, or the severity of the failure."""
        return "ok" if all(row["success"] for row in self.rows) else self.severity


def failures(rows: Sequence[Row], severity: str) -> list[Row]:
    """The failed rows of one severity."""
    return [row for row in rows if not row["success"] and row["severity"] == severity]


def sentence(row: Row) -> str:
    """A result in one line, for errors."""
    window = f", window ending {row['window_end']:%Y-%m-%dT%H:%M:%SZ}" if row["window_end"] else ""
    return f"{row['table']}{window}: {row['detail']}"


def number(value: float) -> str:
    """A number as a person writes it: no exponent, at most five digits after the point.

    >>> number(65536.0), number(0.95), number(1 / 3)
    ('65536', '0.95', '0.33333')
    """
    return f"{value:.0f}" if float(value).is_integer() else f"{value:.5f}".rstrip("0").rstrip(".")


def outcomes(suite: str, frame: pd.DataFrame, result: Any, labels: Sequence[str], policy: Policy) -> dict[str, Outcome]:
    """Label → what became of one expectation in that interval.

    Args:
        suite: the suite's name, for what cannot be told of any table.
        frame: the rows that were judged, with a column ``interval``, indexed from 0.
        result: Great Expectations' result of the expectation on the frame.
        labels: every interval that was judged.
        policy: how many failed rows are listed.
    """
    judgement = _Judgement(suite, frame, result, policy)
    return {label: judgement.outcome(label) for label in labels}


class _Judgement:
    """One expectation's result on the frame of several intervals."""

    def __init__(self, suite: str, frame: pd.DataFrame, result: Any, policy: Policy):
        config = result.expectation_config
        self._suite, self._policy, self._raised = suite, policy, _raised(result)
        self._meta, self._says = dict(config.meta), config.description
        self._severity: Severity = getattr(config.severity, "value", config.severity)
        arguments = config.kwargs
        columns = arguments.get("column_list") or [
            arguments[key] for key in ("column", "column_A", "column_B") if key in arguments
        ]
        judged = frame[frame[columns].notna().all(axis=1)]
        self._judged = Counter(judged["interval"])
        self._failed: dict[str, list[Row]] = defaultdict(list)
        for named in result.result.get("unexpected_index_list") or []:
            measured, promised = self._numbers(named)
            row = self._row(named, False, self._detail(named, measured, promised), measured, promised)
            self._failed[named["interval"]].append(row)
        self._passed: dict[str, list[Row]] = defaultdict(list)
        for label, row in self._closest(judged):
            self._passed[label].append(row)

    def outcome(self, label: str) -> Outcome:
        """What became of it in one interval."""
        failed = self._failed.get(label, [])
        broken = {(row["table"], row["query"]) for row in failed}
        rows = self._listed(failed)
        rows += [row for row in self._passed.get(label, []) if (row["table"], row["query"]) not in broken]
        if self._raised is not None:
            rows = [self._row(None, False, f"{self._says}: could not be checked: {self._raised}")]
        elif not rows:
            rows = [self._row(None, True, f"{self._says}: nothing to check in this interval")]
        judged = self._judged.get(label, 0)
        return Outcome(self._meta["rule"], self._says, self._severity, judged, len(failed), tuple(rows))

    def _closest(self, judged: pd.DataFrame) -> Iterator[tuple[str, Row]]:
        """For each interval, table and query the row that came closest to failing (the first of several)."""
        if judged.empty or self._raised is not None:
            return
        measured, promised = self._meta["measured"], self._meta["promised"]
        margin = pd.Series(0.0, index=judged.index)
        if measured is not None:
            margin = judged[measured] - (judged[promised] if isinstance(promised, str) else promised)
            margin = -margin if self._meta["relation"] == "at least" else margin
        keys = [judged["interval"], judged["table"], judged["query"].fillna("")]
        groups = margin.astype(float).groupby(keys, sort=True)
        told = list(dict.fromkeys(c for c in (*_TOLD, measured, promised) if isinstance(c, str)))
        closest: list[Any] = judged.loc[groups.idxmax().to_numpy(), told].to_dict("records")
        for values, size in zip(closest, groups.size(), strict=True):
            number_of, bound = self._numbers(values)
            if not self._meta["repeatable"]:
                number_of = None
            named = values if size == 1 else {**values, "window_end": None}
            yield values["interval"], self._row(named, True, self._says, number_of, bound)

    def _listed(self, failed: Sequence[Row]) -> list[Row]:
        """The first few of each table and query; the last of them says how many more there are."""
        most, listed = self._policy.failures_listed, []
        groups: dict[tuple[str, str | None], list[Row]] = defaultdict(list)
        for row in failed:
            groups[row["table"], row["query"]].append(row)
        for group in groups.values():
            group.sort(key=lambda row: (str(row["window_end"] or ""), row["detail"]))
            if len(group) > most:
                last = group[most - 1]
                group[most - 1] = {**last, "detail": f"{last['detail']} (and {len(group) - most} more)"}
            listed += group[:most]
        return listed

    def _numbers(self, values: Row) -> tuple[float | None, float | None]:
        measured, promised = self._meta["measured"], self._meta["promised"]
        if measured is None:
            return None, None
        return float(values[measured]), float(values[promised] if isinstance(promised, str) else promised)

    def _detail(self, named: Row, measured: float | None, promised: float | None) -> str:
        query, subject = _text(named.get("query")) or "", _text(named.get("subject")) or ""
        about = subject if query in subject else f"{query}, {subject}".removesuffix(", ")
        text = f"{self._says} ({about})" if about else self._says
        if measured is None or promised is None:
            return text
        unit = next((name for suffix, name in _UNITS.items() if self._meta["measured"].endswith(suffix)), "")
        return f"{text}: measured {number(measured)}{unit}, promised {self._meta['relation']} {number(promised)}{unit}"

    def _row(
        self,
        named: Row | None,
        success: bool,
        detail: str,
        measured: float | None = None,
        promised: float | None = None,
    ) -> Row:
        named = named or {}
        return {
            "table": _text(named.get("table")) or self._suite,
            "expectation": self._meta["rule"],
            "query": _text(named.get("query")),
            "severity": self._severity,
            "success": success,
            "promised": promised,
            "measured": measured,
            "detail": detail,
            "window_end": instant(_text(named.get("window_end"))),
        }


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _raised(result: Any) -> str | None:
    """The message of the exception that kept an expectation from being judged, if any."""
    info = result.exception_info or {}
    infos = [info] if "raised_exception" in info else list(info.values())
    return next((str(i["exception_message"]) for i in infos if i.get("raised_exception")), None)
