"""``tidegate sql``: every table and mart of a pipeline, for whatever speaks PostgreSQL's protocol.

Each client has a process of its own, with a DuckDB of its own, forked from this one once this one is confined: it can
read the pipeline's tables and can change nothing, on the machine or for other clients; whatever ends it ends no other.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import selectors
import signal
import socket
import ssl
import struct
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from tidegate.declarations.errors import UserError
from tidegate.sql import catalog, objects, scram
from tidegate.sql.confine import confine, limit
from tidegate.sql.engine import Engine, Limits
from tidegate.sql.guard import Refused
from tidegate.sql.relations import manifest_path, require_tables
from tidegate.sql.session import Session, welcome
from tidegate.sql.wire import CANCEL_REQUEST, GSS_REQUEST, PROTOCOL_3, SSL_REQUEST, Garbled, Hangup, Wire, report
from tidegate.store.warehouse import Warehouse

HOST, PORT = "127.0.0.1", 15432
_LOOK_EVERY_S = 0.5
_WELCOME_S = 10.0
_BACKLOG = 64
# How many may be told at the same time that there is no place for them.
_TURNED_AWAY = 8
_PROCESSES, _GROUPS = Path("/proc"), Path("/sys/fs/cgroup")
_ASKED = signal.SIGUSR1
_REQUEST = struct.Struct("!ii")


def serve(
    warehouse: Warehouse,
    host: str = HOST,
    port: int = PORT,
    password_file: Path | None = None,
    limits: Limits | None = None,
    tls: tuple[Path, Path] | None = None,
    say: Callable[[str], None] = print,
) -> None:
    """Serve until interrupted or terminated. UserError if there is no warehouse, or the port is taken.

    ``tls``: files of the certificate (with its chain) and of its key, in PEM; given them, whoever does not speak TLS is
    turned away.

    Confines this process for good: it can only read the warehouse afterwards.
    """
    _require_tables(warehouse)
    secure = None if tls is None else _tls(*tls)
    with _listening(host, port) as listener:
        file = password_file or default_password_file(warehouse.pipeline.name)
        password = scram.password(file)
        if not _confined(warehouse, _PROCESSES):
            say("sql: this kernel has no Landlock: run this as a user who may read the warehouse and write nothing")
        if not manifest_path(warehouse).is_file():
            say("sql: there are no marts yet: run the stage publish; they appear here without a restart")
        address = f"postgresql://{catalog.USER}@{host}:{listener.getsockname()[1]}/{warehouse.pipeline.name}"
        address += "?sslmode=require" if secure else ""
        say(f"sql: ready at {address}, password in {file}; Ctrl-C stops")
        _Server(warehouse, listener, password, limits or Limits(), secure).run()
    say("sql: stopped")


def _require_tables(warehouse: Warehouse) -> None:
    """As ``require_tables``; a store is asked by another process, as what pyarrow starts for it survives no fork."""
    if isinstance(warehouse.folder, Path):
        require_tables(warehouse)
        return
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        pool.submit(require_tables, Warehouse(str(warehouse.root), warehouse.pipeline)).result()


def _confined(warehouse: Warehouse, processes: Path, siblings: bool = False) -> bool:
    """Only read the warehouse from now on; where it is in an object store, over the network."""
    needed = objects.needed_files(warehouse.folder)
    return confine([warehouse.local, processes, _GROUPS, *needed], siblings, network=bool(needed))


def default_password_file(pipeline: str) -> Path:
    """Where the password of a pipeline's door is, if nothing else is said."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "tidegate" / f"{pipeline}.sql-password"


class _Server:
    """Accepts, forks, and buries. One thread, so that a fork copies no lock that is held."""

    def __init__(
        self,
        warehouse: Warehouse,
        listener: socket.socket,
        password: str,
        limits: Limits,
        secure: ssl.SSLContext | None,
    ):
        self._warehouse = warehouse
        self._listener = listener
        self._password = password
        self._limits = limits
        self._secure = secure
        self._clients: set[int] = set()
        self._secret = secrets.token_bytes(32)
        self._stopping = False

    def run(self) -> None:
        """Serve until SIGINT or SIGTERM; no client is left behind."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)
        self._listener.setblocking(False)
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            while not self._stopping:
                if selector.select(_LOOK_EVERY_S):
                    self._accept()
                self._bury()
        for client in self._clients:
            os.kill(client, signal.SIGKILL)
        while self._clients:
            self._clients.discard(os.waitpid(self._clients.pop(), 0)[0])

    def _stop(self, *_: object) -> None:
        self._stopping = True

    def _bury(self) -> None:
        self._clients -= {client for client in self._clients if os.waitpid(client, os.WNOHANG)[0]}

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return  # gone again
        with connection:
            connection.setblocking(True)
            self._bury()
            if len(self._clients) >= self._limits.clients + _TURNED_AWAY:
                return
            child = os.fork()
            if child:
                self._clients.add(child)
                return
            status = 1
            try:
                self._listener.close()
                self._client(connection)
                status = 0
            except Exception:
                traceback.print_exc()
            finally:
                os._exit(status)

    def _client(self, connection: socket.socket) -> None:
        """The whole life of a client's process."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        # Whoever does not show the password soon is ended by the kernel.
        signal.setitimer(signal.ITIMER_REAL, _WELCOME_S)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        limit(self._limits.process_bytes)
        # DuckDB does not start where it cannot read how much memory its group of processes has.
        _confined(self._warehouse, _PROCESSES / "self" / "cgroup", siblings=True)
        encrypted = self._negotiated(connection)
        if encrypted is None:
            return
        wire = Wire(encrypted)
        try:
            self._converse(wire, encrypted is not connection)
        except scram.Denied as denied:
            _leave(wire, "28P01", f"password authentication failed: {denied}")
        except (Garbled, struct.error) as garbled:
            _leave(wire, "08P01", f"protocol violation: {garbled}")
        except Refused as refused:
            _leave(wire, refused.code, str(refused))
        except Hangup:
            pass

    def _negotiated(self, connection: socket.socket) -> socket.socket | None:
        """The connection as the client wants it: encrypted, or as it is; None if that comes to nothing.

        No byte is read beyond a request: what was sent in the clear behind it must not count as sent by TLS.
        """
        try:
            while (asked := _peeked(connection)) in (SSL_REQUEST, GSS_REQUEST):
                connection.recv(_REQUEST.size)
                if asked == SSL_REQUEST and self._secure is not None:
                    connection.sendall(b"S")
                    return self._secure.wrap_socket(connection, server_side=True)
                connection.sendall(b"N")
        except OSError:
            return None
        return connection

    def _converse(self, wire: Wire, encrypted: bool) -> None:
        code, content = wire.startup()
        if code == CANCEL_REQUEST:
            self._cancel(*struct.unpack("!ii", content))
            return
        if code >> 16 != PROTOCOL_3:
            raise Garbled("only version 3 of the protocol is spoken here")
        if self._secure is not None and not encrypted:
            raise Refused("28000", "this server speaks TLS only: connect with sslmode=require, or verify-full")
        if len(self._clients) >= self._limits.clients:
            raise Refused("53300", "too many clients already: close a connection")
        told = welcome(wire, self._password, content)
        if told.get("database", told.get("user")) not in (self._warehouse.pipeline.name, catalog.USER, "postgres"):
            raise Refused("3D000", f"there is no such database: this one is {self._warehouse.pipeline.name}")
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.pthread_sigmask(signal.SIG_BLOCK, {_ASKED})
        # Not before: delta-rs has threads, which no fork survives.
        engine = Engine(self._warehouse, self._limits)
        threading.Thread(target=_heed, args=[engine], daemon=True).start()
        Session(wire, engine, self._limits).run(told, (os.getpid(), self._key(os.getpid())))

    def _key(self, client: int) -> int:
        """What a client shows to have its statement cancelled. Without it, nobody cancels another's."""
        return int(struct.unpack("!i", hmac.digest(self._secret, str(client).encode(), "sha256")[:4])[0])

    def _cancel(self, client: int, key: int) -> None:
        if client in self._clients and hmac.compare_digest(str(self._key(client)), str(key)):
            os.kill(client, _ASKED)


def _heed(engine: Engine) -> None:
    """Interrupt the statement that runs whenever its client asks for it."""
    while True:
        signal.sigwait({_ASKED})
        engine.stop("canceling statement due to user request")


def _peeked(connection: socket.socket) -> int | None:
    """The code of a request for encryption that comes next, None if something else does."""
    found = connection.recv(_REQUEST.size, socket.MSG_PEEK | socket.MSG_WAITALL)
    length, code = _REQUEST.unpack(found) if len(found) == _REQUEST.size else (0, 0)
    return code if length == _REQUEST.size else None


def _tls(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key, password="")
    except OSError as error:
        why = error.strerror or str(error)
        raise UserError(f"no TLS with certificate {certificate} and key {key}: {why}; both are PEM files") from None
    return context


def _leave(wire: Wire, code: str, message: str) -> None:
    wire.send(b"E", report("FATAL", code, message))
    with contextlib.suppress(Hangup):
        wire.flush()


def _listening(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), backlog=_BACKLOG)
    except OverflowError:
        raise UserError(f"{port} is not a port; choose one from 1 to 65535 with --port") from None
    except OSError as error:
        why = error.strerror or str(error)
        raise UserError(f"cannot listen on {host}, port {port}: {why}; choose another with --port") from None
