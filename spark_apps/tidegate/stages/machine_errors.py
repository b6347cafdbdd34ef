"""What a machine does to a run, in a sentence: a disk is full, memory is not enough, a JVM was killed."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from tempfile import gettempdir

from tidegate.store.places import outage

_AGAIN = "nothing of this run is visible"
_REMEDIES = {
    errno.ENOSPC: "free some space, and run it again",
    errno.EDQUOT: "free some of the quota, and run it again",
    errno.EROFS: "mount it for writing, and run it again",
    errno.EACCES: "give this user the permission, and run it again",
    errno.EPERM: "give this user the permission, and run it again",
    errno.EMFILE: "allow more open files (ulimit -n), and run it again",
    errno.ENFILE: "allow more open files, and run it again",
    errno.EIO: "the disk may be failing; once it is mended, run it again",
    errno.ESTALE: "mount it again, and run it again",
    errno.ENOMEM: "give it more memory, and run it again",
}
_MEMORY = "give it more memory (process_budget in pipeline.yml is a third the JVM's), or fewer intervals at once"


# The last line of the traceback of a task's Python, as Spark passes it on.
_TASK_OUT_OF_MEMORY = re.compile(r"^(?:pyarrow\.lib\.ArrowMemoryError|(?:numpy\.\S+)?MemoryError)\b", re.MULTILINE)
# As the JVM says it, who may have met it where it shuffles, too.
_TOLD = {os.strerror(number): number for number in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)}
_JVM_FAULT = re.compile(rf"java\.(?:io|nio)\.[\w.]+Exception: (?:[^\n:]*: )?({'|'.join(map(re.escape, _TOLD))})")
# What a client meets whose server has died, or was stopped while it answered: nobody there, an answer that breaks off,
# or another one that does not know its session.
_SERVER_LOST = re.compile(
    r"StatusCode\.UNAVAILABLE|RETRIES_EXCEEDED|StatusCode\.CANCELLED\s+details = \"Stream removed"
    r"|INVALID_HANDLE\.(?:SESSION_(?:NOT_FOUND|CHANGED|CLOSED)|OPERATION_(?:NOT_FOUND|ABANDONED))"
)
_WORKER_LOST = re.compile(r"Python worker (?:exited unexpectedly|failed to connect back)|ExecutorLostFailure")
_TASK_FAULT = re.compile(r"^(?:\w+Error): \[Errno (\d+)\] ([^:\n]+)(?:: '([^'\n]+)')?", re.MULTILINE)


def of_the_machine(error: BaseException) -> str | None:
    """The sentence, if the machine is what failed; None for anything else."""
    for one in _chain(error):
        kind = type(one).__name__
        text = str(one)
        if isinstance(one, MemoryError) or kind == "ArrowMemoryError":
            return f"out of memory; {_AGAIN}: {_MEMORY}, and run it again"
        if "java.lang.OutOfMemoryError" in text or _TASK_OUT_OF_MEMORY.search(text):
            return f"Spark ran out of memory; {_AGAIN}: {_MEMORY}, and run it again"
        if _WORKER_LOST.search(text):
            return f"workers of Spark were killed, again and again; {_AGAIN}: {_MEMORY}, and run it again"
        if (fault := _TASK_FAULT.search(text)) and int(fault[1]) in _REMEDIES:
            return f"a task: {fault[3] or ''}: {fault[2]}; {_AGAIN}: {_REMEDIES[int(fault[1])]}".replace(": :", ":")
        if fault := _JVM_FAULT.search(text):
            return f"Spark: {fault[1]}, in the warehouse or in {gettempdir()}; {_AGAIN}: {_REMEDIES[_TOLD[fault[1]]]}"
        if kind in ("Py4JNetworkError", "Py4JError", "ConnectionRefusedError", "ConnectionResetError"):
            return f"Spark's JVM has ended, killed or out of memory; {_AGAIN}: {_MEMORY}, and run it again"
        if type(one).__module__.startswith(("pyspark.", "grpc")) and _SERVER_LOST.search(text):
            return f"the Spark Connect server has ended, or is out of reach; {_AGAIN}: once it is up, run it again"
        if why := outage(one):
            return f"the object store: {why}; {_AGAIN}: check its address and your keys, and run it again"
        if isinstance(one, OSError) and one.errno in _REMEDIES:
            where = f"{one.filename}: " if one.filename else ""
            return f"{where}{one.strerror or text}; {_AGAIN}: {_REMEDIES[one.errno]}"
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, and what it came from."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__
