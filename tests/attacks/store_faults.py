"""Single requests to a store that fail: the run goes on or ends in one sentence, and the next has the same rows.

moto's S3 runs in this process, behind an application that answers one request as a store does on a bad day. What the
bucket holds is put back before each try, which takes no request.
"""

from __future__ import annotations

import random
import shutil
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from moto.s3.models import s3_backends
from tests.attacks.faults import TRIED, DbtOnce, Scenario, error_of, files, hours, sentence
from tests.objects.server import a_bucket, upload
from werkzeug.serving import make_server

from tidegate.cli.init import init
from tidegate.declarations import load_pipeline
from tidegate.declarations.models import Pipeline
from tidegate.stages import publish
from tidegate.stages.run import STAGES
from tidegate.store.places import ObjectPath

HOURS = (Scenario(9, 10, 11, STAGES), Scenario(9, 23, 24, TRIED))
"""With data, and the end of a day."""
BEFORE, AFTER = "is not carried out", "is carried out"
ERRORS = {
    # An answer that is no error by its status: https://docs.aws.amazon.com/AmazonS3/latest/API/API_CopyObject.html
    "200 InternalError": "200 OK",
    "403 AccessDenied": "403 Forbidden",
    "409 ConditionalRequestConflict": "409 Conflict",
    "412 PreconditionFailed": "412 Precondition Failed",
    "500 InternalError": "500 Internal Server Error",
    "503 SlowDown": "503 Slow Down",
}
LASTING = ("403 AccessDenied",)
"""What no client asks again for: such a run ends. All others are over with the next request."""

Answer = Iterable[bytes]
Start = Callable[..., Any]


@dataclass
class Store:
    """A store with one bucket; request number ``fails`` meets the ``kind``-th of the faults that it can have."""

    fails: int = 0
    kind: int = 0
    requests: int = field(default=0, init=False)
    met: str = field(default="", init=False)
    name: str = field(default="", init=False)
    _one: threading.Lock = field(default_factory=threading.Lock, init=False)

    @cached_property
    def _moto(self) -> Callable[[dict[str, Any], Start], Answer]:
        application: Callable[[dict[str, Any], Start], Answer] = DomainDispatcherApplication(create_backend_app)
        return application

    def begin(self, fails: int = 0, kind: int = 0) -> None:
        """Count from one again."""
        self.fails, self.kind, self.requests, self.met = fails, kind, 0, ""

    def held(self) -> dict[str, list[Any]]:
        """What is in the bucket now."""
        keys = s3_backends["123456789012"]["aws"].buckets[self.name].keys
        found = {key: list(keys.getlist(key)) for key in keys}
        for key in (key for own in found.values() for key in own):
            key.dispose = lambda garbage=False: None  # its content outlives its place in the bucket
        return found

    def hold(self, what: dict[str, list[Any]]) -> None:
        """Put that back."""
        bucket = s3_backends["123456789012"]["aws"].buckets[self.name]
        bucket.multiparts.clear()
        bucket.keys = type(bucket.keys)()
        for key, own in what.items():
            bucket.keys.setlist(key, list(own))

    def digest(self, where: str) -> bytes:
        """Of a file's content, without a request."""
        key = where.removeprefix(f"s3://{self.name}/")
        return str(s3_backends["123456789012"]["aws"].buckets[self.name].keys[key].etag).encode()

    def __call__(self, environ: dict[str, Any], start: Start) -> Answer:
        """Answer a request, as WSGI has it."""
        with self._one:
            self.requests += 1
            fails = self.requests == self.fails
        if not fails:
            return self._moto(environ, start)
        kinds = _kinds(environ)
        kind, when = kinds[self.kind % len(kinds)]
        self.met = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}: {kind}, {when}"
        told: list[Any] = []
        body = b"".join(self._moto(environ, lambda *head: told.extend(head))) if when == AFTER else b""
        if kind in ERRORS:
            code = kind.partition(" ")[2]
            body = b"" if environ["REQUEST_METHOD"] == "HEAD" else f"<Error><Code>{code}</Code></Error>".encode()
            start(ERRORS[kind], [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
            return [body]
        return _cut(environ, body if kind == "half an answer" else b"", told, start)


def _kinds(environ: dict[str, Any]) -> list[tuple[str, str]]:
    """The faults that a request can have."""
    method = environ["REQUEST_METHOD"]
    kinds = [(kind, BEFORE) for kind in ("403 AccessDenied", "500 InternalError", "503 SlowDown", "reset")]
    if method != "HEAD":
        kinds += [("reset", AFTER), ("half an answer", AFTER)]
    if "HTTP_IF_NONE_MATCH" in environ and method == "PUT":
        kinds += [("412 PreconditionFailed", AFTER), ("409 ConditionalRequestConflict", BEFORE)]
    if "HTTP_X_AMZ_COPY_SOURCE" in environ or (method == "POST" and "uploadId" in environ["QUERY_STRING"]):
        kinds += [("200 InternalError", BEFORE)]
    return kinds


def _cut(environ: dict[str, Any], body: bytes, told: Sequence[Any], start: Start) -> Iterator[bytes]:
    """Half of an answer, and no connection any more."""
    if body:
        start(*told[:2])
        yield body[: len(body) // 2]
    # Closed without lingering, a connection is reset.
    environ["werkzeug.socket"].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    raise ConnectionResetError


class _Quiet(MotoRequestHandler):
    def log(self, *_: Any) -> None: ...


@contextmanager
def a_store() -> Iterator[tuple[Store, ObjectPath]]:
    """A store that ends with the block, and its bucket."""
    store = Store()
    server = make_server("127.0.0.1", 0, store, threaded=True, request_handler=_Quiet)  # type: ignore[arg-type]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with a_bucket(f"http://127.0.0.1:{server.server_port}") as bucket:
            store.name = bucket.root.removeprefix("s3://")
            yield store, bucket
    finally:
        server.shutdown()
        server.server_close()


@dataclass
class Tally:
    """What came of the tries."""

    tries: int = 0
    survived: int = 0
    faults: list[str] = field(default_factory=list)


def attack(seed: int, folder: Path, tries: int = 8, stages: Sequence[str] = STAGES) -> tuple[int, list[str]]:
    """Of each stage of an hour so many requests, spread over it, each met by one of its faults; how many were met."""
    tally, chance = Tally(), random.Random(seed)
    scenario = HOURS[seed % len(HOURS)]
    with a_store() as (store, bucket), pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDEGATE_LOCAL", str(folder / "local"))
        patch.setattr(publish, "Dbt", DbtOnce)
        pipeline = _stored(folder, bucket)
        where = Place(store, bucket / "wh", folder / "local", pipeline)
        assert where.run(scenario.first, scenario.start, TRIED) is None
        for stage in (stage for stage in scenario.stages if stage in stages):
            _try_stage(where, scenario, stage, chance, tries, tally)
            print(
                f"up to {stage}: {tally.tries} requests, {tally.survived} runs went on",
                *tally.faults,
                sep="\n",
                flush=True,
            )
    return tally.tries, tally.faults


@dataclass(frozen=True)
class Place:
    """Where a pipeline's tables are, and what it keeps on the machine."""

    store: Store
    root: ObjectPath
    local: Path
    pipeline: Pipeline

    def run(self, start: int, end: int, stages: Sequence[str]) -> BaseException | None:
        """Run stages; what they ended with."""
        return error_of(self.pipeline, self.root, hours(self.pipeline, start, end), stages)

    def files(self) -> dict[tuple[str, str], list[bytes]]:
        """As on a disk."""
        self.store.begin()
        return files(self.pipeline, self.root, self.store.digest)

    def put_back(self, held: dict[str, list[Any]], kept: Path) -> None:
        """What there was, in the store and here."""
        self.store.hold(held)
        shutil.rmtree(self.local)
        shutil.copytree(kept, self.local)


def _try_stage(where: Place, scenario: Scenario, stage: str, chance: random.Random, tries: int, tally: Tally) -> None:
    store, kept, span = where.store, where.local.with_name("kept"), (scenario.start, scenario.end)
    shutil.copytree(where.local, kept)
    before = store.held()
    store.begin()
    assert where.run(*span, [stage]) is None
    requests, expected, after = store.requests, where.files(), store.held()
    # One from each of so many equal parts.
    parts = min(tries, requests)
    for part in range(parts):
        fails = chance.randrange(part * requests // parts, (part + 1) * requests // parts) + 1
        where.put_back(before, kept)
        store.begin(fails, chance.randrange(840))
        error = where.run(*span, [stage])
        at = f"{stage} of hour {span[0]}: request {fails} of {requests} ({store.met})"
        tally.tries += bool(store.met)
        tally.survived += bool(store.met) and error is None
        if error is not None:
            if not (said := sentence(error)):
                tally.faults.append(f"{at}: {type(error).__name__}: {error}")
            elif not any(kind in store.met for kind in LASTING):
                tally.faults.append(f"{at}: over with the next request, and the run ended: {said}")
            store.begin()
            if again := where.run(*span, [stage]):
                tally.faults.append(f"{at}: the next run ended with {again}")
        if where.files() != expected:
            tally.faults.append(f"{at}: {'the next run has ' if error else ''}other rows")
    where.put_back(after, kept)
    shutil.rmtree(kept)


def _stored(folder: Path, bucket: ObjectPath) -> Pipeline:
    """The example shop, its source files in the store."""
    shop = folder / "shop"
    init(shop, "shop")
    upload(shop / "landing", bucket / "landing")
    declared = shop / "pipeline.yml"
    declared.write_text(declared.read_text().replace("path: landing", f"path: {bucket}/landing"))
    return load_pipeline(shop)
