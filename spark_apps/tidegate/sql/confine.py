"""What a process may still do to the machine once it serves strangers: read a few folders, and nothing else.

Source: Linux' Landlock (Documentation/userspace-api/landlock.rst). It needs no privilege, binds root as well, holds
for all later children, and cannot be taken back. Where a kernel lacks it, the checks of statements remain.
"""

from __future__ import annotations

import ctypes
import os
import resource
import site
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG = 1
_PATH_BENEATH = 1
_NO_NEW_PRIVILEGES = 38
_READ_FILE, _READ_FOLDER = 1 << 2, 1 << 3
# By version: the rights over files that a kernel knows of, to be all denied but those that a rule grants.
_KNOWN_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
NETWORK_SINCE, _ALL_TCP = 4, 0b11
SCOPES_SINCE, _ALL_SCOPES = 6, 0b11
_SYSTEM = {Path(path) for path in ("/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/localtime", "/dev/urandom")}


def landlock_version() -> int:
    """Which version of Landlock the kernel has; less than 1 if it has none, or it is off."""
    kernel = ctypes.CDLL(None, use_errno=True)
    return int(kernel.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION_FLAG))


def confine(folders: Iterable[Path], siblings: bool = False, network: bool = False) -> bool:
    """Let this process and its children only read ``folders`` and what Python needs; False if the kernel cannot.

    Nothing can be written, made, removed or executed, no TCP port be opened or called (but with ``network``), and
    no process be signalled but the children; with ``siblings``, none that could not be before. Sockets and files
    that are open already stay so. All threads must be started afterwards. It can be called again, to allow less.
    """
    version = landlock_version()
    if version < 1:
        return False
    kernel = ctypes.CDLL(None, use_errno=True)
    files = next(rights for since, rights in sorted(_KNOWN_RIGHTS.items(), reverse=True) if since <= version)
    fields = [files, _ALL_TCP if version >= NETWORK_SINCE and not network else 0, 0 if siblings else _ALL_SCOPES]
    known = fields[: 1 + (version >= NETWORK_SINCE) + (version >= SCOPES_SINCE)]
    attributes = struct.pack(f"={len(known)}Q", *known)
    rules = _called(kernel.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0))
    for path in {*_SYSTEM, *_python(), *folders}:
        _allow_reading(kernel, rules, path)
    _called(kernel.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    _called(kernel.syscall(_RESTRICT_SELF, rules, 0))
    os.close(rules)
    return True


def limit(more_bytes: int) -> None:
    """Bound the memory that this process may take beside what it has, and keep it from leaving it in a file.

    What it has counts as the kernel counts it: with what its allocators have set aside and not used yet.
    """
    status = Path("/proc/self/status").read_text()
    held = next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmData:"))
    for kind, most in ((resource.RLIMIT_DATA, held + more_bytes), (resource.RLIMIT_CORE, 0)):
        _, hard = resource.getrlimit(kind)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))


def _python() -> set[Path]:
    """The folders that an import can lead to."""
    own = Path(__file__).resolve().parents[1]
    return {Path(sys.prefix), Path(sys.base_prefix), *map(Path, site.getsitepackages()), own}


def _allow_reading(kernel: ctypes.CDLL, rules: int, path: Path) -> None:
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # not there, or not ours to read: nothing to allow
    try:
        rights = _READ_FILE | _READ_FOLDER if path.is_dir() else _READ_FILE
        rule = struct.pack("=Qi", rights, handle)
        _called(kernel.syscall(_ADD_RULE, rules, _PATH_BENEATH, rule, 0))
    finally:
        os.close(handle)


def _called(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), "Landlock refused: " + os.strerror(ctypes.get_errno()))
    return result
