"""Orders of a web shop, as they reach it: late, out of order, some of them twice, some of them broken.

Needs Python alone. Writes one file of JSON lines per hour of arrival (UTC)::

    landing/orders/2026-01-05T08.jsonl     arrived in [08:00, 09:00)

What makes an order late:

* most phones are online: the order arrives within seconds;
* the others send it when they have a connection again, minutes later, a few of them after half an hour or more;
* an order over 200 euros is checked by hand first, which takes up to ten minutes more.

What is wrong with one record in a hundred, and the reason by which Tidegate refuses it, is in `FAULTS`.

The same seed gives the same bytes, whichever hours are asked for: an hour's orders depend on the seed and the hour
alone. Change what you like, run it, and run the pipeline again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

OPENED = datetime(2026, 1, 5, 8, tzinfo=UTC)  # nobody orders before
HOURS = 6
HOUR = timedelta(hours=1)
LONGEST_DELAY = timedelta(hours=4)

# Orders a minute by the hour of the day (UTC): a rush at noon, quiet nights.
ORDERS_PER_MINUTE = [1, 1, 1, 1, 1, 2, 4, 8, 12, 14, 16, 20, 28, 22, 16, 14, 16, 20, 24, 20, 14, 8, 4, 2]
COUNTRIES = {"DE": 5, "FR": 4, "IT": 3, "PL": 3}  # relative frequencies
CUSTOMERS = 900  # of each country
PRODUCTS = {"tea": 9.5, "honey": 12.0, "café crème": 14.5, "kettle": 39.0, "teapot": 55.0, "samovar": 120.0}  # euros
CHECKED_FROM = 200.0  # euros

# What goes wrong, by the reason that Tidegate gives: shares of all records.
FAULTS = {
    "broken_record": 0.002,  # the line ends in the middle
    "missing_value": 0.002,  # no order_id
    "wrong_type": 0.002,  # an amount that is no number
    "too_early": 0.002,  # the phone's clock is an hour fast
    "too_late": 0.002,  # the phone's clock is a month slow
    "duplicate_id": 0.005,  # the phone heard no answer and sent the order again
}

Record = tuple[datetime, str, str | None]  # when it arrives, the line, the reason why it will be refused


def order(
    chance: random.Random, customers: random.Random, number: str, placed: datetime
) -> tuple[dict[str, Any], datetime]:
    """One order, and when it reaches the shop."""
    product = chance.choices(list(PRODUCTS), weights=[8, 6, 4, 4, 3, 1])[0]
    amount = round(PRODUCTS[product] * chance.choice([1, 1, 1, 2, 3]) * chance.uniform(0.8, 1.2), 2)
    delay_s = chance.expovariate(1 / 10)
    if chance.random() < 0.15:
        delay_s += chance.lognormvariate(5, 1)  # no connection: half of these take longer than 2.5 minutes
    if amount >= CHECKED_FROM:
        delay_s += chance.uniform(60, 600)
    received = placed + min(timedelta(seconds=round(delay_s, 3)), LONGEST_DELAY)
    country = chance.choices(list(COUNTRIES), weights=list(COUNTRIES.values()))[0]
    # Low numbers order more often.
    customer = f"{country}-{int(CUSTOMERS * customers.random() ** 2) + 1:03d}"
    fields = {"order_id": number, "placed_at": stamp(placed), "received_at": stamp(received), "customer": customer}
    return {**fields, "country": country, "product": product, "amount": amount}, received


def spoilt(fault: str, record: dict[str, Any], placed: datetime, received: datetime) -> str:
    """The line of a record that has the fault."""
    if fault == "broken_record":
        return json.dumps(record)[:-15]
    changes: dict[str, dict[str, Any]] = {
        "missing_value": {"order_id": None},
        "wrong_type": {"amount": "twelve"},
        "too_early": {"placed_at": stamp(received + HOUR)},
        "too_late": {"placed_at": stamp(placed - timedelta(days=30))},
    }
    return json.dumps({**record, **changes[fault]}, ensure_ascii=False)


def records(seed: int, hour: datetime) -> Iterator[Record]:
    """Everything that is sent because of the orders placed in one hour."""
    chance = random.Random(f"{seed} {hour:%Y-%m-%dT%H}")
    customers = random.Random(f"{seed} {hour:%Y-%m-%dT%H} customers")
    placed, number = hour, 0
    while True:
        placed += timedelta(seconds=round(chance.expovariate(ORDERS_PER_MINUTE[hour.hour] / 60), 3))
        if placed >= hour + HOUR:
            return
        number += 1
        record, received = order(chance, customers, f"{hour:%y%m%d%H}-{number:05d}", placed)
        fault = chance.choices([*FAULTS, None], weights=[*FAULTS.values(), 1 - sum(FAULTS.values())])[0]
        if fault is None or fault == "duplicate_id":
            yield received, json.dumps(record, ensure_ascii=False), None
        else:
            yield received, spoilt(fault, record, placed, received), fault
        if fault == "duplicate_id":
            again = received + timedelta(seconds=round(chance.uniform(5, 300), 3))
            yield again, json.dumps({**record, "received_at": stamp(again)}, ensure_ascii=False), fault


def stamp(instant: datetime) -> str:
    """A time to the millisecond, in UTC."""
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@lru_cache(16)
def sent(seed: int, hour: datetime) -> list[Record]:
    """The records of one hour's orders; kept, as the hours after it are asked for them, too."""
    return list(records(seed, hour))


def arrivals(seed: int, hour: datetime) -> list[Record]:
    """The records that reach the shop in one hour, in order of arrival."""
    found: list[Record] = []
    placed = max(OPENED, hour - LONGEST_DELAY - HOUR)
    while placed <= hour:
        found += [record for record in sent(seed, placed) if hour <= record[0] < hour + HOUR]
        placed += HOUR
    return sorted(found, key=lambda record: record[:2])


def generate(landing: Path, start: datetime, hours: int, seed: int) -> Counter[str]:
    """Write the files of so many hours of arrival; returns how many records each reason will refuse, "" for none."""
    folder = landing / "orders"
    folder.mkdir(parents=True, exist_ok=True)
    counts: Counter[str] = Counter()
    for hour in (start + n * HOUR for n in range(hours)):
        found = arrivals(seed, hour)
        counts.update(reason or "" for _, _, reason in found)
        final = folder / f"{hour:%Y-%m-%dT%H}.jsonl"
        partial = folder / f".{final.name}.partial"
        partial.write_text("".join(f"{line}\n" for _, line, _ in found), encoding="utf-8")
        os.replace(partial, final)  # whoever reads the folder never meets half a file
    return counts


def whole_hour(text: str) -> datetime:
    """An hour in UTC, from 2026-01-05T08."""
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H").replace(tzinfo=UTC)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not an hour; write it like 2026-01-05T08") from None


def main() -> None:
    """Generate, and say what was written."""
    parser = argparse.ArgumentParser(description="Orders of a web shop: one file of JSON lines per hour of arrival.")
    default = Path(__file__).resolve().parent / "landing"
    parser.add_argument("--landing", type=Path, default=default, metavar="DIR", help="default: landing/ beside this")
    parser.add_argument(
        "--from", dest="start", type=whole_hour, default=OPENED, metavar="HOUR", help=f"default {OPENED:%Y-%m-%dT%H}"
    )
    parser.add_argument("--hours", type=int, default=HOURS, metavar="N", help=f"default {HOURS}")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="another seed, other orders (default 1)")
    options = parser.parse_args()
    counts = generate(options.landing, options.start, options.hours, options.seed)
    good = counts.pop("", 0)
    faults = ", ".join(f"{reason} {counts[reason]}" for reason in sorted(counts))
    print(f"{good + counts.total()} records of {options.hours} hours of arrival")
    print(f"{counts.total()} of them will be refused: {faults}" if counts else "none of them will be refused")


if __name__ == "__main__":
    main()
