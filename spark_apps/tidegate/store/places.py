"""Where files are: in folders, or in an object store.

A local place is pathlib's ``Path``. An ``ObjectPath`` has the same methods, as far as they are needed, over pyarrow's
file systems (``s3://``, ``gs://``, ``abfs://``), so that nobody has to ask which of the two it is. Credentials come
from the environment and its files alone, as pyarrow and delta-rs find them; a place holds none.
"""

from __future__ import annotations

import atexit
import gc
import io
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache, total_ordering
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, TypeAlias, TypeVar, cast

import pyarrow as pa

from tidegate.declarations.errors import UserError
from tidegate.declarations.names import NO_KEYS, STORES

if TYPE_CHECKING:
    from pyarrow import fs

_URI = re.compile(r"([a-z0-9+]+)://([^/]*)/*(.*)", re.DOTALL)
_MAGIC = re.compile(r"[*?\[]")
_OUTAGE = re.compile("AWS Error|google::cloud|Azure|Generic (S3|GCS) error")
_PATIENCE_S, _ATTEMPTS = 30, 5
_READ_AHEAD_BYTES = 4 << 20
_AT_ONCE = 4

T = TypeVar("T")
R = TypeVar("R")


class Status(NamedTuple):
    """Of what ``os.stat`` says, what is known of an object."""

    st_size: int
    st_mtime: float
    st_mtime_ns: int


@total_ordering
@dataclass(frozen=True)
class ObjectPath:
    """A file or folder of an object store: ``root`` is ``s3://bucket``, ``key`` what comes behind, without slashes
    at its ends. A file appears when it has been written whole; a folder is there as long as something is in it.
    """

    root: str
    key: str = ""

    def __str__(self) -> str:
        return f"{self.root}/{self.key}".rstrip("/")

    def __lt__(self, other: ObjectPath) -> bool:
        return str(self) < str(other)

    def __truediv__(self, behind: str | PurePosixPath) -> ObjectPath:
        return ObjectPath(self.root, str(PurePosixPath(self.key) / str(behind)))

    @property
    def name(self) -> str:
        """What is behind the last slash."""
        return PurePosixPath(self.key).name

    @property
    def suffix(self) -> str:
        """As pathlib has it."""
        return PurePosixPath(self.key).suffix

    @property
    def parent(self) -> ObjectPath:
        """The folder that it is in; a bucket's is the bucket."""
        above = str(PurePosixPath(self.key).parent)
        return ObjectPath(self.root, "" if above == "." else above)

    def absolute(self) -> ObjectPath:
        """Itself."""
        return self

    def inner(self) -> tuple[str, fs.FileSystem]:
        """What pyarrow calls it, and the file system that knows it by that name."""
        system, base = _file_system(self.root, os.getpid())
        return f"{base}/{self.key}".rstrip("/"), system

    def exists(self) -> bool:
        """Whether there is a file, or a folder with something in it."""
        return bool(self._info().type.name != "NotFound")

    def is_dir(self) -> bool:
        """Whether there is something in it."""
        return bool(self._info().type.name == "Directory")

    def is_file(self) -> bool:
        """Whether it is a file."""
        return bool(self._info().type.name == "File")

    def stat(self) -> Status:
        """Size and time of the last change; FileNotFoundError. Cost: a request."""
        info = self._info()
        if info.type.name != "File":
            raise FileNotFoundError(f"{self} does not exist")
        return _status(info)

    def touched(self) -> float:
        """When something in the folder, however deep, was last written; 0.0 if it is empty."""
        from pyarrow import fs

        path, system = self.inner()
        found = system.get_file_info(fs.FileSelector(path, allow_not_found=True, recursive=True))
        return max((_status(info).st_mtime for info in found), default=0.0)

    def version(self) -> str:
        """What the store calls the content that is there now (its ETag). Cost: a request."""
        path, system = self.inner()
        with system.open_input_stream(path, compression=None) as file:
            return str(file.metadata()["ETag"], "ascii")

    def glob(self, pattern: str) -> Iterator[ObjectPath]:
        """What matches a pattern without ``**``, by name. Cost: a listing of each folder that may hold some."""
        yield from (path for path, _ in self.listed(pattern, {}))

    def listed(self, pattern: str, known: dict[ObjectPath, list[fs.FileInfo]]) -> Iterator[tuple[ObjectPath, Status]]:
        """The same with sizes and times; ``known``: listings that were made before, added to."""
        first, _, rest = pattern.partition("/")
        if rest and not _MAGIC.search(first):
            yield from (self / first).listed(rest, known)
            return
        if self not in known:
            known[self] = self._infos()
        for info in known[self]:
            if not fnmatchcase(info.base_name, first):
                continue
            if rest:
                yield from (self / info.base_name).listed(rest, known)
            else:
                yield self / info.base_name, _status(info)

    def mkdir(self, mode: int = 0, parents: bool = False, exist_ok: bool = False) -> None:
        """Nothing: a folder is there as soon as a file is in it."""

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the file."""
        path, system = self.inner()
        try:
            system.delete_file(path)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def read_bytes(self) -> bytes:
        """All of it."""
        path, system = self.inner()
        with system.open_input_file(path) as file:
            return cast(bytes, file.read())

    def read_text(self) -> str:
        """All of it, as UTF-8."""
        return self.read_bytes().decode()

    def write_bytes(self, content: bytes | pa.Buffer) -> None:
        """Write the file whole."""
        with output(self) as file:
            file.write(content)

    def write_text(self, content: str) -> None:
        """Write the file whole, as UTF-8."""
        self.write_bytes(content.encode())

    def _info(self) -> fs.FileInfo:
        path, system = self.inner()
        return system.get_file_info(path)

    def _infos(self) -> list[fs.FileInfo]:
        from pyarrow import fs

        path, system = self.inner()
        found = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return sorted(found, key=lambda info: info.base_name)


Place: TypeAlias = Path | ObjectPath


def place(where: str | Place) -> Place:
    """A path, or a URI of an object store; UserError if its scheme is none that is known.

    >>> place("s3://bucket/a//b/").name, place("/tmp/x").name
    ('b', 'x')
    """
    if not isinstance(where, str):
        return where
    found = _URI.fullmatch(where)
    if found is None:
        return Path(where)
    scheme, bucket, key = found.groups()
    if scheme == "file":
        return Path("/", key)
    if scheme == "s3" and "@" in bucket:
        raise UserError(NO_KEYS)
    if scheme not in STORES or not bucket:
        raise UserError(f"{where} is no place for files: give a path, or a URI like s3://bucket/folder")
    return ObjectPath(f"{scheme}://{bucket}", str(PurePosixPath(key)) if key else "")


def located(where: str | Place) -> tuple[str, fs.FileSystem | None]:
    """What pyarrow is to be given: path and file system, None for this machine's."""
    if isinstance(where, str) and "://" not in where:
        return where, None
    found = place(where)
    return found.inner() if isinstance(found, ObjectPath) else (str(found), None)


def output(where: Place) -> pa.NativeFile:
    """A stream to a new file; in an object store it is there once the stream is closed."""
    if isinstance(where, ObjectPath):
        path, system = where.inner()
        return system.open_output_stream(path, compression=None)
    return pa.OSFile(str(where), "wb")


def mapped(where: Place) -> pa.NativeFile:
    """A file to read at random: mapped, where it is local; an object is fetched whole."""
    return pa.BufferReader(where.read_bytes()) if isinstance(where, ObjectPath) else pa.memory_map(str(where))


def unmapped(where: Place) -> pa.NativeFile:
    """A file to read from its begin to its end."""
    if isinstance(where, ObjectPath):
        path, system = where.inner()
        return system.open_input_stream(path, compression=None)
    return pa.OSFile(str(where))


def octets(where: Place) -> io.BufferedReader:
    """A file to read as bytes, from anywhere; of an object only what is asked for travels, megabytes at a time."""
    if isinstance(where, ObjectPath):
        path, system = where.inner()
        return io.BufferedReader(cast(Any, system.open_input_file(path)), _READ_AHEAD_BYTES)
    return cast(io.BufferedReader, cast(BinaryIO, open(where, "rb")))


def link(file: Place, target: Place) -> None:
    """Have a file's content under a second name, as new by its age (by which upkeep tells what a dead run has left).

    A local file is not copied, an object by the store.
    """
    if isinstance(file, ObjectPath) and isinstance(target, ObjectPath):
        (source, system), (copy, _) = file.inner(), target.inner()
        system.copy_file(source, copy)
    else:
        os.link(cast(Path, file), cast(Path, target))
        os.utime(cast(Path, target))


def fetch(file: Place, target: Path) -> None:
    """Have a file of any store here, to read: a link, if it is here already."""
    if isinstance(file, ObjectPath):
        with octets(file) as source, open(target, "wb") as copy:
            shutil.copyfileobj(source, copy, _READ_AHEAD_BYTES)
    else:
        os.link(file, target)


def move(file: Place, target: Place) -> None:
    """Put a file in the place of another of the same store, in one step; an object is copied, by the store."""
    if isinstance(file, ObjectPath):
        link(file, target)
        file.unlink()
    else:
        os.replace(file, cast(Path, target))


def remove_tree(folder: Place) -> None:
    """Remove a folder and all in it, if it is there."""
    if isinstance(folder, ObjectPath):
        path, system = folder.inner()
        system.delete_dir_contents(path, missing_dir_ok=True)
    else:
        shutil.rmtree(folder, ignore_errors=True)


def each(within: Place, work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """What ``work`` makes of each item, in their order: a few at once where each waits for a network.

    On a disk, handing small files over to threads takes longer than reading them.
    """
    if not isinstance(within, ObjectPath):
        return [work(item) for item in items]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(work, items))


def storage_options(where: Place) -> dict[str, str] | None:
    """What delta-rs has to be told beside what it finds in the environment."""
    if not isinstance(where, ObjectPath) or not where.root.startswith("s3:"):
        return None
    # Keys in files, as those that are of a profile, are looked for where there is an endpoint, too.
    options, endpoint = {"AWS_FORCE_CREDENTIAL_LOAD": "true"}, _endpoint()
    if endpoint:
        options |= {"AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": str(endpoint.startswith("http:")).lower()}
    return options


def local_folder(where: Place) -> Path:
    """Where what belongs to a place, but only this machine needs, is kept: the place itself, if it is local.

    Else a folder of ``TIDEGATE_LOCAL``, by default that of the user's state (``~/.local/state/tidegate``).
    """
    if isinstance(where, Path):
        return where
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(os.environ.get("TIDEGATE_LOCAL") or Path(state, "tidegate"), *str(where).replace("://", "/").split("/"))


def outage(error: BaseException) -> str | None:
    """What is said if it is an object store that could not be asked, or refused; None for any other error."""
    return said(error) if isinstance(error, OSError) and _OUTAGE.search(str(error)) else None


def said(error: BaseException) -> str:
    """An error's text in a line: without what a store has answered word for word, which may hold what it was asked."""
    return " ".join(re.sub(r"\x1b\[\d+m|↳", "", str(error)).partition("<")[0].split())[:300]


def refuse_outage(where: Place, error: BaseException) -> None:
    """UserError if it is the store that could not be asked: of what is in the file, that says nothing."""
    if isinstance(where, ObjectPath) and (why := outage(error)):
        raise UserError(f"{where} could not be read: {why}; nothing of this run is visible: run it again")


def _endpoint() -> str:
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""


@lru_cache(64)
def _file_system(root: str, process: int) -> tuple[fs.FileSystem, str]:
    """The file system of a bucket, and what it calls the bucket. Its threads do not survive a fork."""
    from pyarrow import fs

    if root.startswith("s3:"):
        # At the end of the process, or it may hang or abort (apache/arrow #34314, #50188).
        atexit.register(_finalize, process)
        scheme, _, endpoint = _endpoint().rpartition("://")
        bucket = root.removeprefix("s3://")
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        system = fs.S3FileSystem(
            region=region if region or endpoint else fs.resolve_s3_region(bucket),
            endpoint_override=endpoint or None,
            scheme=scheme or "https",
            request_timeout=_PATIENCE_S,
            retry_strategy=fs.AwsStandardS3RetryStrategy(_ATTEMPTS),
            allow_delayed_open=True,  # a small file takes one request, not three
        )
        return system, bucket
    system, base = fs.FileSystem.from_uri(root)
    return system, base.strip("/")


def _finalize(process: int) -> None:
    from pyarrow import fs

    if os.getpid() == process:  # not in one that was forked from it
        _file_system.cache_clear()
        gc.collect()
        fs.finalize_s3()


def _status(info: fs.FileInfo) -> Status:
    return Status(info.size or 0, (info.mtime_ns or 0) / 1e9, info.mtime_ns or 0)
