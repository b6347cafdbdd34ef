"""A whole pipeline out of a seed: streams, declaration, queries, files, and how it is run.

Every concern draws from a random source of its own, so that a change of one leaves the others of a seed as they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

from tests.strangers.case import Case, File
from tests.strangers.columns import ARRIVAL_TIMES, EVENT_TIMES, IDS, Values, instant, random_columns
from tests.strangers.further import FURTHER_FROM, further, liven
from tests.strangers.shapes import Shape, decimals, format_of, shape, with_lines
from tests.strangers.traffic import BROKEN, LATENESS, RATES, StreamSpec, arrivals, broken_files, files, records
from tests.strangers.wording import Table, Wording

PUBLISHED_OF = 12  # dbt's models are built for one seed of so many: they cost more than everything else
STARTS = [
    "2024-03-01",
    "2026-01-01",
    "2023-12-31",
    "2024-02-29",
    "2013-10-27",
    "2000-01-01",
    "2031-06-15",
    "1970-01-02",
]
INTERVALS_S = [60, 300, 600, 900, 1200, 1800, 3600, 3600, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 86_400]
STREAM_NAMES = [
    "orders",
    "s",
    "departures",
    "weather",
    "events",
    "truth",
    "windows",
    "a1",
    "group_1",
    "samples",
    "rates",
]
QUERY_NAMES = ["q1", "revenue", "top", "count", "pairs", "answers", "accuracy", "best_of", "x", "plan", "windows"]
PIPELINES = ["shop", "p", "my_pipeline_2", "events", "tidegate", "date"]
CAPACITY = 1500


def generate(seed: int) -> Case:
    """The case of a seed."""
    chance = Random(f"{seed}/pipeline")
    interval_s = chance.choice(INTERVALS_S)
    ticks = chance.choice([t for t in (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60) if interval_s % t == 0])
    tick_s = interval_s // ticks
    most = max(2, min(6, 150 // ticks))
    intervals = chance.randint(2, most)
    horizon_s = interval_s * chance.choice([1, 1, 1, 2, 3])
    if seed >= FURTHER_FROM:  # long enough for windows to become final
        intervals, horizon_s = max(intervals, min(4, most)), min(horizon_s, 2 * interval_s)
    start = instant(chance.choice(STARTS))
    per_day = 86_400 // interval_s
    # Near the end of a day, so that the daily pass over history lies within the run; or anywhere.
    first = per_day - chance.randint(1, intervals) if chance.random() < 0.6 else chance.randrange(per_day)
    start += timedelta(seconds=interval_s * max(first, 0))
    end = start + timedelta(seconds=interval_s * intervals)
    count = chance.choice([1, 1, 2, 2, 3])
    names = Random(f"{seed}/names").sample(STREAM_NAMES, count)
    specs = [stream(seed, name, interval_s, tick_s, horizon_s, intervals, CAPACITY // count) for name in names]
    if seed >= FURTHER_FROM:
        for spec in specs:
            liven(seed, spec)
    cutting = Random(f"{seed}/cuts")
    cuts = cut(cutting, intervals)
    held: list[File] = []
    for spec in specs:
        own = traffic(seed, spec, start, end, tick_s)
        held += growing(spec, own, start + timedelta(seconds=interval_s * cuts[0])) if len(cuts) > 1 else own
    declaration = declare(seed, specs, start, interval_s, tick_s, horizon_s, held, end)
    queries = ask(seed, specs, interval_s, tick_s, intervals, start, end)
    case = Case(
        name=f"seed {seed}",
        declaration=declaration,
        queries=queries,
        files=tuple(held),
        start=start,
        intervals=intervals,
        cuts=cuts,
        again=tuple(cutting.sample(range(intervals), min(intervals, cutting.choice([0, 1])))),
        publish=seed % PUBLISHED_OF == 0,
        live=Random(f"{seed}/live").random() < 0.3,
        questions=questions(seed, specs, declaration, start, end),
        notes={"seed": seed},
    )
    return further(case, seed, specs, tick_s, interval_s, horizon_s) if seed >= FURTHER_FROM else case


def cut(chance: Random, intervals: int) -> tuple[int, ...]:
    """Lengths of two runs that make up all intervals: every run costs a dozen Spark jobs, whatever it reads."""
    first = chance.randint(1, max(1, intervals - 1))
    return (first, intervals - first) if first < intervals else (first,)


def stream(seed: int, name: str, interval_s: int, tick_s: int, horizon_s: int, intervals: int, rows: int) -> StreamSpec:
    """One stream's habits."""
    chance = Random(f"{seed}/stream/{name}")
    format_ = chance.choice(["jsonl", "jsonl", "csv", "parquet"])
    taken: set[str] = set()
    identity = chance.choice(IDS)
    event_time = chance.choice(EVENT_TIMES)
    landed = chance.random() < 0.2
    arrival = None if landed else chance.choice(ARRIVAL_TIMES)
    taken |= {identity.lower(), event_time.lower(), (arrival or "landed").lower()}
    taken |= {"event_id", "event_time", "arrival_time", "interval", "leaf_start", "u", "fraction", "weight"}
    kind = format_of(seed, name, format_)
    path, unit_s = pattern(chance, name, interval_s, kind, landed)
    packed = format_ == "jsonl" and chance.random() < 0.15
    packed |= format_ == "csv" and Random(f"{seed}/packed/{name}").random() < 0.3
    rate = chance.choice(RATES)
    resolution = chance.choice(["second", "millisecond", "microsecond"])
    path += ".gz" if packed else ""
    spec = StreamSpec(
        name=name,
        format=kind,
        path=path,
        id=identity,
        id_type=chance.choice(["string", "string", "integer"]),
        event_time=event_time,
        arrival_time=arrival,
        columns=random_columns(chance, taken),
        max_early_s=chance.choice([0, 1, tick_s, interval_s]),
        max_late_s=chance.choice([horizon_s, horizon_s, 0, tick_s, interval_s * 3, 86_400 * 4]),
        unit_s=unit_s,
        rate=rate,
        lateness=chance.choice(LATENESS),
        scale_s=chance.choice([tick_s / 3, tick_s * 2, interval_s / 2, interval_s * 1.5]),
        rows=chance.choice([20, 150, 400, rows]) if rate != "instant" else rows,
        broken=chance.sample([*BROKEN, "clock_jump"], chance.choice([0, 0, 2, 5, 17])),
        resolution=resolution,
    )
    spec.columns = with_lines(seed, name, spec.columns) if kind in ("csv", "json") else spec.columns
    spec.columns += decimals(seed, name, taken | {c.name.lower() for c in spec.columns})
    roles = [spec.id, spec.event_time, *([spec.arrival_time] if spec.arrival_time else [])]
    spec.shape = shape(seed, name, kind, roles, spec.columns, unit_s is not None)
    if packed:
        spec.shape = replace(spec.shape, packed="")
    if spec.shape.grows:  # every record is accepted: see `growing`
        spec.broken, spec.lateness = [], "none"
    return spec


def growing(spec: StreamSpec, files: Sequence[File], boundary: datetime) -> list[File]:
    """The files of a stream, some of which hold at first only what had arrived until an instant.

    Only where every record is accepted, and its arrival is what it was: what is refused belongs to where a file was
    first seen so long, which is not the same in two warehouses.
    """
    arrival = spec.arrival_time
    if not spec.shape.grows or arrival is None:
        return list(files)
    grown = []
    for file in files:
        records = [record for record in file.records if isinstance(record, dict)]
        records.sort(key=lambda record: record[arrival])
        first = sum(record[arrival] < boundary for record in records)
        grown.append(replace(file, records=tuple(records), first=first) if file.content is None else file)
    return grown


def pattern(chance: Random, name: str, interval_s: int, format_: str, landed: bool) -> tuple[str, int | None]:
    """A path and the length of its files' periods."""
    folder = chance.choice([f"feed/{name}", f"feed/{name}", f"in/{name} (ü, x)", f"{name}/%Y/%m"])
    star = chance.choice(["", "*"]) if not landed else "*"
    if chance.random() < 0.2 or (landed and chance.random() < 0.6):
        return f"{folder.replace('/%Y/%m', '')}/*.{format_}", None
    choices: list[tuple[str, int]] = []
    if interval_s % 86_400 == 0:
        choices += [("%Y-%m-%d", 86_400), ("%Y-%j", 86_400)]
    if interval_s % 3600 == 0:
        choices.append(("%Y-%m-%dT%H", 3600))
    if interval_s <= 1800:
        choices.append(("%Y%m%d-%H%M", 60))
    directive, unit_s = chance.choice(choices)
    return f"{folder}/{directive}{star}.{format_}", unit_s


def traffic(seed: int, spec: StreamSpec, start: datetime, end: datetime, tick_s: int) -> list[File]:
    """A stream's files."""
    chance = Random(f"{seed}/traffic/{spec.name}")
    made = records(chance, spec, arrivals(chance, spec, start, end, tick_s))
    found = files(chance, spec, made, start)
    return broken_files(chance, spec, found) if chance.random() < 0.25 and not spec.shape.grows else found


def declare(
    seed: int,
    specs: Sequence[StreamSpec],
    start: datetime,
    interval_s: int,
    tick_s: int,
    horizon_s: int,
    held: Sequence[File],
    end: datetime,
) -> dict[str, Any]:
    """pipeline.yml."""
    chance = Random(f"{seed}/declaration")
    declared: dict[str, Any] = {
        "name": chance.choice(PIPELINES),
        "owner": chance.choice(["sales", "Zoë", "team:data"]),
        "start": f"{start.replace(hour=0, minute=0):%Y-%m-%dT%H:%M:%SZ}",
        "interval": spoken(chance, interval_s),
        "tick": spoken(chance, tick_s),
        "horizon": spoken(chance, horizon_s),
        "memory_budget": chance.choice(["64 MiB", "64 MiB", "1 MiB", "64 KiB", "20 KB", "4 KiB", "700 B", "1 B"]),
        # The machine shares one process among all cases: its memory says nothing of one.
        "process_budget": "64 GiB",
    }
    if chance.random() < 0.5:
        declared["description"] = 'Strange: things, "quoted" – ünïcode, {{ braces }}'
    if chance.random() < 0.5:
        declared["initial_slack"] = spoken(chance, chance.choice([1, tick_s, min(horizon_s, interval_s), horizon_s]))
    if chance.random() < 0.5:
        declared["promise_period"] = spoken(chance, interval_s * chance.choice([1, 2, 24]))
    if chance.random() < 0.3:
        declared["rate_change"] = chance.choice(["5%", "50%", "1000%"])
    if chance.random() < 0.3:
        declared["partitions"] = chance.choice([1, 3])
    declared["streams"] = {
        spec.name: declare_stream(chance, spec, interval_s, tick_s, held, start, end) for spec in specs
    }
    return declared


def declare_stream(
    chance: Random, spec: StreamSpec, interval_s: int, tick_s: int, held: Sequence[File], start: datetime, end: datetime
) -> dict[str, Any]:
    """A stream's part of pipeline.yml."""
    columns: dict[str, Any] = {spec.id: spec.id_type, spec.event_time: "timestamp"}
    if spec.arrival_time:
        columns[spec.arrival_time] = "timestamp"
    for column in spec.columns:
        plain = column.nullable and chance.random() < 0.7
        columns[column.name] = column.type if plain else {"type": column.type, "nullable": column.nullable}
    for name, keys in spec.shape.columns.items():
        if keys:
            columns[name] = {"type": columns[name]} if isinstance(columns[name], str) else columns[name]
            columns[name] |= keys
    names = list(columns)
    chance.shuffle(names)
    rows = sum(len(f.records) for f in held if f.stream == spec.name)
    true_rate = max(rows, 1) / (end - start).total_seconds()
    declared: dict[str, Any] = {
        "format": spec.format,
        **keys_of(spec.path, spec.shape),
        "columns": {name: columns[name] for name in names},
        "id": identity_of(spec),
        "event_time": spec.event_time,
        "arrival_time": spec.arrival_time or "landed",
        "rate": rate_of(true_rate * chance.choice([1, 1, 1, 0.001, 1000, 30])),
        "missing_file": chance.choice(["ignore", "ignore", "warn"]),
    }
    if spec.max_early_s or chance.random() < 0.2:
        declared["max_early"] = spoken(chance, spec.max_early_s)
    declared["max_late"] = spoken(chance, spec.max_late_s)
    if chance.random() < 0.4:
        declared["max_width"] = spoken(chance, tick_s * chance.choice([1, 2, 10, 100]))
    if chance.random() < 0.5:
        declared["history"] = history(chance, spec, interval_s, tick_s)
    return declared


def keys_of(path: str, own: Shape) -> dict[str, Any]:
    """Where the files are, and the other keys of a stream's shape."""
    keys = {key: value for key, value in own.keys.items() if key != "source"}
    return {**({"source": {"files": path}} if "source" in own.keys else {"path": path}), **keys}


def identity_of(spec: StreamSpec) -> str | list[str]:
    """The key ``id``."""
    ids = spec.shape.ids
    return spec.id if ids is None else list(ids) or "none"


def history(chance: Random, spec: StreamSpec, interval_s: int, tick_s: int) -> dict[str, Any]:
    """How a stream's past is kept."""
    declared: dict[str, Any] = {
        "leaf": spoken(chance, chance.choice([tick_s, tick_s * 3, interval_s, interval_s * 2, 7])),
        "capacity": chance.choice([1, 10, 100, 1000, 100_000]),
    }
    for key, values in (
        ("max_fraction", ["90%", "100%", "20%"]),
        ("min_fraction", ["0%", "0.1%", "10%"]),
        ("merge_leaves", [2, 6]),
        ("law", ["inverse_age", "exponential"]),
        ("seed", [0, 12345]),
        ("reserve", ["10%", "50%"]),
        ("bands", [1, 2, 4]),
    ):
        if chance.random() < 0.4:
            declared[key] = chance.choice(values)
    groups = [
        c.name for c in spec.columns if c.type in ("string", "boolean") or (c.type == "integer" and c.law[1] < 10)
    ]
    if groups and chance.random() < 0.5:
        declared["group_by"] = chance.sample(groups, chance.randint(1, len(groups)))
    return declared


def ask(
    seed: int,
    specs: Sequence[StreamSpec],
    interval_s: int,
    tick_s: int,
    intervals: int,
    start: datetime,
    end: datetime,
) -> dict[str, str]:
    """The queries."""
    chance = Random(f"{seed}/queries")
    ticks = interval_s // tick_s
    ranges = [tick_s, tick_s * chance.randint(1, 5), interval_s, interval_s * chance.randint(1, 4), tick_s * ticks * 2]
    least = max(1, (intervals * ticks) // 60)
    everies = [tick_s * least, tick_s * least * 2, interval_s]
    tables = [Table(spec.name, tuple(all_columns(spec))) for spec in specs]
    queries = {}
    for name in chance.sample(QUERY_NAMES, chance.choice([1, 2, 2, 3, 4])):
        at, span = start + (end - start) / 2, end - start
        wording = Wording(chance, tables, tick_s, ranges, everies, at, span, promises=chance.random() < 0.7)
        queries[name] = wording.query()
    return queries


def all_columns(spec: StreamSpec) -> list[Values]:
    """A stream's columns with those of its roles."""
    law: tuple[Any, ...] = ([f"{spec.name}-00001", "x"], 0.0) if spec.id_type == "string" else (0, 500)
    roles = [Values(spec.id, spec.id_type, False, 0.0, law), Values(spec.event_time, "timestamp", False, 0.0, (3600,))]
    if spec.arrival_time:
        roles.append(Values(spec.arrival_time, "timestamp", False, 0.0, (3600,)))
    return [*roles, *spec.columns]


def questions(
    seed: int, specs: Sequence[StreamSpec], declaration: dict[str, Any], start: datetime, end: datetime
) -> tuple[tuple[str, str, datetime, datetime], ...]:
    """What is asked of every history: one question over all of it, one over a part."""
    chance = Random(f"{seed}/questions")
    found = []
    for spec in specs:
        if "history" not in declaration["streams"][spec.name]:
            continue
        numbers = [c.name for c in spec.columns if c.type in ("integer", "double") and c.nulls < 0.5]
        for whole in (True, False):
            value = chance.choice(numbers) if numbers and chance.random() < 0.7 else None
            asked = f"{chance.choice(['SUM', 'AVG'])}({value})" if value else "COUNT(*)"
            sql = f"SELECT {asked} AS v FROM {spec.name}"
            a, b = sorted(chance.uniform(0, 1) for _ in range(2))
            span = end - start
            first = start - timedelta(days=3) if whole else (start + span * a).replace(microsecond=0)
            last = end if whole else max((start + span * b).replace(microsecond=0), first + timedelta(seconds=1))
            found.append((spec.name, sql, first, last))
    return tuple(found)


def spoken(chance: Random, seconds: int) -> str:
    """A duration in some unit."""
    units = [("seconds", 1), ("minutes", 60), ("hours", 3600), ("days", 86_400)]
    name, factor = chance.choice([(n, f) for n, f in units if seconds % f == 0])
    return f"{seconds // factor} {name}"


def rate_of(rate: float) -> str:
    """A rate per second, hour or day, as it is said best."""
    for name, seconds in (("second", 1), ("hour", 3600), ("day", 86_400)):
        if rate * seconds >= 1:
            return f"{min(round(rate * seconds, 3), 1e8):.12g} per {name}"
    return "1 per day"
