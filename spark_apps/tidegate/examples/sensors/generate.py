"""What the sensors of a factory's machines measure, and the alarms that the machines raise, as they reach the office.

Needs Python and pyarrow. Writes one file of each stream per hour of arrival (UTC)::

    landing/readings/2026-03-02T06.parquet     arrived in [06:00, 07:00)
    landing/alarms/2026-03-02T06.csv

A machine measures every twenty seconds. The gateway of its hall collects for up to 20 seconds; one message in twenty is
lost at first and sent again a minute or so later. A strong vibration is sent with its waveform, which takes up to two
minutes more. From 07:40 to 07:44 the hall `south` is cut off: everything from there arrives after the end of the
outage, within a minute.

What is wrong with one record in a hundred, and the reason by which Tidegate refuses it, is in `FAULTS`.

The same seed gives the same files, whichever hours are asked for: what happens in an hour depends on the seed and the
hour alone. Change what you like, run it, and run the pipeline again.
"""

from __future__ import annotations

import argparse
import math
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

STARTED = datetime(2026, 3, 2, 6, tzinfo=UTC)  # the machines stand still before
HOURS = 3
HOUR = timedelta(hours=1)
EVERY_S = 20
LONGEST_DELAY = timedelta(minutes=30)
HALLS = {"north": ["lathe_1", "lathe_2", "mill_1", "mill_2"], "south": ["press_1", "press_2", "press_3", "saw_1"]}
HALLS |= {"east": ["oven_1", "oven_2", "robot_1", "robot_2"]}
STRONG = 4.0  # millimetres a second
CUT_OFF = ("south", STARTED + timedelta(minutes=100), STARTED + timedelta(minutes=104))
OVERHEATS = ("press_3", STARTED + timedelta(minutes=120))  # from then on, by half a degree a minute

# What goes wrong, by the reason that Tidegate gives: shares of the records of a stream.
FAULTS = {
    "readings": {
        "missing_value": 0.002,  # no machine
        "non_finite": 0.002,  # a broken sensor: not a number
        "too_early": 0.002,  # the machine's clock is a quarter of an hour fast
        "too_late": 0.002,  # the machine's clock starts in 1970
        "duplicate_id": 0.005,  # the message was not lost after all
    },
    "alarms": {
        "broken_record": 0.02,  # the line has too few fields
        "wrong_type": 0.02,  # a severity that is no number
        "duplicate_id": 0.02,
    },
}

READINGS = pa.schema(
    [
        *((name, pa.string()) for name in ("reading_id", "hall", "machine")),
        *((name, pa.timestamp("us", tz="UTC")) for name in ("measured_at", "received_at")),
        *((name, pa.float64()) for name in ("temperature", "vibration")),
    ]
)
ALARMS = ("alarm_id", "machine", "raised_at", "received_at", "severity")

Record = tuple[datetime, dict[str, Any], str | None]  # when it arrives, what it says, the reason why it will be refused


def received(chance: random.Random, hall: str, measured: datetime, strong: bool = False) -> datetime:
    """When a message reaches the office."""
    delay_s = chance.uniform(0, 20) + (chance.uniform(10, 120) if strong else 0)
    if chance.random() < 0.05:
        delay_s += chance.lognormvariate(4, 0.7)  # lost, and sent again: half of these after 55 seconds or more
    arrival = measured + timedelta(seconds=round(delay_s, 3))
    cut_off, since, until = CUT_OFF
    if hall == cut_off and since <= arrival < until:
        arrival = until + timedelta(seconds=round(chance.uniform(0, 60), 3))
    return min(arrival, measured + LONGEST_DELAY)


def temperature(chance: random.Random, machine: str, at: datetime) -> float:
    """Degrees Celsius: each machine around a level of its own, up and down within the hour."""
    level = 45 + sum(map(ord, machine)) % 20
    overheating, since = OVERHEATS
    drift = max(0.0, (at - since).total_seconds() / 120) if machine == overheating else 0.0
    return round(level + 5 * math.sin((at - STARTED).total_seconds() / 600) + drift + chance.gauss(0, 1), 2)


def readings(chance: random.Random, hour: datetime) -> Iterator[Record]:
    """What is sent because of the measurements of one hour."""
    for hall, machines in HALLS.items():
        for machine in machines:
            for second in range(chance.randrange(EVERY_S), 3600, EVERY_S):
                at = hour + timedelta(seconds=second)
                vibration = round(chance.lognormvariate(0.5, 0.6), 2)
                arrival = received(chance, hall, at, vibration >= STRONG)
                record = {
                    "reading_id": f"{machine}-{at:%d%H%M%S}",
                    "hall": hall,
                    "machine": machine,
                    "measured_at": at,
                    "received_at": arrival,
                    "temperature": temperature(chance, machine, at),
                    "vibration": vibration,
                }
                changes: dict[str, dict[str, Any]] = {
                    "missing_value": {"machine": None},
                    "non_finite": {"vibration": math.nan},
                    "too_early": {"measured_at": arrival + timedelta(minutes=15)},
                    "too_late": {"measured_at": datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=second)},
                }
                yield from sent(chance, "readings", record, arrival, changes)


def alarms(chance: random.Random, hour: datetime) -> Iterator[Record]:
    """What is sent because of the alarms of one hour."""
    raised, number = hour, 0
    while True:
        raised += timedelta(seconds=round(chance.expovariate(1 / 15), 3))
        if raised >= hour + HOUR:
            return
        number += 1
        overheating, since = OVERHEATS
        hall = chance.choice(list(HALLS))
        machine = chance.choice(HALLS[hall])
        if raised >= since and chance.random() < 0.3:
            hall, machine = "south", overheating
        arrival = received(chance, hall, raised)
        record = {
            "alarm_id": f"{hour:%d%H}-{number:03d}",
            "machine": machine,
            "raised_at": stamp(raised),
            "received_at": stamp(arrival),
            "severity": chance.choices([1, 2, 3, 4], weights=[8, 4, 2, 1])[0],
        }
        yield from sent(chance, "alarms", record, arrival, {"broken_record": {}, "wrong_type": {"severity": "high"}})


def sent(
    chance: random.Random, stream: str, record: dict[str, Any], arrival: datetime, changes: dict[str, dict[str, Any]]
) -> Iterator[Record]:
    """The record as it arrives: whole, with a fault, or twice."""
    faults = FAULTS[stream]
    fault = chance.choices([*faults, None], weights=[*faults.values(), 1 - sum(faults.values())])[0]
    if fault == "duplicate_id":
        yield arrival, record, None
        again = arrival + timedelta(seconds=round(chance.uniform(1, 60), 3))
        yield again, {**record, "received_at": again if stream == "readings" else stamp(again)}, fault
    else:
        yield arrival, {**record, **changes[fault]} if fault else record, fault


def stamp(instant: datetime) -> str:
    """A time to the millisecond, in UTC."""
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")


STREAMS: dict[str, Callable[[random.Random, datetime], Iterator[Record]]] = {"readings": readings, "alarms": alarms}


def arrivals(seed: int, stream: str, hour: datetime) -> list[Record]:
    """The records of a stream that reach the office in one hour, in order of arrival."""
    found: list[Record] = []
    happened = max(STARTED, hour - HOUR)  # nothing takes longer than an hour
    while happened <= hour:
        chance = random.Random(f"{seed} {stream} {happened:%Y-%m-%dT%H}")
        found += [r for r in STREAMS[stream](chance, happened) if hour <= r[0] < hour + HOUR]
        happened += HOUR
    return sorted(found, key=lambda record: record[0])


def write(path: Path, stream: str, records: list[Record]) -> None:
    """One file, visible when it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    if stream == "readings":
        pq.write_table(pa.Table.from_pylist([fields for _, fields, _ in records], schema=READINGS), partial)
    else:
        lines = [",".join(ALARMS)]
        for _, fields, fault in records:
            values = [str(fields[name]) for name in ALARMS]
            lines.append(",".join(values[:3] if fault == "broken_record" else values))
        partial.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    os.replace(partial, path)


def generate(landing: Path, start: datetime, hours: int, seed: int) -> Counter[tuple[str, str]]:
    """Write the files of so many hours of arrival; returns the records by stream and reason, "" if accepted."""
    counts: Counter[tuple[str, str]] = Counter()
    for hour in (start + n * HOUR for n in range(hours)):
        for stream, suffix in (("readings", "parquet"), ("alarms", "csv")):
            found = arrivals(seed, stream, hour)
            counts.update((stream, reason or "") for _, _, reason in found)
            write(landing / stream / f"{hour:%Y-%m-%dT%H}.{suffix}", stream, found)
    return counts


def whole_hour(text: str) -> datetime:
    """An hour in UTC, from 2026-03-02T06."""
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H").replace(tzinfo=UTC)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not an hour; write it like 2026-03-02T06") from None


def main() -> None:
    """Generate, and say what was written."""
    parser = argparse.ArgumentParser(description="Readings and alarms of a factory: a file per hour of arrival.")
    default = Path(__file__).resolve().parent / "landing"
    parser.add_argument("--landing", type=Path, default=default, metavar="DIR", help="default: landing/ beside this")
    parser.add_argument(
        "--from", dest="start", type=whole_hour, default=STARTED, metavar="HOUR", help=f"default {STARTED:%Y-%m-%dT%H}"
    )
    parser.add_argument("--hours", type=int, default=HOURS, metavar="N", help=f"default {HOURS}")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="another seed, other readings (default 1)")
    options = parser.parse_args()
    counts = generate(options.landing, options.start, options.hours, options.seed)
    for stream in STREAMS:
        of_stream = {reason: count for (name, reason), count in counts.items() if name == stream}
        total, good = sum(of_stream.values()), of_stream.pop("", 0)
        faults = ", ".join(f"{reason} {of_stream[reason]}" for reason in sorted(of_stream))
        refused = f", of which {total - good} will be refused: {faults}" if of_stream else ""
        print(f"{total} records of {stream} in {options.hours} hours of arrival{refused}")


if __name__ == "__main__":
    main()
