"""Clauses of the language that came later: drawn for seeds from `FURTHER_FROM` on, by chances of their own.

Derived streams, reference tables, further aggregates, promises over groups, best groups, local days, sessions, joins
with a bound in time, and EMIT. Each query is written twice by hand: as a user does, and as a statement of DuckDB's over
the tuples that had arrived by an instant (`Reading`). Expressions are such as both have, so one text does for both, but
for the names of columns.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.strangers.case import Case, File, Reading
from tests.strangers.columns import Values
from tests.strangers.traffic import StreamSpec
from tests.strangers.wording import abs_max, small

FURTHER_FROM = 1_000_000
"""The first seed whose case has these clauses: what an earlier one draws stays as it was."""
TABLE = "kinds"
KINDS = ["windows", "best", "windows", "best", "days", "sessions", "sessions", "bounded", "bounded"]
ZONES = {900: ["Asia/Kolkata", "Australia/Lord_Howe", "Europe/Berlin"], 3600: ["Europe/Berlin", "America/New_York"]}
OF_BOUNDED = ["count", "count_of", "distinct", "sum", "avg", "median", "count_if", "stddev"]
ALL = [*OF_BOUNDED, "min", "max", "var_pop", "percentile", "bool_and", "bool_or"]


@dataclass(frozen=True)
class Column:
    """A column that a query names: as users write it, and as DuckDB has it. ``few``: it has few values."""

    name: str
    type: str
    few: bool
    tame: bool
    text: str
    duckdb: str


@dataclass(frozen=True)
class Source:
    """What a query reads: a stream, declared or derived, maybe with a reference table.

    ``relation``: its rows in DuckDB, with event_id, event_time and ``__seen``, from when on a tuple counts.
    """

    name: str
    event_time: str
    columns: tuple[Column, ...]
    relation: str
    alias: str = ""
    joined: str = ""

    def of(self, *types: str) -> list[Column]:
        """The columns of these types."""
        return [column for column in self.columns if column.type in types]

    def named(self, alias: str) -> Source:
        """The same, called by an alias."""
        columns = (replace(c, text=f"{alias}.{c.name}", duckdb=f'{alias}."{c.name}"') for c in self.columns)
        return replace(self, alias=alias, columns=tuple(columns))

    @property
    def time(self) -> str:
        """Its event time, as a user writes it."""
        return f"{self.alias}.{self.event_time}" if self.alias else self.event_time


@dataclass
class Further:
    """What is drawn for a case beside what an earlier one has."""

    chance: Random
    tick_s: int
    interval_s: int
    intervals: int
    horizon_s: int
    everies_s: Sequence[int]
    sources: list[Source]
    derived: dict[str, str] = field(default_factory=dict)
    table: Sequence[tuple[str, int | None, str | None]] = ()
    key: str = ""

    # Sources.

    def derive(self, name: str, base: Source) -> Source:
        """A derived stream over another one."""
        chance = self.chance
        kept = [c for c in base.columns if chance.random() < 0.7]
        items = [(c.name, c.type, c.few, c.tame, c.text, c.duckdb) for c in kept]
        words, wholes = base.of("string"), [c for c in base.of("integer") if c.tame]
        if words:
            word = chance.choice(words)
            parts = [f"COALESCE({of}, 'none')" for of in (word.text, word.duckdb)]
            items.append((f"{name}_k", "string", word.few, True, *parts))
        if wholes:
            whole = chance.choice(wholes)
            items.append((f"{name}_m", "integer", True, True, f"{whole.text} % 3", f"{whole.duckdb} % 3"))
        choices = ["CASE WHEN {} % 2 = 0 THEN 'even' ELSE 'odd' END".format]
        times = [f"{part}({base.time})" for part in ("MINUTE", "SECOND")]
        time = chance.choice(times)
        items.append((f"{name}_w", "string", True, True, choices[0](time), choices[0](in_duckdb(time, base))))
        text, hand = self.condition(base) if chance.random() < 0.7 else ("", "TRUE")
        shown = ", ".join([base.event_time, *(n if n == t else f"{t} AS {n}" for n, _, _, _, t, _ in items)])
        self.derived[name] = f"SELECT {shown} FROM {base.name}" + (f"\nWHERE {text}" if text else "")
        selected = ", ".join(f'{d} AS "{n}"' for n, _, _, _, _, d in items)
        relation = f'(SELECT event_id, event_time, "__seen", {selected} FROM {base.relation} AS e WHERE {hand})'
        columns = tuple(Column(n, kind, few, tame, n, f'e."{n}"') for n, kind, few, tame, _, _ in items)
        return Source(name, base.event_time, columns, relation)

    def looked_up(self, source: Source) -> Source:
        """The source with the reference table, if it has the column that the table's key is of."""
        keys = [column for column in source.columns if column.name == self.key]
        if not keys or not self.table:
            return source
        named, side = source.named("t"), self.chance.choice(["", "LEFT "])
        rows = ", ".join(f"({literal(k)}, {literal(w)}, {literal(m)})" for k, w, m in self.table)
        table = f'(VALUES {rows}) AS g("__k", "__w", "__m")'
        shown = f'SELECT e.*, CAST(g."__w" AS BIGINT) AS "__w", g."__m" FROM {source.relation} AS e'
        relation = f'({shown} {side}JOIN {table} ON g."__k" = e."{self.key}")'
        kept = tuple(replace(column, duckdb=f'e."{column.name}"') for column in named.columns)
        looked = (
            Column("w", "integer", True, True, "g.w", 'e."__w"'),
            Column("m", "string", True, True, "g.m", 'e."__m"'),
        )
        joined = f"\n{side}JOIN {TABLE} AS g ON t.{self.key} = g.k"
        return replace(named, columns=(*kept, *looked), relation=relation, joined=joined)

    # Parts of queries.

    def condition(self, source: Source) -> tuple[str, str]:
        """A condition on one tuple, as both write it."""
        chance = self.chance
        shapes = {
            "string": ["{} IS NOT NULL", "LENGTH({}) > 1", "{} <> 'A'"],
            "integer": ["{} > 0", "{} IS NOT NULL", "{} <= 2"],
            "double": ["{} > 0", "{} IS NOT NULL"],
            "boolean": ["{}", "NOT {}"],
            "date": ["{} IS NOT NULL"],
        }
        columns = source.of(*shapes)
        if not columns:
            alias = "e" if source.joined or not source.alias else source.alias
            return f"{source.time} IS NOT NULL", f"{alias}.event_time IS NOT NULL"
        column = chance.choice(columns)
        shape = chance.choice(shapes[column.type])
        return shape.format(column.text), shape.format(column.duckdb)

    def conditions(self, source: Source, share: float = 0.4) -> tuple[list[str], list[str]]:
        """Mostly none, else one, as a user and as DuckDB has it."""
        if self.chance.random() >= share:
            return [], []
        text, hand = self.condition(source)
        return [text], [hand]

    def groups(self, source: Source, least: int) -> list[Column]:
        """Columns of few values to group by."""
        few = [c for c in source.columns if c.few and c.type in ("string", "boolean", "integer", "date")]
        return self.chance.sample(few, min(len(few), max(least, self.chance.choice([0, 1, 1, 2]))))

    def calls(self, sources: Sequence[Source], names: Sequence[str], count: int) -> list[Call]:
        """Aggregates, as both write them."""
        return [self.call(self.chance.choice(list(sources)), self.chance.choice(list(names))) for _ in range(count)]

    def call(self, source: Source, name: str) -> Call:
        """One aggregate, or COUNT(*) where the source has no column for it."""
        chance = self.chance
        text, hand = self.condition(source)
        numbers = [c for c in source.of("integer", "double") if c.tame]
        any_of = source.of("string", "integer", "boolean", "date")
        if name == "count_if":
            return Call(f"COUNT_IF({text})", f"CASE WHEN {hand} THEN 1 END", "count({})", True)
        if name in ("bool_and", "bool_or"):
            return Call(f"{name.upper()}({text})", hand, f"{name}({{}})")
        if name in ("count_of", "distinct", "min", "max") and any_of:
            column = chance.choice(
                any_of if name not in ("min", "max") else [*source.of("string", "date"), *numbers] or any_of
            )
            shapes = {"count_of": "COUNT({})", "distinct": "COUNT(DISTINCT {})", "min": "MIN({})", "max": "MAX({})"}
            if column.type != "boolean" or name in ("count_of", "distinct"):
                call = Call(shapes[name].format(column.text), column.duckdb, shapes[name], name == "count_of")
                return self.filtered(call, text, hand)
        if numbers and name in ("sum", "avg", "median", "stddev", "var_pop", "percentile"):
            column = chance.choice(numbers)
            total = "sum({})" if column.type == "integer" else "fsum({})"
            as_double = "CAST({} AS DOUBLE)"
            shapes_of = {
                "sum": ("SUM({})", total),
                "avg": ("AVG({})", "avg({})" if column.type == "integer" else "favg({})"),
                "median": ("MEDIAN({})", f"quantile_cont({as_double}, 0.5)"),
                "percentile": ("PERCENTILE({}, 0.9)", f"quantile_cont({as_double}, 0.9)"),
                "stddev": ("STDDEV({})", f"stddev_samp({as_double})"),
                "var_pop": ("VAR_POP({})", f"var_pop({as_double})"),
            }
            shape, duckdb = shapes_of[name]
            call = Call(shape.format(column.text), column.duckdb, duckdb, name == "sum", column.type == "integer")
            return self.filtered(call, text, hand)
        return self.filtered(Call("COUNT(*)", "1", "count({})", True), text, hand)

    def filtered(self, call: Call, text: str, hand: str) -> Call:
        """The call, now and then of some tuples alone."""
        if self.chance.random() >= 0.25:
            return call
        return replace(
            call, text=f"{call.text} FILTER (WHERE {text})", argument=f"CASE WHEN {hand} THEN {call.argument} END"
        )

    def ranged(self, source: Source, range_s: int) -> str:
        """A source with its window."""
        named = f" AS {source.alias}" if source.alias else ""
        return f"{source.name} [{duration(range_s)}]{named}{source.joined}"

    # Queries.

    def query(self, kind: str) -> tuple[str, Reading]:
        """One of a kind."""
        if kind == "bounded":
            return self.bounded()
        source = self.chance.choice(self.sources)
        source = self.looked_up(source) if self.chance.random() < 0.6 else source
        if kind == "sessions":
            return self.sessions(source)
        days = [zone for tick, zones in ZONES.items() if tick % self.tick_s == 0 for zone in zones]
        # Midnights are rare: only where a run lasts for hours.
        if kind == "days" and days and self.interval_s * self.intervals >= 14_400:
            return self.windows(source, self.chance.choice(days))
        return self.best(source) if kind == "best" and self.groups(source, 1) else self.windows(source, "")

    def windows(self, source: Source, zone: str) -> tuple[str, Reading]:
        """Aggregates over windows, or over local days."""
        chance = self.chance
        groups = self.groups(source, 0)
        calls = self.calls([source], ALL, chance.randint(1, 4))
        where, hand = self.conditions(source)
        if zone:
            days = chance.choice(["", "", " [2 DAYS]"]) if not source.alias else " [1 DAY]"
            named = f" AS {source.alias}" if source.alias else ""
            window = f"{source.name}{days}{named}{source.joined}"
            every = f"EVERY 1 DAY AT TIME ZONE '{zone}'"
        else:
            window = self.ranged(source, self.tick_s * chance.choice([1, 2, 5]))
            every = f"EVERY {duration(chance.choice(list(self.everies_s)))}"
        promise, terms = self.promise(groups, calls)
        emit, emitted = self.emit()
        having, having_hand = self.having()
        text = selected(groups, calls, window, where, having, [promise, every, emit])
        sql = self.totals(groups, calls, self.inside(source, groups, calls, hand), having_hand)
        return text, Reading("windows", sql, **named_columns(groups, calls), **terms, **emitted)

    def promise(self, groups: Sequence[Column], calls: Sequence[Call]) -> tuple[str, dict[str, Any]]:
        """ERROR, with what tells groups apart."""
        chance = self.chance
        if chance.random() < 0.25:
            return "", {}
        percent = chance.choice([2, 5, 20, 50])
        text, terms = f"ERROR {percent}%", dict[str, Any](error=percent / 100)
        floored = [number for number, call in enumerate(calls) if call.has_floor]
        if floored and chance.random() < 0.4:
            number, floor = chance.choice(floored), chance.choice([1, 5, 50])
            text += f" OR {floor} IN v{number}"
            terms["floors"] = {f"v{number}": floor}
        if groups and chance.random() < 0.6:
            share = chance.choice(["99", "80", "50", "12.5"])
            text += f" FOR {share}% OF GROUPS"
            terms["of_groups"] = share
        return text, terms

    def emit(self) -> tuple[str, dict[str, Any]]:
        """EMIT, in half of the queries."""
        chance = self.chance
        early, every_s = chance.random() < 0.35, 0
        if chance.random() < 0.35:
            every_s = self.tick_s * max(1, self.horizon_s // self.tick_s // chance.choice([2, 3, 8]))
        parts = ["EARLY"] * early + [f"EVERY {duration(every_s)} UNTIL FINAL"] * bool(every_s)
        return (f"EMIT {', '.join(parts)}" if parts else ""), {"emit_early": early, "emit_every_s": every_s}

    def having(self) -> tuple[str, str]:
        """HAVING, now and then."""
        if self.chance.random() >= 0.2:
            return "", ""
        more = f"> {self.chance.randint(0, 4)}"
        return f"HAVING COUNT(*) {more}", f"HAVING count(p.one) {more}"

    def best(self, source: Source) -> tuple[str, Reading]:
        """Best groups, of all or within others. Ranked by whole numbers, which have no last digits."""
        chance = self.chance
        groups = self.groups(source, chance.choice([1, 2]))
        wholes = [call for call in self.calls([source], ["count_of", "distinct", "sum", "count"], 4) if call.is_whole]
        ranked = chance.choice([Call("COUNT(*)", "1", "count({})", True), *wholes])
        others = self.calls([source], ALL, chance.choice([0, 1, 2]))
        calls, limit, where = [*others, ranked], chance.choice([1, 2, 3, 10]), self.conditions(source)
        descending = chance.random() < 0.8
        order = f"{ranked.text}{' DESC' if descending else ''}"
        best = f"v{len(others)}"
        within = ("g0",) if len(groups) == 2 and chance.random() < 0.6 else ()
        window = self.ranged(source, self.tick_s * chance.choice([1, 2, 5]))
        promise = f"ACCURACY {chance.choice([50, 90, 100])}%" if chance.random() < 0.7 else ""
        terms: dict[str, Any] = {"accuracy": int(promise.split()[1][:-1]) / 100 if promise else None}
        if within and promise and chance.random() < 0.5:
            promise += " FOR EACH g0"
            terms["for_each"] = True
        emit, emitted = self.emit()
        if within:
            rank = f"ROW_NUMBER() OVER (PARTITION BY {groups[0].text} ORDER BY {order})"
            tail = f"QUALIFY {rank} <= {limit}"
        else:
            tail = f"ORDER BY {order} LIMIT {limit}"
        every = f"EVERY {duration(chance.choice(list(self.everies_s)))}"
        text = selected(groups, calls, window, where[0], tail, [promise, every, emit])
        sql = self.totals(groups, calls, self.inside(source, groups, calls, where[1]), "")
        terms |= {"limit": limit, "descending": descending, "ranked_by": best, "within": within}
        return text, Reading("windows", sql, **named_columns(groups, calls), **terms, **emitted)

    def inside(self, source: Source, groups: Sequence[Column], calls: Sequence[Call], where: Sequence[str]) -> str:
        """The tuples of each window that is asked for, with what groups and aggregates are made of."""
        return f"""SELECT moments.number AS t, {measured(groups, calls)}
          FROM moments JOIN {source.relation} AS {"e" if source.joined else source.alias or "e"}
            ON event_time >= moments.begin AND event_time < moments.window_end AND "__seen" <= moments.seen
          WHERE {" AND ".join(where) or "TRUE"}"""

    def totals(self, groups: Sequence[Column], calls: Sequence[Call], inside: str, having: str) -> str:
        """The answer of each window: one without groups has a row in any case."""
        shown = [*(f"p.g{number}" for number in range(len(groups))), *totals_of(calls)]
        return f"""SELECT moments.number, {", ".join(shown)}
        FROM moments {"" if groups else "LEFT "}JOIN ({inside}) AS p ON p.t = moments.number GROUP BY ALL {having}"""

    def sessions(self, source: Source) -> tuple[str, Reading]:
        """Sessions of some groups: gaps and islands of what had arrived by each session's own instant."""
        chance = self.chance
        groups, calls = self.groups(source, 0), self.calls([source], ALL, chance.randint(1, 3))
        where, hand = self.conditions(source)
        gap_s = max(1, self.tick_s * chance.choice([1, 2, 4]) // 4)
        range_s = self.tick_s * chance.choice([2, 4, 4])
        promise, terms = ("ERROR 5%", {"error": 0.05}) if chance.random() < 0.7 else ("", {})
        having, having_hand = self.having()
        window = f"session_window({source.event_time}, '{gap_s} seconds')"
        text = selected(groups, calls, self.ranged(source, range_s), where, having, [promise], window)
        names = [f"g{number}" for number in range(len(groups))]
        of_key = "".join(f" AND c.{name} IS NOT DISTINCT FROM t.{name}" for name in names)
        named = "".join(f"{name}, " for name in names)
        alias = "e" if source.joined else source.alias or "e"
        gap, longest = f"INTERVAL {gap_s} SECONDS", f"INTERVAL {range_s} SECONDS"
        # The last multiple of RANGE up to an event: a session that began so long before is cut there.
        multiple = f"to_timestamp(floor(epoch_us(event_time) / {range_s}e6) * {range_s})"
        sql = f"""WITH t AS (
          SELECT event_id, event_time, "__seen", {measured(groups, calls)}
          FROM {source.relation} AS {alias} WHERE {" AND ".join(hand) or "TRUE"}
        ), c AS (
          SELECT row_number() OVER () AS s, {named}moments.number, moments.seen, moments.begin AS last
          FROM (SELECT DISTINCT {named}event_time FROM t) AS k JOIN moments ON moments.begin = k.event_time
        ), arrived AS (
          SELECT t.*, c.s, c.number, c.last,
                 lag(t.event_time) OVER (PARTITION BY c.s ORDER BY t.event_time, t.event_id) AS before
          FROM c JOIN t ON t."__seen" <= c.seen{of_key}
        ), islands AS (
          SELECT *, count(*) FILTER (WHERE before IS NULL OR event_time - before > {gap})
                    OVER (PARTITION BY s ORDER BY event_time, event_id) AS island FROM arrived
        ), begun AS (
          SELECT *, min(event_time) OVER (PARTITION BY s, island) AS began FROM islands
        ), parts AS (
          SELECT *, count(*) FILTER (WHERE before < {multiple} AND began <= {multiple} - {longest})
                    OVER (PARTITION BY s, island ORDER BY event_time, event_id) AS part FROM begun
        ), bounds AS (
          SELECT *, min(event_time) OVER (PARTITION BY s, island, part) AS window_start,
                    max(event_time) OVER (PARTITION BY s, island, part) AS newest FROM parts
        ), p AS (SELECT * FROM bounds WHERE newest = last)
        SELECT p.number, {named}p.window_start, {", ".join(totals_of(calls))}
        FROM p GROUP BY p.s, p.number, {named}p.window_start {having_hand}"""
        ends = f"SELECT DISTINCT event_time FROM {source.relation} AS e"
        return text, Reading("sessions", sql, **named_columns(groups, calls), **terms, ends=ends, gap_s=gap_s)

    def bounded(self) -> tuple[str, Reading]:
        """A join with a bound in time, of each kind."""
        chance = self.chance
        kind = chance.choice(["inner", "left", "semi", "anti", "exists", "not exists"])
        left, right = (chance.choice(self.sources).named(alias) for alias in ("o", "r"))
        pairs = [(a, b) for a in left.columns for b in right.columns if a.type == b.type and a.type != "double"]
        many = [(a, b) for a, b in pairs if a.name == b.name] or pairs
        if not many:
            return self.windows(left, "")
        key = chance.choice(many)
        low, high = (self.tick_s * ticks for ticks in chance.choice([(0, 1), (0, 2), (-1, 1), (-2, 0), (1, 2)]))
        bound = f"{right.time} BETWEEN {moved(left.time, low)} AND {moved(left.time, high)}"
        bound_hand = f"r.event_time BETWEEN {moved('o.event_time', low)} AND {moved('o.event_time', high)}"
        more, more_hand = self.conditions(right)
        on = " AND ".join([f"{key[0].text} = {key[1].text}", bound, *more])
        on_hand = " AND ".join(
            [f"{key[0].duckdb} = {key[1].duckdb}", bound_hand, 'r."__seen" <= moments.seen', *more_hand]
        )
        sides = [left, right] if kind in ("inner", "left") else [left]
        groups = self.groups(left, 0)
        calls = self.calls(sides, ALL if kind in ("inner", "semi", "exists") else OF_BOUNDED, chance.randint(1, 3))
        where, hand = self.conditions(left)
        window = self.ranged(left, self.tick_s * chance.choice([1, 2, 5]))
        joins = {"inner": "JOIN", "left": "LEFT JOIN", "semi": "LEFT SEMI JOIN", "anti": "LEFT ANTI JOIN"}
        if kind in joins:
            window += f"\n{joins[kind]} {right.name} AS r ON {on}"
        else:
            where = [*where, f"{kind.upper()} (SELECT 1 FROM {right.name} AS r WHERE {on})"]
        promise, terms = ("ERROR 5%", {"error": 0.05}) if chance.random() < 0.7 else ("", {})
        having, having_hand = self.having()
        every_s = chance.choice(list(self.everies_s))
        text = selected(groups, calls, window, where, having, [promise, f"EVERY {duration(every_s)}"])
        joined, matches = f"{right.relation} AS r ON {on_hand}", list(hand)
        if kind not in ("inner", "left"):
            word = "NOT " if kind in ("anti", "not exists") else ""
            matches.append(f"{word}EXISTS (SELECT 1 FROM {right.relation} AS r WHERE {on_hand})")
        inside = f"""SELECT moments.number AS t, {measured(groups, calls)}
          FROM moments JOIN {left.relation} AS o ON o.event_time >= moments.begin AND o.event_time < moments.window_end
            AND o."__seen" <= moments.seen {f"{kind.upper()} JOIN {joined}" if kind in ("inner", "left") else ""}
          WHERE {" AND ".join(matches) or "TRUE"}"""
        sql = self.totals(groups, calls, inside, having_hand)
        return text, Reading("bounded", sql, **named_columns(groups, calls), **terms, lag_s=max(high, 0))


@dataclass(frozen=True)
class Call:
    """An aggregate: as a user writes it; what DuckDB's is of, for each tuple; and DuckDB's of all of these.

    ``has_floor``: it is 0 of nothing, so ERROR may say OR … IN; ``is_whole``: its values are whole numbers.
    """

    text: str
    argument: str
    duckdb: str
    has_floor: bool = False
    whole: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether its values are whole numbers."""
        return self.whole or self.duckdb.lower().startswith("count")


def further(case: Case, seed: int, specs: Sequence[StreamSpec], tick_s: int, interval_s: int, horizon_s: int) -> Case:
    """The case with queries of these kinds, beside one of its own."""
    chance = Random(f"{seed}/further")
    ticks = interval_s // tick_s
    least = max(1, (case.intervals * ticks) // 60)
    sources = [declared(spec) for spec in specs]
    drawn = Further(
        chance, tick_s, interval_s, case.intervals, horizon_s, [tick_s * least, tick_s * least * 2], list(sources)
    )
    for number in range(chance.choice([0, 1, 1, 2])):
        drawn.sources.append(drawn.derive(f"derived_{number}", chance.choice(drawn.sources)))
    declaration = dict(case.declaration)
    if chance.random() < 0.7:
        declaration["memory_budget"] = "64 MiB"
    files = list(case.files)
    keys = [(spec, column) for spec in specs for column in spec.columns if column.type == "string"]
    if keys and chance.random() < 0.7:
        spec, column = chance.choice(keys)
        drawn.key, drawn.table = column.name, rows_of(chance, column)
        path = f"tables/{TABLE}.parquet"
        columns = {"k": "string", "w": "integer", "m": "string"}
        declaration["tables"] = {TABLE: {"path": path, "format": "parquet", "columns": columns, "key": "k"}}
        files.append(File(spec.name, path, (), content=parquet_of(drawn.table)))
    queries = dict(chance.sample(sorted(case.queries.items()), 1)) if chance.random() < 0.5 else {}
    readings = {}
    for number, kind in enumerate(chance.sample(KINDS, chance.choice([2, 3, 4]))):
        queries[f"further_{number}"], readings[f"further_{number}"] = drawn.query(kind)
    return replace(
        case,
        declaration=declaration,
        queries=queries,
        files=tuple(files),
        derived=drawn.derived,
        readings=readings,
    )


def liven(seed: int, spec: StreamSpec) -> None:
    """Let most streams have tuples throughout, many of them late: else most answers would be of nothing."""
    chance = Random(f"{seed}/liven/{spec.name}")
    if chance.random() < 0.8:
        spec.rate = chance.choice(["steady", "steady", "bursts", "batches", "drift"])
        spec.rows = max(spec.rows, 300)
        if spec.lateness in ("none", "days", "early") and not spec.shape.grows:
            spec.lateness = chance.choice(["exponential", "bimodal", spec.lateness])
        spec.max_late_s = max(spec.max_late_s, chance.choice([spec.max_late_s, 86_400]))


def declared(spec: StreamSpec) -> Source:
    """A declared stream, without its roles but the event time."""
    columns = []
    for c in spec.columns:
        if c.type not in ("string", "integer", "double", "boolean", "date"):
            continue
        number = c.type in ("integer", "double")
        few = c.type in ("boolean", "date", "string") or (c.type == "integer" and small(c))
        tame = not number or abs_max(c) < 1e6
        columns.append(Column(c.name, c.type, few, tame, c.name, f'e."{c.name}"'))
    return Source(spec.name, spec.event_time, tuple(columns), f'"tuples_{spec.name}"')


def rows_of(chance: Random, column: Values) -> list[tuple[str, int | None, str | None]]:
    """A reference table's rows: of some of a column's values, and of one that it has not."""
    known = [*dict.fromkeys(column.law[0]), "not there"]
    keys = chance.sample(known, max(1, len(known) * 2 // 3))
    return [(key, chance.choice([0, 1, 7, None]), chance.choice(["one", "two", None])) for key in keys]


def parquet_of(rows: Sequence[tuple[str, int | None, str | None]]) -> bytes:
    """A reference table's file."""
    sink = io.BytesIO()
    types = (pa.string(), pa.int64(), pa.string())
    arrays = [pa.array([row[place] for row in rows], kind) for place, kind in enumerate(types)]
    pq.write_table(pa.table(arrays, names=["k", "w", "m"]), sink)
    return sink.getvalue()


def selected(
    groups: Sequence[Column],
    calls: Sequence[Call],
    source: str,
    where: Sequence[str],
    tail: str,
    closing: Sequence[str],
    window: str = "",
) -> str:
    """A query as a user writes it. ``tail``: behind GROUP BY; ``window``: a further group."""
    items = [f"{group.text} AS g{number}" for number, group in enumerate(groups)]
    items += [f"{call.text} AS v{number}" for number, call in enumerate(calls)]
    by = [group.text for group in groups] + ([window] if window else [])
    lines = [f"SELECT {', '.join(items)}", f"FROM {source}", f"WHERE {' AND '.join(where)}" if where else ""]
    lines += [f"GROUP BY {', '.join(by)}" if by else "", tail, *closing]
    return "\n".join(line for line in lines if line)


def measured(groups: Sequence[Column], calls: Sequence[Call]) -> str:
    """What groups and aggregates are made of, of one tuple, as columns of DuckDB's."""
    items = [f"{group.duckdb} AS g{number}" for number, group in enumerate(groups)]
    return ", ".join(["1 AS one", *items, *(f"{call.argument} AS x{number}" for number, call in enumerate(calls))])


def totals_of(calls: Sequence[Call]) -> list[str]:
    """The aggregates, as columns of DuckDB's."""
    return [f"{call.duckdb.format(f'p.x{number}')} AS v{number}" for number, call in enumerate(calls)]


def named_columns(groups: Sequence[Column], calls: Sequence[Call]) -> dict[str, Any]:
    """The columns of an answer."""
    return {
        "keys": tuple(f"g{number}" for number in range(len(groups))),
        "values": tuple(f"v{number}" for number in range(len(calls))),
    }


def in_duckdb(time: str, base: Source) -> str:
    """An expression of the event time, as DuckDB has it."""
    return time.replace(base.time, "event_time")


def moved(time: str, seconds: int) -> str:
    """A time, so much later."""
    return f"{time} {'+' if seconds > 0 else '-'} INTERVAL {abs(seconds)} SECONDS" if seconds else time


def duration(seconds: int) -> str:
    """A length of time."""
    return f"{seconds} SECONDS"


def literal(value: str | int | None) -> str:
    """A literal of DuckDB's."""
    if value is None:
        return "NULL"
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"
