#!/usr/bin/env -S python3 -SE
"""Hands a command to a warm application host (warm_host.py) and waits for it: the same output, the same exit status.

Two names lead here. ``bin/spark3-submit`` takes spark-submit's arguments and ``bin/warm_python`` Python's ``-m module
…``: so Airflow's connection and one environment variable choose between warm and cold starts, and the DAGs know nothing
of it. What a host cannot do (another option of spark-submit, no free host) is started as ever.

The standard library alone, and as little of it as possible: this is what every task starts.
"""

import array
import fcntl
import json
import os
import socket
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.realpath(__file__))
PATIENCE_S = 60.0
# Of spark-submit's options those that a host understands; each takes one value.
UNDERSTOOD = ("--master", "--name", "--deploy-mode", "--conf")


def submission(words):
    """spark-submit's arguments as a request; None if there is an option that only spark-submit knows."""
    settings = {}
    while words and words[0].startswith("-"):
        if words[0] not in UNDERSTOOD or len(words) < 2:
            return None
        option, value = words[0], words[1]
        if option == "--conf":
            key, _, value = value.partition("=")
            settings[key] = value
        else:
            settings[
                {"--master": "spark.master", "--name": "spark.app.name"}.get(option, "spark.submit.deployMode")
            ] = value
        words = words[2:]
    local = (
        settings.get("spark.master", "").startswith("local") and settings.get("spark.submit.deployMode") != "cluster"
    )
    if not words or not words[0].endswith(".py") or not local:
        return None
    return {"settings": settings, "script": words[0], "arguments": words[1:]}


def module(words):
    """Python's arguments as a request; None for anything but ``-m module``."""
    if len(words) < 2 or words[0] != "-m":
        return None
    return {"settings": None, "module": words[1], "arguments": words[2:]}


def free_host(folder, hosts):
    """The socket's path of a host that nobody uses, and the lock that says so; (None, None) if all are at work."""
    os.makedirs(folder, exist_ok=True)
    for number in range(hosts):
        lock = os.open(os.path.join(folder, f"host-{number}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return os.path.join(folder, f"host-{number}.sock"), lock
        except BlockingIOError:
            os.close(lock)
    return None, None


def connected(path):
    """A connection to the host at ``path``, which is started if it is not there; None if it does not come."""
    deadline, host = time.monotonic() + PATIENCE_S, None
    folder, name = os.path.split(path)
    # A socket's address has a hundred characters at most, a path may have more.
    short = f"/proc/self/fd/{os.open(folder, os.O_DIRECTORY | os.O_CLOEXEC)}/{name}"
    while time.monotonic() < deadline:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(short)
            return connection
        except OSError:
            connection.close()
        if host is None:
            with open(path.replace(".sock", ".log"), "ab") as log:
                host = subprocess.Popen(
                    [os.environ["TIDEGATE_WARM_PYTHON"], os.path.join(HERE, "warm_host.py"), path],
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                )  # fmt: skip
        elif host.poll() is not None:
            return None
        time.sleep(0.02)
    return None


def main():
    """Ask a host; if there is none, become the command itself."""
    words = sys.argv[1:]
    submitted = os.path.basename(sys.argv[0]) == "spark3-submit"
    python = os.environ.get("TIDEGATE_WARM_PYTHON", "python3")
    cold = ["spark-submit", *words] if submitted else [python, *words]
    request = submission(words) if submitted else module(words)
    folder = os.environ.get("TIDEGATE_WARM_HOSTS")
    path = None
    if request and folder and "TIDEGATE_WARM_PYTHON" in os.environ:
        path, _lock = free_host(folder, int(os.environ.get("TIDEGATE_SPARK_SLOTS", "1")))
    connection = connected(path) if path else None
    if connection is None:
        os.execvp(cold[0], cold)
    request["environment"], request["folder"] = dict(os.environ), os.getcwd()
    message = json.dumps(request).encode()
    descriptors = array.array("i", [0, 1, 2]).tobytes()
    connection.sendmsg([len(message).to_bytes(8, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
    connection.sendall(message)
    answer = connection.recv(1)
    if not answer:
        print(
            f"tidegate: the application's host process ended; see its log {path.replace('.sock', '.log')}",
            file=sys.stderr,
        )
        return 1
    return answer[0]


if __name__ == "__main__":
    sys.exit(main())
