"""An object store as DuckDB reads it: through pyarrow's file system; its own needs an extension, and a download."""

from __future__ import annotations

import os
from pathlib import Path

import duckdb
from fsspec.implementations.arrow import ArrowFSWrapper

from tidegate.store.places import ObjectPath, Place

_NAMES = ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/ssl", "/run/systemd/resolve")


def give(connection: duckdb.DuckDBPyConnection, folder: Place) -> None:
    """Let a connection read what is in the store of a folder, by URIs; nothing to do where it is local."""
    if isinstance(folder, ObjectPath):
        scheme = folder.root.partition("://")[0]
        bucket, system = ObjectPath(folder.root).inner()
        connection.register_filesystem(_file_system(scheme, folder.root, bucket)(system))


def needed_files(folder: Place) -> list[Path]:
    """What a process has to read of this machine to reach the store: names, certificates, its user's keys."""
    if not isinstance(folder, ObjectPath):
        return []
    given = [os.environ.get(name) for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "AWS_CA_BUNDLE")]
    return [*map(Path, _NAMES), Path.home() / ".aws", *(Path(name) for name in given if name)]


def _file_system(scheme: str, root: str, bucket: str) -> type[ArrowFSWrapper]:
    class Objects(ArrowFSWrapper):  # type: ignore[misc]
        protocol = scheme

        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            return (bucket + path.removeprefix(root) if path.startswith(root) else path).rstrip("/")

    return Objects
