"""From a topic into tables: Tidegate's landing and ingest beside Spark's own ``kafka → from_json → Delta``.

    python -m infra.benchmarks.landing --records 1000000
    python -m infra.benchmarks.landing --records 10000000 --ways tidegate spark spark_raw flink

A real broker (the jars of ``make setup``) holds JSON records of 150 bytes in four partitions. Each way is a process of
its own, on two cores; CPU seconds are those of its whole tree and the broker's, start included. Spark's way judges
nothing: it parses, and appends what it has parsed; ``spark_raw`` appends the records as they came. ``flink`` is Flink
SQL's ``kafka → filesystem``; it is installed into an environment of its own when first asked for
(``TIDEGATE_FLINK_VENV`` names one that is there), and left out where it cannot be had. The rows that came out are
counted.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from infra.benchmarks.landing import flink
from infra.benchmarks.landing.ways import TOPIC, WAYS, pipeline_folder
from infra.benchmarks.rivals.meter import TreeMeter

from tidegate.examples.broker import Broker

_PARTITIONS = 4
_LIMIT_S = 3600


def main() -> None:
    """Run the ways, one after the other, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--ways", nargs="+", choices=[*WAYS, "flink"], default=["tidegate", "spark"])
    parser.add_argument("--folder", type=Path, default=Path(".tidegate/benchmarks/landing"))
    arguments = parser.parse_args()
    folder = arguments.folder.absolute()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    broker = Broker(folder / "broker")
    broker.start()
    try:
        _produce(broker.servers, arguments.records)
        pipeline_folder(folder, broker.servers)
        print(f"{arguments.records} records; CPU seconds of all processes, the broker's among them")
        print(f"{'way':<12}{'CPU s':>9}{'broker':>9}{'wall s':>9}{'MiB':>8}{'µs a record':>13}{'rows':>12}")
        for way in arguments.ways:
            try:
                command = _command(way, folder, broker.servers)
            except RuntimeError as error:
                print(f"{way:<12}left out: {error}", flush=True)
                continue
            _measure(way, command, folder, broker, arguments.records)
    finally:
        broker.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _command(way: str, folder: Path, servers: str) -> list[str]:
    """What runs a way; RuntimeError if it cannot be had."""
    if way != "flink":
        return [sys.executable, "-m", "infra.benchmarks.landing.ways", way, str(folder), servers]
    venv = Path(os.environ.get("TIDEGATE_FLINK_VENV", folder.parent / "flink-venv"))
    return flink.command(folder, servers, venv, lambda text: print(text, file=sys.stderr))


def _measure(way: str, command: list[str], folder: Path, broker: Broker, records: int) -> None:
    environment = {**os.environ, "JVM_ARGS": f"-Xmx{flink.HEAP}"}
    with _broker_cpu(broker) as broker_s:
        began = time.monotonic()
        with (folder / f"{way}.log").open("w") as log:
            child = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True, env=environment
            )
            with TreeMeter(child.pid) as meter:
                assert child.stdout is not None
                # Before it others may say what they like: Flink does.
                line = next((line for line in child.stdout if line.startswith("done ")), "")
                cpu_s, peak = meter.cpu_s(), meter.peak_bytes
            child.stdout.close()
            child.wait(_LIMIT_S)
        wall_s = time.monotonic() - began
    if not line:
        sys.exit(f"{way} failed:\n" + (folder / f"{way}.log").read_text()[-3000:])
    rows, cpu_s = int(line.split()[1]), cpu_s + broker_s[0]
    figures = f"{cpu_s:>9.1f}{broker_s[0]:>9.1f}{wall_s:>9.1f}{peak / 2**20:>8.0f}{cpu_s / records * 1e6:>13.2f}"
    print(f"{way:<12}{figures}{rows:>12}", flush=True)


@contextmanager
def _broker_cpu(broker: Broker) -> Iterator[list[float]]:
    import psutil

    def cpu_s() -> float:
        times = psutil.Process(broker.pid).cpu_times()
        return float(times.user + times.system)

    spent = [0.0]
    before = cpu_s()
    yield spent
    spent[0] = cpu_s() - before


def _produce(servers: str, records: int) -> None:
    """Orders of three hours, a minute late at most, in order of arrival in each partition."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics([NewTopic(TOPIC, _PARTITIONS, 1)]).values():
        made.result()
    producer = Producer(
        {"bootstrap.servers": servers, "linger.ms": 50, "queue.buffering.max.messages": 200_000, "log_level": 0}
    )
    start, span = datetime(2026, 1, 5, 8, tzinfo=UTC), timedelta(hours=3)
    for number in range(records):
        at = start + span * number / records
        value = {
            "order_id": f"o{number}",
            "placed_at": f"{at - timedelta(seconds=number * 7919 % 60):%Y-%m-%dT%H:%M:%S.%fZ}",
            "received_at": f"{at:%Y-%m-%dT%H:%M:%S.%fZ}",
            "customer": f"c{number * 31 % 10007}",
            "amount": number % 10_000 / 100,
        }
        while True:
            try:
                producer.produce(TOPIC, json.dumps(value), key=value["customer"], partition=number % _PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 10_000 == 0:
            producer.poll(0)
    producer.flush()


if __name__ == "__main__":
    main()
