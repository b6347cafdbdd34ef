#!/usr/bin/env -S python3 -SE
"""Hands a command to a warm application host (warm_host.py) and waits for it: the same output, the same exit status.

``bin/warm_python`` takes Python's ``-m module …`` or ``application.py …``: so one environment variable chooses between
warm and cold starts, and the DAGs know nothing of it. What a host cannot do (another option of Python, no free host) is
started as ever.

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


def request(words):
    """Python's arguments as a request; None for anything but ``-m module`` and an application."""
    if len(words) > 1 and words[0] == "-m":
        return {"module": words[1], "arguments": words[2:]}
    if words and words[0].endswith(".py"):
        return {"script": words[0], "arguments": words[1:]}
    return None


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
    python = os.environ.get("TIDEGATE_WARM_PYTHON", "python3")
    asked = request(words)
    folder = os.environ.get("TIDEGATE_WARM_HOSTS")
    path = None
    if asked and folder and "TIDEGATE_WARM_PYTHON" in os.environ:
        path, _lock = free_host(folder, int(os.environ.get("TIDEGATE_SPARK_SLOTS", "1")))
    connection = connected(path) if path else None
    if connection is None:
        os.execvp(python, [python, *words])
    asked["environment"], asked["folder"] = dict(os.environ), os.getcwd()
    message = json.dumps(asked).encode()
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
