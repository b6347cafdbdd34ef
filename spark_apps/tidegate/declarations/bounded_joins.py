"""Joins with a bound in time, EXISTS and NOT EXISTS → a window without RANGE, and what comes of its tuples.

``orders [1 HOUR] AS o LEFT ANTI JOIN payments AS p ON p.order = o.id AND p.at BETWEEN o.at AND o.at + INTERVAL 30
MINUTES`` and ``WHERE NOT EXISTS (SELECT 1 FROM payments AS p WHERE …)`` are the same declaration. The window of the
stream without RANGE follows from the bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from tidegate.declarations.expression_types import time_unit
from tidegate.declarations.from_clause import BOUND_SHAPE, Bare, From
from tidegate.declarations.join_conditions import Compared, check_connected, conjuncts, read_conditions
from tidegate.declarations.models import Bound, JoinClass, Query, Window
from tidegate.declarations.positions import Report
from tidegate.declarations.query_text import QueryText
from tidegate.declarations.scope import Scope, ScopedColumn, StreamSchema, Unresolved, offset_of
from tidegate.declarations.units import INTERVAL_US, SECOND_US, show_duration

EXISTS_SHAPE = f"EXISTS (SELECT 1 FROM b WHERE b.x = a.x AND {BOUND_SHAPE})"


def take_exists(select: exp.Select, report: Report) -> list[tuple[exp.Table, Bare]]:
    """Take EXISTS and NOT EXISTS out of WHERE: the stream that each is about, and the conditions on it."""
    where = select.args.get("where")
    found: list[tuple[exp.Table, Bare]] = []
    rest: list[exp.Expression] = []
    for part in conjuncts(where.this) if where else ():
        inner, negated = part.unnest(), False
        while isinstance(inner, exp.Not):
            inner, negated = inner.this.unnest(), not negated
        if not isinstance(inner, exp.Exists):
            within = next(iter(part.find_all(exp.Exists)), None)
            if within is not None:
                report.add(offset_of(within), "EXISTS is joined by AND with the other conditions", EXISTS_SHAPE)
            else:
                rest.append(part)
            continue
        inside = inner.this
        table = inside.args["from_"].this if isinstance(inside, exp.Select) and inside.args.get("from_") else None
        beside = [key for key, value in inside.args.items() if value and key not in ("expressions", "from_", "where")]
        if not isinstance(table, exp.Table) or beside or table.args.get("joins"):
            report.add(offset_of(inner), "EXISTS takes a SELECT of one stream with WHERE", EXISTS_SHAPE)
            continue
        on = conjuncts(inside.args["where"].this) if inside.args.get("where") else []
        found.append((table, Bare("anti" if negated else "semi", on, offset_of(table), table.name)))
    if where and len(rest) < len(conjuncts(where.this)):
        whole = rest[0] if rest else None
        for part in rest[1:]:
            whole = exp.And(this=whole, expression=part)
        select.set("where", None if whole is None else exp.Where(this=whole))
    return found


@dataclass
class Joined:
    """What the conditions of WHERE, ON and EXISTS say, and the windows that they are of."""

    windows: tuple[Window, ...]
    predicates: dict[str, str]
    classes: tuple[JoinClass, ...]
    compared: Compared


def read_joined(
    sources: From, conditions: Sequence[exp.Expression], scope: Scope, report: Report, tick_us: int | None
) -> Joined | None:
    """What a query joins, and how; None after a mistake that leaves no more to be checked.

    ``conditions``: of WHERE, and of ON of inner joins. ``scope``: without the aliases of optional sides; with those of
    them that the rest of the query sees, and the join classes, afterwards.
    """
    if not sources.bare:
        predicates, scope.classes, compared = read_conditions(conditions, scope, report)
        if not report.mistakes:
            check_connected(scope, scope.classes, sources.offsets, report)
        return Joined(sources.windows, predicates, scope.classes, compared)
    bare, *more = sources.bare
    if more or len(sources.schemas) > 2 or len(sources.windows) != 1:
        two = "one stream with a window and one without, and reference tables"
        if sources.windows:
            report.add((more or [bare])[0].offset, "a join with a bound is of two streams", two)
        return None
    return _bounded(sources, bare, conditions, scope, report, tick_us)


def _bounded(
    sources: From, bare: Bare, conditions: Sequence[exp.Expression], scope: Scope, report: Report, tick_us: int | None
) -> Joined | None:
    (ranged,) = sources.windows
    every = Scope(sources.schemas, references=scope.references, matched=scope.matched)
    reader = _BoundReader(every, bare, ranged.alias, report, tick_us)
    if bare.kind == "inner":
        bound, rest = reader.read(conditions)
        predicates, scope.classes, compared = read_conditions(rest, every, report)
        classes = scope.classes
    else:
        bound, rest = reader.read(bare.on)
        others = [part for part in conditions if not _is_misplaced(part, bare, scope, every, report)]
        predicates, _, _ = read_conditions(others, scope, report)
        on, classes, compared = read_conditions(rest, every, report, paired=ranged.alias)
        predicates |= {alias: sql for alias, sql in on.items() if alias == bare.alias}
        if bare.kind == "left":
            scope.aliases[bare.alias] = _optional(sources.schemas[bare.alias])
    if not report.mistakes:
        check_connected(every, classes, sources.offsets, report)
    if bound is None:
        return None
    return Joined((ranged, _window(bare, bound, ranged, sources)), predicates, classes, compared)


def _optional(schema: StreamSchema) -> StreamSchema:
    """An optional side as the result of the join sees it: where no tuple matches, constants of a derived stream are
    NULL, too.
    """
    computed = {name: f"CASE WHEN event_time IS NOT NULL THEN {sql} END" for name, sql in schema.computed.items()}
    return replace(schema, computed=computed)


def _window(bare: Bare, bound: Bound, ranged: Window, sources: From) -> Window:
    range_s = ranged.range_s - bound.low_s + bound.high_s
    return Window(alias=bare.alias, range_s=range_s, bound=bound, **sources.schemas[bare.alias].read)


def _is_misplaced(part: exp.Expression, bare: Bare, scope: Scope, every: Scope, report: Report) -> bool:
    """Whether a condition of WHERE is about the optional side; then it is a mistake."""
    for column in part.find_all(exp.Column):
        found = every.find(column) if isinstance(scope.find(column), Unresolved) else None
        if isinstance(found, ScopedColumn) and found.alias == bare.alias:
            if bare.kind == "left":
                expected = "the condition in ON; NOT EXISTS for tuples without a match, JOIN for those with one"
                report.add(offset_of(column), f"WHERE is about '{bare.alias}', the optional side", expected)
            else:
                report.add(offset_of(column), f"'{bare.alias}' is not in the result of the join", "the condition in ON")
            return True
    return False


@dataclass(frozen=True)
class _Limit:
    """One end of a bound: microseconds, and as it is written, without what < and > leave out."""

    us: int
    written_us: int
    offset: int


@dataclass
class _BoundReader:
    scope: Scope
    bare: Bare
    to: str
    report: Report
    tick_us: int | None

    def read(self, conditions: Sequence[exp.Expression]) -> tuple[Bound | None, list[exp.Expression]]:
        """The bound that some of the conditions are, None after a mistake; and the other conditions."""
        rest: list[exp.Expression] = []
        lows: list[_Limit] = []
        highs: list[_Limit] = []
        for condition in conditions:
            found = self._limits(condition)
            if found is None:
                rest.append(condition)
                continue
            low, high = found
            lows += [low] if low else []
            highs += [high] if high else []
        alias, offset = self.bare.alias, self.bare.offset
        if not lows and not highs and self.bare.kind == "inner":
            self.report.add(
                offset, f"the window of stream '{self.bare.stream}' is missing", f"{_WINDOW}, or {BOUND_SHAPE}"
            )
            return None, rest
        if not lows or not highs:
            missing = "bound in time" if not lows and not highs else "earliest time" if not lows else "latest time"
            self.report.add(offset, f"'{alias}' has no {missing}", BOUND_SHAPE)
            return None, rest
        low, high = max(lows, key=lambda one: one.us), min(highs, key=lambda one: one.us)
        if low.us > high.us:
            self.report.add(high.offset, f"no tuple of '{alias}' is within the bound", BOUND_SHAPE)
            return None, rest
        for one in (low, high):
            if self.tick_us and one.written_us % self.tick_us:
                written = show_duration(abs(one.written_us) / SECOND_US)
                message = f"the bound of {written} is not a multiple of the tick"
                self.report.add(one.offset, message, f"a multiple of {show_duration(self.tick_us / SECOND_US)}")
                return None, rest
        low_s, high_s = low.written_us / SECOND_US, high.written_us / SECOND_US
        kind = self.bare.kind
        return Bound(to=self.to, kind=kind, low_us=low.us, high_us=high.us, low_s=low_s, high_s=high_s), rest

    def _limits(self, condition: exp.Expression) -> tuple[_Limit | None, _Limit | None] | None:
        """The ends of the bound that a condition is; None: it is none."""
        condition = condition.unnest()
        at = offset_of(condition)
        if isinstance(condition, exp.Between):
            own, low, high = (self._time(condition.args[key]) for key in ("this", "low", "high"))
            if own is None or low is None or high is None or low[0] != high[0] or own[0] == low[0]:
                return None
            first, last = low[1] - own[1], high[1] - own[1]
            if own[0] != self.bare.alias:
                first, last = -last, -first
            return _Limit(first, first, at), _Limit(last, last, at)
        if not isinstance(condition, (exp.LT, exp.LTE, exp.GT, exp.GTE)):
            return None
        left, right = self._time(condition.this), self._time(condition.expression)
        if left is None or right is None or left[0] == right[0]:
            return None
        is_later, strict = isinstance(condition, (exp.GT, exp.GTE)), isinstance(condition, (exp.GT, exp.LT))
        us = right[1] - left[1]
        if left[0] != self.bare.alias:
            us, is_later = -us, not is_later
        limit = _Limit(us + (strict if is_later else -strict), us, at)
        return (limit, None) if is_later else (None, limit)

    def _time(self, node: exp.Expression) -> tuple[str, int] | None:
        """The alias whose event time an expression is, and what is added to it; None: it is something else."""
        node = node.unnest()
        if isinstance(node, (exp.Add, exp.Sub)) and isinstance(node.expression, exp.Interval):
            base, by_us = self._time(node.this), _interval_us(node.expression)
            if base is None or by_us is None:
                return None
            return base[0], base[1] + (by_us if isinstance(node, exp.Add) else -by_us)
        if not isinstance(node, exp.Column):
            return None
        found = self.scope.find(node)
        if not isinstance(found, ScopedColumn) or found.type != "timestamp":
            return None
        schema = self.scope.aliases[found.alias]
        named = found.name.lower() in ((schema.event_time or "event_time").lower(), "event_time")
        return (found.alias, 0) if named and not found.computed else None


_WINDOW = "stream [60 MINUTES]"


def _interval_us(interval: exp.Interval) -> int | None:
    if not isinstance(interval.args.get("unit"), exp.Var) or not isinstance(interval.this, exp.Literal):
        return None
    amount, unit = str(interval.this.this), time_unit(interval)
    return int(amount) * INTERVAL_US[unit] if amount.isdigit() and len(amount) < 10 and unit in INTERVAL_US else None


def check_bounded(query: Query, text: QueryText, select: exp.Select, report: Report) -> None:
    """What queries with a bound cannot have."""
    bounded = query.bounded
    if bounded is None:
        return
    if query.kind == "top_k":
        message = "a top-k query reads one stream"
        report.add(offset_of(select), message, "aggregates over the join, or one stream")
    if "EMIT" in text.offsets:
        report.add(text.offsets["EMIT"], "EMIT is not supported for joins with a bound", "no EMIT")
    promised = text.promised_for
    places = [promised.groups_at, promised.each_at, *(column.offset for column, _ in promised.floors)]
    for place in places:
        if place is not None:
            report.add(place, "a join with a bound promises for whole windows", "ERROR or ACCURACY alone")
    if bounded.bound is not None and bounded.bound.kind == "left" and bounded.lookups:
        message = f"'{bounded.alias}' looks up reference tables, and is the optional side"
        report.add(offset_of(select), message, "JOIN, or a stream that looks up nothing")
