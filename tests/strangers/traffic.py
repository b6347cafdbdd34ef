"""Random traffic: when records arrive, how late they are, what is wrong with some, and in which files they lie."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any

from tests.strangers.case import File, Record
from tests.strangers.columns import Values
from tests.strangers.shapes import Shape

STYLES = {
    "jsonl": ["plain", "plain", "ascii", "offset", "spaced", "quoted"],
    "json": ["plain", "plain", "list", "offset", "spaced", "quoted"],
    "csv": ["plain", "plain", "crlf", "offset", "spaced"],
    "parquet": ["plain", "dictionary", "naive", "texts"],
    "avro": ["plain", "dictionary", "naive", "texts"],
}
RATES = [
    "steady",
    "steady",
    "rare",
    "silent",
    "bursts",
    "drift",
    "instant",
    "batches",
    "late_start",
    "early_end",
    "nothing",
]
LATENESS = ["none", "none", "exponential", "exponential", "lognormal", "bimodal", "days", "early"]
BROKEN = [
    "cut_off", "not_a_record", "unknown_column", "missing_id", "missing_time", "missing_value", "wrong_type",
    "wrong_time", "non_finite", "duplicate", "copy", "far_future", "far_past", "nested", "blank", "huge_integer",
]  # fmt: skip


@dataclass
class StreamSpec:
    """A stream as its owner knows it."""

    name: str
    format: str
    path: str
    id: str
    id_type: str
    event_time: str
    arrival_time: str | None  # None: landed
    columns: list[Values]
    max_early_s: int
    max_late_s: int
    unit_s: int | None  # how long a file's period is; None: the path names no time
    rate: str
    lateness: str
    scale_s: float  # of the lateness
    rows: int
    broken: list[str]
    resolution: str
    shape: Shape = field(default_factory=Shape)

    @property
    def is_json(self) -> bool:
        """Whether its records are JSON objects."""
        return self.format in ("jsonl", "json")


def arrivals(chance: Random, spec: StreamSpec, start: datetime, end: datetime, step_s: int) -> list[datetime]:
    """Instants of arrival in [start, end), by the stream's law of rates."""
    span = (end - start).total_seconds()
    n = spec.rows
    moments: list[float]
    if spec.rate == "nothing":
        moments = []
    elif spec.rate == "rare":
        moments = [chance.uniform(0, span) for _ in range(chance.randint(1, 5))]
    elif spec.rate == "silent":
        a, b = sorted(chance.uniform(0, span) for _ in range(2))
        moments = [t for t in (chance.uniform(0, span) for _ in range(n)) if not a <= t < b]
    elif spec.rate == "bursts":
        moments = [chance.uniform(0, span) for _ in range(n // 3)]
        for _ in range(chance.randint(1, 3)):
            at = chance.uniform(0, span)
            moments += [at + chance.uniform(0, span / 300) for _ in range(n // 3)]
    elif spec.rate == "drift":
        moments = [span * chance.random() ** chance.choice([0.3, 3]) for _ in range(n)]
    elif spec.rate == "instant":
        at = chance.uniform(0, span - 1)
        moments = [at + chance.random() for _ in range(n)]
    elif spec.rate == "batches":
        times = max(1, int(span / step_s))
        moments = [float(step_s * chance.randrange(times)) for _ in range(n)]
    elif spec.rate == "late_start":
        moments = [chance.uniform(span * 0.6, span) for _ in range(n)]
    elif spec.rate == "early_end":
        moments = [chance.uniform(0, span * 0.3) for _ in range(n)]
    else:
        moments = [chance.uniform(0, span) for _ in range(n)]
    instants = [rounded(start + timedelta(seconds=min(max(m, 0), span)), spec.resolution) for m in sorted(moments)]
    return [t for t in instants if start <= t < end]


def rounded(at: datetime, resolution: str) -> datetime:
    """An instant cut to the clock's resolution."""
    if resolution == "second":
        return at.replace(microsecond=0)
    return at.replace(microsecond=at.microsecond // 1000 * 1000) if resolution == "millisecond" else at


def lateness_s(chance: Random, spec: StreamSpec) -> float:
    """How long a tuple is under way; negative: its clock is ahead."""
    scale = spec.scale_s
    if spec.lateness == "exponential":
        return chance.expovariate(1 / scale)
    if spec.lateness == "lognormal":
        return scale * chance.lognormvariate(-1, 1)
    if spec.lateness == "bimodal":
        return chance.uniform(0, scale / 20) if chance.random() < 0.9 else chance.uniform(scale, 3 * scale)
    if spec.lateness == "days":
        return chance.uniform(0, 3 * 86_400)
    if spec.lateness == "early":
        return chance.uniform(-spec.max_early_s, scale / 5)
    return 0.0


def records(chance: Random, spec: StreamSpec, instants: list[datetime]) -> list[tuple[datetime, Record]]:
    """A record for every arrival, and broken ones among them; each with the instant at which it arrives."""
    made: list[tuple[datetime, Record]] = []
    used: list[Any] = []
    jump = None
    if "clock_jump" in spec.broken and instants:
        first = chance.randrange(len(instants))
        jump = (first, first + 1 + len(instants) // 10, chance.choice([-400, -2, 2, 3000]) * 86_400)
    for number, at in enumerate(instants):
        event = rounded(at - timedelta(seconds=lateness_s(chance, spec)), spec.resolution)
        if jump and jump[0] <= number < jump[1]:
            event = event + timedelta(seconds=jump[2])
        identity: Any = f"{spec.name}-{number:05d}" if spec.id_type == "string" else number * 7 - 3
        used.append(identity)
        record: dict[str, Any] = {spec.id: identity, spec.event_time: event}
        if spec.arrival_time is not None:
            record[spec.arrival_time] = at
        for column in spec.columns:
            record[column.name] = column.draw(chance, event)
        record |= undeclared(spec, number)
        made.append((at, record))
        kinds = [kind for kind in spec.broken if kind != "clock_jump"]
        if kinds and chance.random() < 0.08:
            made += [(at, bad) for bad in broken(chance, spec, chance.choice(kinds), record, used)]
    return made


def undeclared(spec: StreamSpec, number: int) -> dict[str, Any]:
    """Values of the columns that nobody declares: of some records, for those of JSON need not have them."""
    chance = Random(f"{spec.name}/others/{number}")
    drawn = {name: chance.choice(values) for name, values in spec.shape.others.items()}
    return {name: value for name, value in drawn.items() if not spec.is_json or chance.random() < 0.6}


def broken(chance: Random, spec: StreamSpec, kind: str, good: dict[str, Any], used: list[Any]) -> list[Record]:
    """A record that is wrong in one way, made of a good one; none where the format cannot have it."""
    new_id: Any = f"{spec.name}-b{len(used)}-{chance.randrange(10**6)}"
    if spec.id_type == "integer":
        new_id = -(10**6) - len(used) * 1000 - chance.randrange(1000)
    record = {**good, spec.id: new_id}
    text_like = spec.is_json or spec.format == "csv"
    typed = [c for c in spec.columns if c.type not in ("string",)]
    if kind == "cut_off":
        if spec.format == "json":
            return []  # the whole file would be cut off
        if spec.format == "jsonl":
            return ['{"' + spec.id + '": "cut off']
        return [f"{new_id}"] if spec.format == "csv" and len(good) > 1 else []
    if kind == "not_a_record":
        words = ["not json at all", "[1, 2, 3]", "42", "null", '"text"', "{}"]
        return [chance.choice(words[2:] if spec.format == "json" else words)] if spec.is_json else []
    if kind == "unknown_column":
        return [{**record, "colour_of_sky": "blue"}] if spec.is_json else []
    if kind == "missing_id":
        return [{**record, spec.id: None}]
    if kind == "missing_time":
        return [{**record, spec.event_time: None}]
    if kind == "missing_value":
        needed = [c.name for c in spec.columns if not c.nullable]
        return [{**record, chance.choice(needed): None}] if needed else []
    if kind == "wrong_type":
        if not typed or not text_like:
            return []
        column = chance.choice(typed)
        return [{**record, column.name: "some words"}]
    if kind == "wrong_time":
        return [{**record, spec.event_time: "yesterday"}] if text_like else []
    if kind == "non_finite":
        doubles = [c.name for c in spec.columns if c.type == "double"]
        if not doubles:
            return []
        value: Any = float("nan") if spec.format in ("parquet", "avro") else chance.choice(["NaN", "Infinity"])
        return [{**record, chance.choice(doubles): value}]
    if kind == "duplicate":
        return [{**good, spec.id: chance.choice(used)}]
    if kind == "copy":
        return [dict(good)]
    if kind == "far_future":
        return [{**record, spec.event_time: good[spec.event_time] + timedelta(days=365 * 50)}]
    if kind == "far_past":
        return [{**record, spec.event_time: good[spec.event_time] - timedelta(days=365 * 20)}]
    if kind == "nested":
        # For a string column the text of an object may do.
        return [{**record, chance.choice(typed).name: {"deep": [1]}}] if spec.is_json and typed else []
    if kind == "huge_integer":
        whole = [c.name for c in spec.columns if c.type == "integer"]
        return [{**record, chance.choice(whole): 10**25}] if whole and spec.is_json else []
    return [""] if text_like and spec.format != "json" and kind == "blank" else []


def files(chance: Random, spec: StreamSpec, made: list[tuple[datetime, Record]], start: datetime) -> list[File]:
    """The records in files, as the stream's path has it."""
    names = [
        spec.id,
        spec.event_time,
        *([spec.arrival_time] if spec.arrival_time else []),
        *(c.name for c in spec.columns),
    ]
    groups: dict[tuple[datetime | None, int], list[tuple[datetime, Record]]] = defaultdict(list)
    per_period = chance.randint(1, 3) if "*" in spec.path else 1
    landings: dict[int, datetime] = {}
    for at, record in made:
        period = None
        if spec.unit_s is not None:
            seconds = (at - start) // timedelta(seconds=spec.unit_s)
            period = start + seconds * timedelta(seconds=spec.unit_s)
        part = chance.randrange(per_period)
        if spec.arrival_time is None:
            # What lands together has one arrival time: whole milliseconds, as file systems keep them.
            part = (at - start) // timedelta(seconds=landing_s(spec))
            latest = max(landings.get(part, at), at)
            landings[part] = latest.replace(microsecond=latest.microsecond // 1000 * 1000)
        elif spec.unit_s is None:
            part = chance.randrange(4)
        groups[period, part].append((at, record))
    found = []
    names += spec.shape.others
    own_header, own_style = list(names), chance.choice(STYLES[spec.format])
    if not spec.is_json:
        chance.shuffle(own_header)
    for (period, part), held in sorted(groups.items(), key=lambda item: (str(item[0][0]), item[0][1])):
        if chance.random() < 0.5:
            chance.shuffle(held)  # nothing says that a file is in order
        name = (period.strftime(spec.path) if period else spec.path).replace(
            "*", f"-{part}" if period else f"part-{part:04d}"
        )
        header, style = list(own_header), own_style
        if chance.random() < 0.05:  # a file that another program wrote
            chance.shuffle(header)
            style = chance.choice(STYLES[spec.format])
        landed = landings.get(part) if spec.arrival_time is None else held[-1][0] if spec.unit_s is None else None
        if landed is None and spec.unit_s is None:
            landed = held[0][0]
        items = [record for _, record in held]
        if spec.is_json and chance.random() < 0.3:
            items = [{k: v for k, v in r.items() if v is not None} if isinstance(r, dict) else r for r in items]
        found.append(
            File(spec.name, name, tuple(header), tuple(items), landed=landed, style=style, packed=spec.shape.packed)
        )
    return found


def landing_s(spec: StreamSpec) -> float:
    """How often a file lands on a stream whose arrival time is the landing; a divisor of a file's period."""
    return (spec.unit_s or 3600) / 4


def broken_files(chance: Random, spec: StreamSpec, found: list[File]) -> list[File]:
    """The files with one spoilt: empty, not of the format, a header alone, a strange column, one too few, or gone."""
    result = list(found)
    if not result:
        return result
    index = chance.randrange(len(result))
    file = result[index]
    base = {"stream": file.stream, "path": file.path, "landed": file.landed}
    kind = chance.choice(["empty", "garbage", "header", "strange", "gone", "without"])
    if kind == "empty":
        result[index] = File(header=(), content=b"", **base)  # type: ignore[arg-type]
    elif kind == "garbage" and spec.format in ("parquet", "avro"):
        result[index] = File(header=(), content=b"PAR1 and then nothing of the kind", **base)  # type: ignore[arg-type]
    elif kind == "garbage" and spec.format == "csv":
        result[index] = File(header=(), content=b"a,a,b\n1,2,3\n", **base)  # type: ignore[arg-type]
    elif kind == "garbage" and spec.format == "json":
        result[index] = File(header=(), content=b'{"a": [1, {"b": "}"}', **base)  # type: ignore[arg-type]
    elif kind == "header" and not spec.is_json:
        result[index] = File(header=file.header, style=file.style, **base)  # type: ignore[arg-type]
    elif kind == "strange" and not spec.is_json:
        header = (*file.header, "colour_of_sky")
        rows = tuple({**r, "colour_of_sky": "blue"} if isinstance(r, dict) else r for r in file.records)
        result[index] = File(header=header, records=rows, style=file.style, **base)  # type: ignore[arg-type]
    elif kind == "without" and not spec.is_json and spec.columns:
        gone = chance.choice(spec.columns).name
        header = tuple(name for name in file.header if name != gone)
        result[index] = File(
            header=header, records=tuple(r for r in file.records if isinstance(r, dict)), style=file.style, **base
        )  # type: ignore[arg-type]
    elif kind == "gone":
        del result[index]
    return result


__all__ = ["StreamSpec", "arrivals", "broken_files", "files", "records"]
