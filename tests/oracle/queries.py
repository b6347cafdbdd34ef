"""Random queries: every kind, clause and aggregate of the language, and promises that tell groups apart."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

# Aggregate → calls of it; {c} is an alias and a point, or nothing. Beside those of a registry, so that none is missed.
CALLS = {
    "count": ["COUNT(*)", "COUNT({c}n)", "COUNT({c}k)"],
    "count_if": ["COUNT_IF({c}b)", "COUNT_IF({c}n > 0 AND {c}b)"],
    "sum": ["SUM({c}n)", "SUM({c}v)", "SUM({c}d)", "SUM({c}n + 1)", "SUM({c}v * 2)"],
    "avg": ["AVG({c}n)", "AVG({c}v)", "AVG({c}d)"],
    "min": ["MIN({c}k)", "MIN({c}n)", "MIN({c}v)", "MIN({c}d)", "MIN({c}b)", "MIN({c}t)"],
    "max": ["MAX({c}k)", "MAX({c}n)", "MAX({c}v)", "MAX({c}d)", "MAX({c}b)", "MAX({c}t)"],
    "bool_and": ["BOOL_AND({c}b)", "BOOL_AND({c}v > 0)"],
    "bool_or": ["BOOL_OR({c}b)", "BOOL_OR({c}n = 1)"],
    "any_value": ["ANY_VALUE({c}k)", "ANY_VALUE({c}d)"],
    "stddev_samp": ["STDDEV({c}v)", "STDDEV_SAMP({c}v)"],
    "stddev_pop": ["STDDEV_POP({c}v)"],
    "var_samp": ["VARIANCE({c}v)", "VAR_SAMP({c}d)"],
    "var_pop": ["VAR_POP({c}v)"],
    "count_distinct": ["COUNT(DISTINCT {c}k)", "COUNT(DISTINCT {c}n)", "COUNT(DISTINCT {c}d)"],
    "sum_distinct": ["SUM(DISTINCT {c}n)", "SUM(DISTINCT {c}d)"],
    "percentile": ["PERCENTILE({c}v, 0.25)", "PERCENTILE({c}d, 1)", "PERCENTILE({c}v, 0)"],
    "percentile_cont": ["PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY {c}v DESC)"],
    "median": ["MEDIAN({c}v)", "MEDIAN({c}d)"],
    "max_by": ["MAX_BY({c}k, {c}v)", "MAX_BY({c}n, {c}k)", "MAX_BY({c}b, {c}d)"],
    "min_by": ["MIN_BY({c}d, {c}n)", "MIN_BY({c}t, {c}t)", "MIN_BY({c}v, {c}b)"],
    "first_value": ["FIRST_VALUE({c}k)", "FIRST({c}v)", "FIRST_VALUE({c}n) IGNORE NULLS"],
    "last_value": ["LAST_VALUE({c}d)", "LAST({c}b)", "LAST_VALUE({c}k) IGNORE NULLS"],
}
# Their values may be compared with numbers, and groups ranked by them.
_NUMBERS = ["count", "count_if", "sum", "avg", "min_number", "max_number", "count_distinct", "median"]
_PLAIN_NUMBERS = {"min_number": ["MIN({c}v)", "MIN({c}n)"], "max_number": ["MAX({c}v)", "MAX({c}d)"]}
_CONDITIONS = [
    "{c}n > 0",
    "{c}n BETWEEN -2 AND 100",
    "{c}v < 1.5",
    "{c}v IS NOT NULL",
    "{c}k = 'a'",
    "{c}k <> 'b'",
    "{c}k IN ('a', 'é', '日本')",
    "{c}k LIKE 'a%'",
    "{c}b",
    "NOT {c}b",
    "({c}b OR {c}n = 1)",
    "{c}d >= 0.5",
    "UPPER({c}k) = 'B'",
    "LENGTH({c}k) > 1",
    "COALESCE({c}v, 0) <= 0",
    "CASE WHEN {c}n > 0 THEN {c}v > 0 ELSE {c}b END",
    "ABS({c}v) < 50",
    "{c}t < {c}event_time",
    "{c}n IS NULL",
    "{c}n % 3 = 1",
]
_GROUPS = [
    "{c}k",
    "{c}b",
    "{c}n",
    "{c}n % 2",
    "{c}v > 0",
    "COALESCE({c}k, 'none')",
    "{c}d",
    "UPPER({c}k)",
    "CASE WHEN {c}n > 0 THEN 'up' WHEN {c}n < 0 THEN 'down' END",
    "LENGTH({c}k)",
    "CONCAT({c}k, '-', {c}k)",
    "HOUR({c}t)",
]
_OF_PAIRS = [
    "l.v > r.v",
    "l.n <> r.n",
    "r.event_time BETWEEN l.event_time AND l.event_time + INTERVAL 3 MINUTES",
    "(l.k < r.k OR l.b)",
    "l.v + r.v > 0",
    "COALESCE(l.d, 0) <= r.d",
    "NOT (l.b AND r.b)",
]
_OF_GOODS = ["g.w > 0", "g.m = 'two'", "g.w IS NULL", "COALESCE(g.w, l.n) > 0", "g.m <> l.k"]
_BY_GOODS = ["g.w", "g.m", "COALESCE(g.m, 'none')", "g.w + l.n % 2"]
_CALLS_OF_GOODS = ["SUM(g.w)", "COUNT(g.m)", "MAX(g.m)", "AVG(g.w + l.v)", "COUNT(DISTINCT g.m) FILTER (WHERE l.b)"]
_ZONES = ["Europe/Berlin", "America/New_York", "Asia/Kolkata", "Asia/Beirut", "Australia/Lord_Howe", "UTC"]
_VALUES = ["{c}v", "{c}n", "{c}d", "{c}k", "{c}t", "{c}b", "{c}v + 1", "{c}n * 2", "ABS({c}v)", "UPPER({c}k)", "-{c}v"]
# Aggregates that are 0 of nothing.
_FLOORED = re.compile(r"(SELECT )?(COUNT|COUNT_IF|SUM)\((?!DISTINCT)")
# Of what a late match takes back, they cannot be.
CANNOT_BE_TAKEN_BACK = {
    "min", "max", "min_by", "max_by", "first_value", "last_value", "any_value", "bool_and", "bool_or",
}  # fmt: skip
_WINDOWS = ["[10 MINUTES]", "[RANGE 10 MINUTES]"]
_EVERY = "EVERY 5 MINUTES"


def draw_query(chance: random.Random) -> str:
    """One of an aggregate, one with a reference table, a join, best groups, or a top-k; some of derived streams."""
    kind = chance.choice(["aggregate", "aggregate", "goods", "join", "join", "best", "top_k"])
    draw = {"aggregate": _aggregate, "goods": _with_goods, "join": _join, "best": _best, "top_k": _top_k}
    text = draw[kind](chance)
    stream = chance.choice(["x", "x", "z", "zz", "u", "uu"])
    text = text if kind == "goods" else re.sub(r"\bx (?=\[)", f"{stream} ", text)
    return _promising(chance, text, kind)


def draw_calendar_query(chance: random.Random) -> str:
    """Groups of local days."""
    stream = f"x{chance.choice(['', '', ' [1 DAY]', ' [2 DAYS]', ' [30 HOURS]'])}"
    text = _select(chance, [""], stream, _conditions(chance, ""))
    return text.replace(_EVERY, f"EVERY 1 DAY AT TIME ZONE '{chance.choice(_ZONES)}'")


def draw_session_query(chance: random.Random) -> str:
    """Sessions of a stream, of a derived one or with a reference table, as Spark or as Flink writes them."""
    gap_s, length = chance.choice([30, 60, 120, 300]), chance.choice(["", "", " [5 MINUTES]", " [10 MINUTES]"])
    stream = chance.choice(["x", "x", "z", "zz"])
    if chance.random() < 0.2:
        return _of_flink(chance, stream, gap_s, length)
    if chance.random() < 0.2:
        text = _with_goods(chance)
    else:
        text = _select(chance, [""], f"{stream}{length}", _conditions(chance, ""))
    session = f"session_window(event_time, '{gap_s} seconds')"
    grouped = re.sub(r" GROUP BY (.*?)(?= HAVING| EVERY)", rf" GROUP BY \1, {session}", text)
    if grouped == text:
        grouped = text.replace(f" {_EVERY}", f" GROUP BY {session} {_EVERY}")
    return grouped.removesuffix(f" {_EVERY}")


def _of_flink(chance: random.Random, stream: str, gap_s: int, length: str) -> str:
    keys = chance.sample(["k", "b", "n", "d"], chance.randint(0, 2))
    by = f" PARTITION BY {', '.join(keys)}" if keys else ""
    source = f"TABLE(SESSION(TABLE {stream}{by}, DESCRIPTOR(event_time), INTERVAL '{gap_s}' SECONDS)){length}"
    calls = [f"{_call(chance, '')} AS v{number}" for number in range(chance.randint(1, 3))]
    groups = ", ".join(["window_start", "window_end", *keys])
    return f"SELECT {groups}, {', '.join(calls)} FROM {source} GROUP BY {groups}"


@dataclass(frozen=True)
class BoundedText:
    """A join with a bound in time, as Tidegate and as DuckDB read it.

    ``by_hand``: the query over ``pairs``, whose tuples are what the join has: columns of ``l``, and those of ``r`` with
    ``r_`` before their names. ``on``: the condition of which they are pairs. ``range_s``, ``lag_s``: how long the
    window of ``l`` is, and how long after its end a match may happen.
    """

    text: str
    by_hand: str
    kind: str
    left: str
    right: str
    on: str
    range_s: int
    lag_s: int


def draw_bounded_query(chance: random.Random) -> BoundedText:
    """JOIN, LEFT, SEMI and ANTI, EXISTS and NOT EXISTS with a bound; of derived streams and reference tables, too."""
    kind = chance.choice(["inner", "left", "semi", "anti", "exists", "not exists"])
    shows_both = kind in ("inner", "left")
    left, right = chance.choice(["x", "x", "z", "zz"]), chance.choice(["x", "y", "y", "z", "zz"])
    minutes = chance.choice([5, 10])
    bound, latest = _bound(chance)
    keys = chance.choice([["k"], ["k"], ["n"], ["b"], ["k", "b"], ["d"]])
    conditions = [f"l.{key} = r.{key}" if chance.random() < 0.5 else f"r.{key} = l.{key}" for key in keys] + [bound]
    conditions += _conditions(chance, "r.", 1) + (_conditions(chance, "l.", 1) if kind != "exists" else [])
    conditions += chance.sample([one for one in _OF_PAIRS if "event_time" not in one], chance.choice([0, 0, 1, 2]))
    chance.shuffle(conditions)
    on = " AND ".join(conditions)
    where = _conditions(chance, "l.") + (_conditions(chance, "r.", 1) if kind == "inner" else [])
    source = f"{left} [{minutes} MINUTES] AS l"
    goods = left == "x" and chance.random() < 0.25
    if goods:
        source += f" {chance.choice(['', 'LEFT '])}JOIN goods AS g ON l.k = g.k"
    by = [*_GROUPS, *_BY_GOODS] if goods else _GROUPS
    names = [name for name in CALLS if kind in ("inner", "semi", "exists") or name not in CANNOT_BE_TAKEN_BACK]
    of = _select(chance, ["l.", "r."] if shows_both else ["l."], "{source}", where, by, names)
    # What DuckDB reads; columns of r, and its own event time, which orders FIRST and LAST, are those of the pair.
    hand = re.sub(r"\b(FIRST|LAST)(?:_VALUE)?\(r\.(\w+)\)(.*?)(?= AS v\d)", _chosen_by_time, of)
    hand = re.sub(r"\br\.(\w+)", r"l.r_\1", hand).replace("g.", "l.")
    hand = hand.replace("{source}", f"pairs [{minutes} MINUTES] AS l")
    joins = {"inner": chance.choice(["JOIN", "INNER JOIN"]), "left": chance.choice(["LEFT JOIN", "LEFT OUTER JOIN"])}
    joins |= {"semi": "LEFT SEMI JOIN", "anti": "LEFT ANTI JOIN"}
    if kind in joins:
        text = of.replace("{source}", f"{source} {joins[kind]} {right} AS r ON {on}")
    else:
        exists = f"{kind.upper()} (SELECT 1 FROM {right} AS r WHERE {on})"
        source += f" WHERE {exists}" + (" AND" if where else "")
        text = of.replace(" WHERE ", " ", 1) if where and " FROM {source} WHERE " in of else of
        text = text.replace("{source}", source)
    same = {"exists": "semi", "not exists": "anti"}
    return BoundedText(text, hand, same.get(kind, kind), source, right, on, 60 * minutes, 60 * max(latest, 0))


def _bound(chance: random.Random) -> tuple[str, int]:
    """A condition on both times, and how many minutes later than ``l`` an ``r`` may be at most."""
    low, high = chance.choice([(0, 5), (0, 5), (-5, 5), (-10, 0), (5, 10), (0, 0), (-10, -5)])
    ends = [
        "l.event_time" + (f" {'+' if minutes > 0 else '-'} INTERVAL {abs(minutes)} MINUTES" if minutes else "")
        for minutes in (low, high)
    ]
    if low == high or chance.random() < 0.5:
        return f"r.event_time BETWEEN {ends[0]} AND {ends[1]}", high
    first, last = chance.choice([">", ">="]), chance.choice(["<", "<="])
    return f"r.event_time {first} {ends[0]} AND r.event_time {last} {ends[1]}", high


def _chosen_by_time(call: re.Match[str]) -> str:
    best = {"FIRST": "MIN_BY", "LAST": "MAX_BY"}[call[1]]
    known = f"CASE WHEN r.{call[2]} IS NOT NULL THEN r.event_time END" if "IGNORE NULLS" in call[3] else "r.event_time"
    return f"{best}(r.{call[2]}, {known}){call[3].replace(' IGNORE NULLS', '')}"


def _promising(chance: random.Random, text: str, kind: str) -> str:
    """The query with a promise that is judged group by group, where it can have one."""
    promise = ""
    if " GROUP BY " in text and " AS best" not in text and re.search(r" AS [vw]", text):
        promise = chance.choice(["", " ERROR 20%"])
        floored = [name for call, name in re.findall(r"([^,]+?) AS (v\d)", text) if _FLOORED.match(call.strip())]
        if promise and floored and chance.random() < 0.7:
            promise += f" OR {chance.choice([1, 5, 50])} IN {chance.choice(floored)}"
        if promise and chance.random() < 0.7:
            promise += f" FOR {chance.choice([50, 80, 99, 12.5])}% OF GROUPS"
    elif kind in ("top_k", "best") and "PARTITION BY " in text and chance.random() < 0.7:
        part = text.partition("PARTITION BY ")[2].split()[0]
        promise = f" ACCURACY 90% FOR EACH {part}"
    return text.replace(f" {_EVERY}", f"{promise} {_EVERY}")


def _with_goods(chance: random.Random) -> str:
    source = f"x [{chance.choice([10, 5])} MINUTES] AS l {chance.choice(['', 'LEFT '])}JOIN goods AS g ON l.k = g.k"
    where = _conditions(chance, "l.", 1) + chance.sample(_OF_GOODS, chance.choice([0, 1, 1, 2]))
    text = _select(chance, ["l."], source, where, [*_GROUPS, *_BY_GOODS])
    return text.replace(" FROM ", f", {chance.choice(_CALLS_OF_GOODS)} AS u FROM ", 1)


def _conditions(chance: random.Random, alias: str, most: int = 2) -> list[str]:
    return [one.format(c=alias) for one in chance.sample(_CONDITIONS, chance.randint(0, most))]


def _call(chance: random.Random, alias: str, names: Sequence[str] = tuple(CALLS)) -> str:
    call = chance.choice(CALLS[chance.choice(names)]).format(c=alias)
    if chance.random() < 0.25:
        call, ignore, _ = call.partition(" IGNORE NULLS")
        call += f" FILTER (WHERE {chance.choice(_CONDITIONS).format(c=alias)}){ignore}"
    return call


def _number(chance: random.Random, alias: str, names: Sequence[str] = _NUMBERS) -> str:
    name = chance.choice(names)
    return chance.choice(_PLAIN_NUMBERS.get(name) or CALLS[name]).format(c=alias)


def _select(
    chance: random.Random,
    sides: list[str],
    source: str,
    where: list[str],
    by: Sequence[str] = _GROUPS,
    names: Sequence[str] = tuple(CALLS),
) -> str:
    """``names``: the aggregates to choose from."""
    numbers = [name for name in _NUMBERS if name.removesuffix("_number") in names]
    groups = [one.format(c=chance.choice(sides)) for one in chance.sample(by, chance.choice([0, 1, 1, 2, 3]))]
    calls = [_call(chance, chance.choice(sides), names) for _ in range(chance.randint(0 if groups else 1, 4))]
    items = [f"{group} AS g{number}" for number, group in enumerate(groups)]
    items += [f"{call} AS v{number}" for number, call in enumerate(calls)]
    if calls and chance.random() < 0.2:
        items.append(f"COALESCE({_number(chance, chance.choice(sides), numbers)}, 0) + 1 AS w")
    text = f"SELECT {', '.join(items)} FROM {source}"
    text += f" WHERE {' AND '.join(where)}" if where else ""
    if groups:
        named = chance.choice([groups, [str(n + 1) for n in range(len(groups))], [f"g{n}" for n in range(len(groups))]])
        text += f" GROUP BY {', '.join(named)}"
    if groups and calls and chance.random() < 0.3:
        value = _number(chance, chance.choice(sides), numbers)
        text += f" HAVING {value} {chance.choice(['>', '<=', '<>'])} {chance.randint(0, 3)}"
    return f"{text} {_EVERY}"


def _aggregate(chance: random.Random) -> str:
    return _select(chance, [""], f"x {chance.choice(_WINDOWS)}", _conditions(chance, ""))


def _join(chance: random.Random) -> str:
    other = chance.choice(["x", "y", "y"])
    ranges = [f"[{chance.choice([10, 5])} MINUTES]" for _ in range(2)]
    keys = chance.choice([["k"], ["k"], ["n"], ["b"], ["k", "b"], ["d"]])
    equal = [f"l.{key} = r.{key}" for key in keys]
    where = _conditions(chance, "l.", 1) + _conditions(chance, "r.", 1)
    where += chance.sample(_OF_PAIRS, chance.choice([0, 0, 0, 1, 2]))
    if chance.random() < 0.5:
        source = f"x {ranges[0]} AS l JOIN {other} {ranges[1]} AS r ON {' AND '.join(equal)}"
        return _select(chance, ["l.", "r."], source, where)
    return _select(chance, ["l.", "r."], f"x {ranges[0]} AS l, {other} {ranges[1]} AS r", equal + where)


def _best(chance: random.Random) -> str:
    groups = chance.sample(["k", "b", "n", "d"], chance.randint(1, 2))
    value, where = _number(chance, ""), _conditions(chance, "")
    order = f"{value}{chance.choice([' DESC', ' DESC', ' ASC', ''])}"
    text = f"SELECT {', '.join(groups)}, {value} AS best, COUNT(*) AS c FROM x [10 MINUTES]"
    text += f" WHERE {' AND '.join(where)}" if where else ""
    text += f" GROUP BY {', '.join(groups)}"
    if len(groups) == 2 and chance.random() < 0.5:
        rank = f"ROW_NUMBER() OVER (PARTITION BY {groups[0]} ORDER BY {order})"
        return f"{text} QUALIFY {rank} <= {chance.randint(1, 3)} {_EVERY}"
    return f"{text} ORDER BY {order} LIMIT {chance.randint(1, 5)} {_EVERY}"


def _top_k(chance: random.Random) -> str:
    outputs = [one.format(c="") for one in chance.sample(_VALUES, chance.randint(1, 4))]
    terms = [one.format(c="") for one in chance.sample(_VALUES, chance.randint(1, 2))]
    order = ", ".join(f"{term}{chance.choice([' DESC', ' ASC', ''])}" for term in terms)
    where = _conditions(chance, "")
    items = [f"{output} AS p_{number}" for number, output in enumerate(outputs)]
    condition = f" WHERE {' AND '.join(where)}" if where else ""
    if chance.random() < 0.4:
        part = chance.choice(["k", "b"])
        rank = f"ROW_NUMBER() OVER (PARTITION BY {part} ORDER BY {order})"
        return f"SELECT {part}, {', '.join(items)} FROM x [10 MINUTES]{condition} QUALIFY {rank} <= 3 {_EVERY}"
    limit = chance.randint(1, 6)
    return f"SELECT {', '.join(items)} FROM x [10 MINUTES]{condition} ORDER BY {order} LIMIT {limit} {_EVERY}"
