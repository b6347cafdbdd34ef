"""Random queries over the whole language, by what the README says of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random

from tests.strangers.columns import Values

ON_MISS = ["", "", " ON MISS WARN", " ON MISS OMIT", " ON MISS CORRECT", " on miss correct"]


@dataclass(frozen=True)
class Table:
    """A stream as a query sees it: all its columns, with their types, and some of their values."""

    name: str
    columns: tuple[Values, ...]

    def of(self, *types: str) -> list[Values]:
        """The columns of these types."""
        return [c for c in self.columns if c.type in types]


@dataclass
class Wording:
    """Writes one query. ``ranges_s``: what a window may be long. ``at``: an instant amid the data."""

    chance: Random
    tables: Sequence[Table]
    tick_s: int
    ranges_s: Sequence[int]
    everies_s: Sequence[int]
    at: datetime
    span: timedelta
    promises: bool
    names: set[str] = field(default_factory=set)
    aliases: list[tuple[str, Table]] = field(default_factory=list)

    def query(self) -> str:
        """One query as text."""
        kinds = ["aggregate"] * 4 + ["join"] * 3 + ["top_k"] * 3
        kind = self.chance.choice(kinds)
        if kind == "join":
            text = self.join()
            if text is not None:
                return text
        if kind == "top_k":
            return self.top_k()
        return self.aggregate()

    # What a query is made of.

    def window(self, table: Table, alias: str = "") -> str:
        """A stream with its window."""
        word = self.chance.choice(["", "RANGE "])
        named = self.chance.choice([f" AS {alias}", f" {alias}"]) if alias else ""
        return f"{table.name} [{word}{self.duration(self.chance.choice(self.ranges_s))}]{named}"

    def duration(self, seconds: int) -> str:
        """A duration in some unit that divides it."""
        units = [
            (n, f) for n, f in (("SECONDS", 1), ("MINUTES", 60), ("HOURS", 3600), ("DAYS", 86_400)) if seconds % f == 0
        ]
        name, factor = self.chance.choice(units)
        count = seconds // factor
        return f"{count} {name if self.chance.random() < 0.7 else name.lower()}"

    def column(self, alias: str, column: Values) -> str:
        """A column as a query names it: qualified wherever there is an alias."""
        return f"{alias}.{column.name}" if alias else column.name

    def number(self, alias: str, table: Table, depth: int = 0) -> str | None:
        """An expression of a number over one tuple."""
        numbers, chance = table.of("integer", "double"), self.chance
        choices = ["column"] * 6 + ["sum", "product", "abs", "case", "coalesce", "divided", "greatest", "round", "if"]
        choices += ["length", "hour", "between_times", "epoch", "floor", "mod", "nullif", "negative"]
        choices += ["root", "power", "logarithm", "sign", "cast", "quarter"]
        kind = chance.choice(choices)
        if kind == "length" and table.of("string"):
            return f"LENGTH({self.column(alias, chance.choice(table.of('string')))})"
        times = table.of("timestamp")
        if kind == "hour" and times:
            part = chance.choice(["HOUR", "MINUTE", "DAY", "MONTH", "YEAR"])
            return f"{part}({self.column(alias, chance.choice(times))})"
        if kind == "between_times" and len(times) >= 2:
            first, second = chance.sample(times, 2)
            unit = chance.choice(["SECOND", "MINUTE"])
            return f"TIMESTAMPDIFF({unit}, {self.column(alias, first)}, {self.column(alias, second)})"
        if kind == "epoch" and times:
            return f"UNIX_SECONDS({self.column(alias, chance.choice(times))})"
        days = table.of("date")
        if kind == "quarter" and days:
            return f"{chance.choice(['QUARTER', 'YEAR', 'DAY'])}({self.column(alias, chance.choice(days))})"
        if kind == "cast" and table.of("string"):
            return f"CAST({self.column(alias, chance.choice(table.of('string')))} AS DOUBLE)"
        if not numbers:
            return None
        column = chance.choice(numbers)
        name = self.column(alias, column)
        if kind == "sum":
            return f"{name} {chance.choice(['+', '-'])} {chance.choice(['1', '0.5', '100'])}"
        if kind == "product":
            return f"{name} * {self.column(alias, chance.choice(numbers))}" if chance.random() < 0.5 else f"{name} * 2"
        if kind == "abs":
            return f"ABS({name})"
        if kind == "case":
            return f"CASE WHEN {self.predicate(alias, table)} THEN {name} ELSE 0 END"
        if kind == "if":
            return f"IF({self.predicate(alias, table)}, {name}, 1)"
        if kind == "coalesce":
            return f"COALESCE({name}, 0)"
        if kind == "root":
            return f"SQRT(ABS({name}))"
        if kind == "power" and abs_max(column) < 1e12:
            return f"POWER({name}, 2)"
        if kind == "logarithm":
            return f"LN(ABS({name}) + 1)"
        if kind == "sign":
            return f"SIGN({name})"
        if kind == "nullif":
            return f"NULLIF({name}, 0)"
        if kind == "divided":
            return f"{name} / {chance.choice(['4', '0.5', self.column(alias, chance.choice(numbers))])}"
        if kind == "greatest":
            return f"{chance.choice(['GREATEST', 'LEAST'])}({name}, {self.column(alias, chance.choice(numbers))})"
        if kind == "round" and column.type == "double" and abs_max(column) < 1e6:
            return f"ROUND({name}, 1)"
        if kind == "floor" and column.type == "double" and abs_max(column) < 1e6:
            return f"{chance.choice(['FLOOR', 'CEIL'])}({name})"
        if kind == "mod" and column.type == "integer":
            return f"{name} % 7"
        return f"-{name}" if kind == "negative" else name

    def decimal(self, alias: str, table: Table) -> str | None:
        """A column of decimals, now and then, by itself: sums of these are exact."""
        columns = [c for c in table.columns if c.type.startswith("decimal")]
        if not columns or self.chance.random() < 0.5:
            return None
        return self.column(alias, self.chance.choice(columns))

    def text(self, alias: str, table: Table) -> str | None:
        """An expression of text over one tuple. Letter case is left alone: engines differ on ß and its like."""
        chance, columns = self.chance, table.of("string")
        if not columns:
            return None
        name = self.column(alias, chance.choice(columns))
        return chance.choice(
            [
                f"SUBSTRING({name}, 1, 2)",
                f"CONCAT({name}, '-', {name})",
                f"{name} || '!'",
                f"REPLACE({name}, 'a', 'o')",
                f"COALESCE({name}, 'none')",
                f"CASE WHEN STARTSWITH({name}, 'A') THEN 'A' WHEN CONTAINS({name}, 'o') THEN 'o' END",
                f"NULLIF({name}, 'A')",
            ]
        )

    def predicate(self, alias: str, table: Table) -> str:
        """A condition on one tuple."""
        chance = self.chance
        column = chance.choice(list(table.columns))
        name = self.column(alias, column)
        kind = chance.choice(["compare", "compare", "compare", "null", "in", "range", "not", "or"])
        words = self.text(alias, table) if chance.random() < 0.1 else None
        if words:
            return f"{words} {chance.choice(['<>', '>', '<='])} {quoted(chance.choice(['A', 'o', 'none', '東']))}"
        if kind == "null":
            return f"{name} IS {chance.choice(['NULL', 'NOT NULL'])}"
        if kind == "not":
            return f"NOT ({name} {chance.choice(['=', '<'])} {self.literal(column)})"
        if kind == "or":
            return f"({name} = {self.literal(column)} OR {name} IS NULL)"
        if column.type == "boolean":
            return name if chance.random() < 0.5 else f"{name} = {chance.choice(['TRUE', 'false'])}"
        if kind == "in":
            return f"{name} IN ({', '.join(self.literal(column) for _ in range(chance.randint(1, 3)))})"
        if kind == "range":
            return f"{name} BETWEEN {self.literal(column)} AND {self.literal(column)}"
        if column.type == "string" and chance.random() < 0.3:
            return f"{name} LIKE {chance.choice(repr_sql(['%a%', 'A%', '_', '%']))}"
        return f"{name} {chance.choice(['=', '<>', '<', '<=', '>', '>=', '!='])} {self.literal(column)}"

    def literal(self, column: Values) -> str:
        """A value that the column may have."""
        chance = self.chance
        value = None
        while value is None:
            value = Values(column.name, column.type, False, 0.0, column.law).draw(chance, self.at)
        if column.type == "string":
            return quoted(value.replace("\r", ""))
        if column.type in ("timestamp", "date"):
            return f"'{value.isoformat(sep=' ')[:19]}'" if column.type == "timestamp" else f"'{value}'"
        if column.type.startswith("decimal"):
            return f"{value:f}"
        return repr(value).upper() if isinstance(value, bool) else repr(value)

    def aggregates(self, aliases: list[tuple[str, Table]]) -> list[str]:
        """Some aggregates, with names where they need one."""
        chance, found = self.chance, []
        for number in range(chance.randint(1, 4)):
            alias, table = chance.choice(aliases)
            value = self.decimal(alias, table) or self.number(alias, table) or "1"
            any_column = self.column(alias, chance.choice(list(table.columns)))
            kind = chance.choice(["count", "count_of", "sum", "sum", "avg", "min", "max", "ratio", "flag", "shifted"])
            name = f" AS {self.name(f'v{number}')}"
            if value == "1":
                kind = "count"
            if kind == "count":
                found.append("COUNT(*)" + name)
            elif kind == "count_of":
                found.append(f"COUNT({any_column})" + name)
            elif kind in ("sum", "avg"):
                found.append(f"{kind.upper()}({value})" + name)
            elif kind in ("min", "max"):
                words = self.text(alias, table) if chance.random() < 0.2 else None
                found.append(f"{kind.upper()}({words or (any_column if chance.random() < 0.5 else value)})" + name)
            elif kind == "ratio":
                found.append(f"SUM({value}) / COUNT(*)" + name)
            elif kind == "flag":
                found.append(f"CASE WHEN COUNT(*) > {chance.randint(0, 9)} THEN 'many' ELSE 'few' END" + name)
            else:
                found.append(f"COALESCE(SUM({value}), 0) + 1" + name)
        return found + self.further_aggregates(aliases)

    def further_aggregates(self, aliases: list[tuple[str, Table]]) -> list[str]:
        """Some of the others, by chances of its own: what is kept of earlier cases stays as it was."""
        kept, chance = self.chance, Random(f"{self.at} {sorted(self.names)} further")
        self.chance = chance
        found = []
        for number in range(chance.choice([0, 0, 1, 1, 2])):
            alias, table = chance.choice(aliases)
            of, by = (self.column(alias, chance.choice(list(table.columns))) for _ in range(2))
            which = self.predicate(alias, table)
            calls = [f"COUNT(DISTINCT {of})", f"COUNT(DISTINCT {of}) FILTER (WHERE {which})", f"COUNT_IF({which})"]
            calls += [f"COUNT(*) FILTER (WHERE {which})", f"BOOL_AND({which})", f"BOOL_OR({which})", f"ANY_VALUE({of})"]
            calls += [f"FIRST_VALUE({of})", f"LAST_VALUE({of})", f"LAST_VALUE({of}) IGNORE NULLS"]
            calls += [f"MAX_BY({of}, {by})", f"MIN_BY({of}, {by})", f"MAX_BY({of}, {by}) FILTER (WHERE {which})"]
            tame = [c for c in table.of("integer", "double") if abs_max(c) < 1e6]
            if tame:
                number_of = self.column(alias, chance.choice(tame))
                calls += [f"STDDEV({number_of})", f"VAR_POP({number_of})", f"SUM(DISTINCT {number_of})"]
                calls += [f"MEDIAN({number_of})", f"PERCENTILE({number_of}, 0.9)"]
            if f"w{number}" not in self.names:
                self.names.add(f"w{number}")
                found.append(f"{chance.choice(calls)} AS w{number}")
        self.chance = kept
        return found

    def name(self, fallback: str) -> str:
        """A name for an output that no other has."""
        name = self.chance.choice(ANSWER_NAMES)
        if name.lower() in self.names or self.chance.random() < 0.4:
            name = fallback
        self.names.add(name.lower())
        return name

    def clauses(self, top_k: bool) -> str:
        """The closing clauses, in any order."""
        chance, found = self.chance, []
        if self.promises and chance.random() < 0.6:
            share = chance.choice(["0.1", "2", "5", "20", "50", "90", "100"])
            # By chances of its own: what is kept of earlier cases stays as it was.
            on_miss = Random(f"{self.at} {share}").choice(ON_MISS)
            found.append(f"{'ACCURACY' if top_k else 'ERROR'} {share}%{on_miss}")
        if chance.random() < 0.85:
            found.append(f"EVERY {self.duration(chance.choice(self.everies_s))}")
        if chance.random() < 0.15:
            first = self.at + self.span * chance.uniform(-0.6, 0.3)
            last = first + self.span * chance.uniform(0.05, 1)
            found.append(f"DURATION ['{first:%Y-%m-%d %H:%M:%S}', '{last:%Y-%m-%dT%H:%M:%SZ}')")
        if chance.random() < 0.25:
            found.append(f"PRIORITY {chance.choice([0, 1, 10, 1000])}")
        chance.shuffle(found)
        return "\n".join(found)

    # The kinds of queries.

    def aggregate(self) -> str:
        """Aggregates over one window."""
        chance = self.chance
        table = chance.choice(list(self.tables))
        alias = chance.choice(["", "", "t", "windows", "s1"])
        groups = self.groups([(alias, table)])
        return self.assemble([(alias, table)], groups, self.window(table, alias), [])

    def groups(self, aliases: list[tuple[str, Table]]) -> list[str]:
        """Some columns to group by; few values each, mostly."""
        chance = self.chance
        if chance.random() < 0.35:
            return []
        candidates = [
            self.column(alias, column)
            for alias, table in aliases
            for column in table.columns
            if column.type in ("string", "boolean", "date")
            or ((column.type == "integer" or column.type.startswith("decimal")) and small(column))
            or chance.random() < 0.05
        ]
        chance.shuffle(candidates)
        bare: set[str] = set()
        chosen = []
        for name in candidates:
            if name.split(".")[-1].lower() not in bare | self.names:
                bare.add(name.split(".")[-1].lower())
                chosen.append(name)
        chosen = chosen[: chance.choice([1, 1, 2])]
        self.names |= {name.split(".")[-1].lower() for name in chosen}
        return [name for name in chosen if name.split(".")[-1].lower() not in RESERVED_ANSWERS]

    def assemble(self, aliases: list[tuple[str, Table]], groups: list[str], source: str, joined: list[str]) -> str:
        """SELECT … FROM … WHERE … GROUP BY … HAVING …"""
        chance = self.chance
        where = [*joined]
        for alias, table in aliases:
            if chance.random() < 0.3:
                where.append(self.predicate(alias, table))
        text = comment(chance) + f"SELECT {', '.join([*groups, *self.aggregates(aliases)])}\nFROM {source}"
        if where:
            text += "\nWHERE " + " AND ".join(where)
        if groups:
            text += "\nGROUP BY " + ", ".join(groups)
        if chance.random() < 0.2:
            text += f"\nHAVING COUNT(*) {chance.choice(['>', '>=', '<'])} {chance.randint(0, 8)}"
        return text + "\n" + self.clauses(top_k=False)

    def join(self) -> str | None:
        """Aggregates over two or three windows; None if no columns can be equated."""
        chance = self.chance
        count = chance.choice([2, 2, 2, 3])
        tables = [chance.choice(list(self.tables)) for _ in range(count)]
        aliases = list(
            zip(chance.choice([["a", "b", "c"], ["l", "r", "z"], ["tuples", "totals", "x1"]]), tables, strict=False)
        )
        (first, base), *others = aliases
        conditions = []
        for alias, table in others:
            pairs = [
                (a, b) for a in base.columns for b in table.columns if a.type == b.type and joinable(a) and joinable(b)
            ]
            if not pairs:
                return None
            a, b = chance.choice(pairs)
            sides = [self.column(first, a), self.column(alias, b)]
            chance.shuffle(sides)
            conditions.append(" = ".join(sides))
        windows = [self.window(table, alias) for alias, table in aliases]
        groups = self.groups(aliases)
        if chance.random() < 0.4:
            source = windows[0] + "".join(
                f" {chance.choice(['', 'INNER '])}JOIN {w} ON {c}" for w, c in zip(windows[1:], conditions, strict=True)
            )
            return self.assemble(aliases, groups, source, [])
        return self.assemble(aliases, groups, ", ".join(windows), conditions)

    def top_k(self) -> str:
        """The best of a window, or of each group."""
        chance = self.chance
        table = chance.choice(list(self.tables))
        shown = [c for c in table.columns if c.name.lower() not in RESERVED_ANSWERS]
        columns = chance.sample(shown, min(len(shown), chance.randint(1, 4)))
        # The id is selected, too, under whatever name it has.
        groups = (
            [c for c in columns if c.type in ("string", "boolean", "integer")][:1] if chance.random() < 0.35 else []
        )
        terms = []
        for _ in range(chance.choice([1, 1, 2])):
            order = self.number("", table) if chance.random() < 0.6 else None
            order = order or chance.choice(list(table.columns)).name
            terms.append(f"{order}{chance.choice(['', ' DESC', ' ASC', ' DESC'])}")
        items = [c.name for c in columns]
        # An answer's name goes before a column's in ORDER BY, where the terms mean the table's columns.
        self.names |= {c.name.lower() for c in table.columns}
        if chance.random() < 0.3:
            value = self.number("", table)
            if value:
                items.append(f"{value} AS {self.name('worth')}")
        k = chance.choice([1, 2, 3, 10, 50])
        text = comment(chance) + f"SELECT {', '.join(items)} FROM {self.window(table)}"
        if chance.random() < 0.3:
            text += f"\nWHERE {self.predicate('', table)}"
        if groups and chance.random() < 0.5:
            text += f"\nQUALIFY ROW_NUMBER() OVER (PARTITION BY {groups[0].name} ORDER BY {', '.join(terms)}) <= {k}"
        else:
            text += (f"\nGROUP BY {groups[0].name}" if groups else "") + f"\nORDER BY {', '.join(terms)}\nLIMIT {k}"
        return text + "\n" + self.clauses(top_k=True)


ANSWER_NAMES = (
    "orders", "revenue", "mean", "total", "Count", "best", "error_share", "answer", "a0", "g0", "range", "width",
    "value", "stream", "k", "window_index", "arrival_us",
)  # fmt: skip
RESERVED_ANSWERS = {
    "window_end", "emitted_at", "width_s", "range_s", "coverage", "support_level", "slack_s", "interval", "rank",
}  # fmt: skip


def comment(chance: Random) -> str:
    """A leading comment, sometimes."""
    return chance.choice(["", "", '-- What a stranger asks.\n--\n-- With `code`, ünïcode and "quotes" {{ braces }}.\n'])


def joinable(column: Values) -> bool:
    """Whether values of the column meet those of another."""
    return column.type in ("string", "integer", "date", "boolean") and not (
        column.type == "boolean" and column.nulls < 0.1
    )


def small(column: Values) -> bool:
    """Whether a column of integers or decimals has few values."""
    if column.type.startswith("decimal"):
        return bool(column.law[2] - column.law[1] <= 10)
    return isinstance(column.law[0], int) and len(column.law) == 2 and column.law[1] - column.law[0] <= 10


def abs_max(column: Values) -> float:
    """About the largest magnitude of a number column."""
    if column.type == "integer":
        return float(max(abs(column.law[0]), abs(column.law[1])))
    return float(column.law[1]) * 100


def quoted(text: str) -> str:
    """A string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def repr_sql(texts: list[str]) -> list[str]:
    """String literals."""
    return [quoted(text) for text in texts]
