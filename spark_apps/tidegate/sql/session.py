"""One client's conversation: PostgreSQL's simple and extended query protocol over one engine.

Source: PostgreSQL's documentation, "Message Flow".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from tidegate.sql import catalog, commands, scram, values
from tidegate.sql.commands import Piece, Settings
from tidegate.sql.engine import Column, Engine, Limits, Rows
from tidegate.sql.guard import Guard, Judged, Refused
from tidegate.sql.wire import LONGEST, Garbled, Reader, Wire, report, texts

T = TypeVar("T")
_MOST_PREPARED = 1000
_SHOWN = values.ColumnType(values.STRING)
_RELATION_LIST = "SELECT table_schema, table_name FROM information_schema.tables ORDER BY table_schema, table_name"
_SASL, _SASL_MORE, _SASL_DONE, _AUTHENTICATED = 10, 11, 12, 0


@dataclass
class Prepared:
    """A statement as Parse left it. ``kinds``: OIDs of its parameters; 0 is unknown."""

    piece: Piece
    kinds: list[int] = field(default_factory=list)


@dataclass
class Portal:
    """A statement with its parameters, and, once it runs, its rows."""

    prepared: Prepared
    parameters: list[str] = field(default_factory=list)
    formats: list[int] = field(default_factory=list)
    rows: Rows | None = None

    def of(self, columns: Sequence[Column]) -> list[int]:
        """The form of each column's values."""
        if len(self.formats) <= 1:
            return (self.formats or [values.TEXT]) * len(columns)
        if len(self.formats) != len(columns):
            raise Refused("08P01", "there must be as many result formats as columns")
        return self.formats


class Session:
    """A client from its password to its goodbye."""

    def __init__(self, wire: Wire, engine: Engine, limits: Limits):
        self._wire = wire
        self._engine = engine
        self._limits = limits
        self._settings = Settings()
        self._status = b"I"
        self._prepared: dict[str, Prepared] = {}
        self._portals: dict[str, Portal] = {}
        self._skipping = False

    def run(self, told: dict[str, str], key: tuple[int, int]) -> None:
        """Answer until the client leaves. ``told``: what it said of itself; ``key``: what it may cancel with."""
        for name, value in told.items():
            if name in self._settings.held:
                self._settings.assign(name, value)
        shown = {name.lower(): value for name, value in self._settings.all().items()}
        for name in commands.TOLD:
            self._wire.send(b"S", texts(name, shown[name.lower()]))
        self._wire.send(b"K", struct.pack("!ii", *key))
        self._wire.longest = LONGEST
        self._ready()
        handlers: dict[bytes, Callable[[Reader], None]] = {
            b"P": self._parse,
            b"B": self._bind,
            b"D": self._describe,
            b"E": self._execute,
            b"C": self._close,
        }
        while True:
            kind, content = self._wire.message()
            if kind == b"X":
                return
            if kind == b"Q":
                self._skipping = False
                self._guarded(self._query, Reader(content))
                self._ready()
            elif kind == b"S":
                self._skipping = False
                self._ready()
            elif kind == b"H":
                self._wire.flush()
            elif kind in handlers:
                if not self._skipping and not self._guarded(handlers[kind], Reader(content)):
                    self._skipping = True
            elif kind not in (b"d", b"c", b"f"):  # what is left of a COPY that was refused
                raise Garbled(f"a message of kind {kind!r}")

    # ---------------------------------------------------------------- simple protocol

    def _query(self, message: Reader) -> None:
        for piece in commands.split(message.text()):
            portal = Portal(Prepared(piece))
            self._limited(partial(self._answer, portal, 0, described=True))

    # ---------------------------------------------------------------- extended protocol

    def _parse(self, message: Reader) -> None:
        name, sql = message.text(), message.text()
        kinds = [message.int32() for _ in range(message.int16())]
        pieces = commands.split(sql)
        if len(pieces) > 1:
            raise Refused("42601", "cannot insert multiple commands into a prepared statement")
        if len(self._prepared) >= _MOST_PREPARED:
            raise Refused("53400", f"there are {_MOST_PREPARED} prepared statements already: close some")
        prepared = Prepared(pieces[0], kinds)
        if self._asks(prepared.piece):
            count = self._limited(lambda: self._guard().parameters(self._text(prepared.piece)))
            prepared.kinds += [0] * (count - len(kinds))
        self._prepared[name] = prepared
        self._wire.send(b"1")

    def _bind(self, message: Reader) -> None:
        name, statement = message.text(), message.text()
        forms = [message.int16() for _ in range(message.int16())]
        given = [message.value() for _ in range(message.int16())]
        formats = [message.int16() for _ in range(message.int16())]
        prepared = self._named(statement)
        if len(given) != len(prepared.kinds) or len(forms) > max(1, len(given)):
            raise Refused("08P01", f"{len(given)} parameters were given, {len(prepared.kinds)} are needed")
        forms = (forms or [values.TEXT]) * len(given) if len(forms) <= 1 else forms
        try:
            parameters = [
                values.parameter(value, kind, form)
                for value, kind, form in zip(given, prepared.kinds, forms, strict=True)
            ]
        except values.BadValue as error:
            raise Refused("22P02", str(error)) from None
        if len(self._portals) >= _MOST_PREPARED:
            raise Refused("53400", f"there are {_MOST_PREPARED} portals already: close some")
        self._portals[name] = Portal(prepared, parameters, formats)
        self._wire.send(b"2")

    def _describe(self, message: Reader) -> None:
        kind, name = message.take(1), message.text()
        if kind == b"P":
            portal = self._portal(name)
        else:
            prepared = self._named(name)
            shown = [kind if kind not in (0, values.UNKNOWN) else values.STRING.oid for kind in prepared.kinds]
            self._wire.send(b"t", struct.pack(f"!h{len(shown)}i", len(shown), *shown))
            portal = Portal(prepared, [values.parameter(None, kind, values.TEXT) for kind in prepared.kinds])
        columns = self._limited(lambda: self._columns(portal))
        if columns is None:
            self._wire.send(b"n")
        else:
            self._describe_rows(columns, portal.of(columns))

    def _execute(self, message: Reader) -> None:
        portal, most = self._portal(message.text()), message.int32()
        self._limited(lambda: self._answer(portal, max(0, most), described=False))

    def _close(self, message: Reader) -> None:
        kind, name = message.take(1), message.text()
        (self._portals if kind == b"P" else self._prepared).pop(name, None)
        self._wire.send(b"3")

    def _named(self, name: str) -> Prepared:
        if name not in self._prepared:
            raise Refused("26000", f'prepared statement "{name}" does not exist')
        return self._prepared[name]

    def _portal(self, name: str) -> Portal:
        if name not in self._portals:
            raise Refused("34000", f'portal "{name}" does not exist')
        return self._portals[name]

    # ---------------------------------------------------------------- statements

    def _asks(self, piece: Piece) -> bool:
        """Whether a statement is one whose answer is computed by the engine."""
        if piece.verb == "SHOW":
            return piece.words[1:2] == ("TABLES",)
        return bool(piece.words) and piece.verb not in ("SET", "RESET") and not self._is_noted(piece)

    def _is_noted(self, piece: Piece) -> bool:
        return commands.is_transaction(piece) or commands.is_forgetting(piece)

    def _text(self, piece: Piece) -> str:
        """What the engine is asked, without EXPLAIN."""
        if piece.verb == "SHOW":
            return _RELATION_LIST
        return commands.explained(piece)[1]

    def _judged(self, portal: Portal) -> Judged:
        self._engine.refresh()

        def parameter(name: str) -> str:
            if not name.isdigit() or not 0 < int(name) <= len(portal.parameters):
                raise Refused("42P02", f"there is no parameter ${name}")
            return portal.parameters[int(name) - 1]

        piece = portal.prepared.piece
        judged = self._guard().judge(self._text(piece), parameter)
        prefix = commands.explained(piece)[0]
        return Judged(prefix + judged.text, judged.reads)

    def _guard(self) -> Guard:
        self._engine.refresh()
        return self._engine.guard(self._settings.all(), self._settings.search_path())

    def _columns(self, portal: Portal) -> list[Column] | None:
        piece = portal.prepared.piece
        if self._asks(piece):
            return self._engine.columns(self._judged(portal))
        return [Column(self._settings.show(piece)[0], _SHOWN)] if piece.verb == "SHOW" else None

    def _answer(self, portal: Portal, most: int, described: bool) -> None:
        """Everything that a statement is answered with, but for ReadyForQuery."""
        piece = portal.prepared.piece
        if self._status == b"E" and piece.verb not in ("ROLLBACK", "ABORT", "COMMIT", "END"):
            raise Refused("25P02", "current transaction is aborted, commands ignored until end of transaction block")
        if not piece.words:
            self._wire.send(b"I")
        elif self._asks(piece):
            self._answer_rows(portal, most, described)
        elif piece.verb == "SHOW":
            name, value = self._settings.show(piece)
            if described:
                self._describe_rows([Column(name, _SHOWN)], [values.TEXT])
            self._wire.send(b"D", struct.pack("!hi", 1, len(value.encode())) + value.encode())
            self._done("SHOW")
        elif piece.verb in ("SET", "RESET"):
            changed = self._settings.change(piece)
            spelling = {name.lower(): name for name in commands.TOLD}
            if changed is not None and changed[0] in spelling:
                self._wire.send(b"S", texts(spelling[changed[0]], changed[1]))
            self._done(piece.verb)
        elif commands.is_forgetting(piece):
            if piece.verb != "CLOSE":
                self._prepared.clear()
            self._portals.clear()
            self._done("DISCARD ALL" if piece.verb == "DISCARD" else piece.verb)
        else:
            self._transaction(piece)

    def _answer_rows(self, portal: Portal, most: int, described: bool) -> None:
        if portal.rows is None:
            portal.rows = self._engine.run(self._judged(portal))
            if described:
                self._describe_rows(portal.rows.columns, portal.of(portal.rows.columns))
        rows = portal.rows
        for content in rows.take(most, portal.of(rows.columns), self._limits.rows):
            self._wire.raw(content)
        if rows.suspended:
            self._wire.send(b"s")
        else:
            verb = portal.prepared.piece.verb
            self._done(verb if verb in ("EXPLAIN", "SHOW", "DESCRIBE") else f"SELECT {rows.sent}")

    def _transaction(self, piece: Piece) -> None:
        """Note where a transaction begins and ends. Nothing is isolated: each statement reads what is committed."""
        tag = {"START": "START TRANSACTION", "END": "COMMIT", "ABORT": "ROLLBACK"}.get(piece.verb, piece.verb)
        if tag in ("BEGIN", "START TRANSACTION") or (tag == "ROLLBACK" and "TO" in piece.words):
            self._status = b"T"
        elif tag in ("COMMIT", "ROLLBACK"):
            tag = "ROLLBACK" if self._status == b"E" else tag
            self._status = b"I"
            self._portals.clear()
        self._done(tag)

    # ---------------------------------------------------------------- answers

    def _limited(self, work: Callable[[], T]) -> T:
        with self._engine.limited(self._settings.timeout_s(self._limits.seconds)):
            return work()

    def _guarded(self, work: Callable[[Reader], None], message: Reader) -> bool:
        """Whether the work was done; otherwise the client was told why not."""
        try:
            work(message)
        except Refused as refused:
            self._wire.send(b"E", report("ERROR", refused.code, str(refused)))
        except (RecursionError, MemoryError):
            self._wire.send(b"E", report("ERROR", "54001", "the statement is too large"))
        else:
            return True
        if self._status == b"T":
            self._status = b"E"
        return False

    def _done(self, tag: str) -> None:
        self._wire.send(b"C", texts(tag))

    def _ready(self) -> None:
        self._wire.send(b"Z", self._status)
        self._wire.flush()

    def _describe_rows(self, columns: Sequence[Column], formats: Iterable[int]) -> None:
        content = struct.pack("!h", len(columns))
        for column, form in zip(columns, formats, strict=True):
            kind = column.type
            content += texts(column.name) + struct.pack("!ihihih", 0, 0, kind.oid, kind.size, kind.modifier, form)
        self._wire.send(b"T", content)


def welcome(wire: Wire, password: str, startup: bytes) -> dict[str, str]:
    """Ask for the password; what the client said of itself. Raises Denied, or Garbled."""
    reader, told = Reader(startup), {}
    while name := reader.text():
        told[name.lower()] = reader.text()
    exchange = scram.Server(password, told.get("user") == catalog.USER)
    wire.send(b"R", struct.pack("!i", _SASL) + texts(scram.MECHANISM) + b"\0")
    wire.flush()
    first = Reader(_password_message(wire))
    if first.text() != scram.MECHANISM:
        raise scram.Denied("the mechanism is not offered")
    wire.send(b"R", struct.pack("!i", _SASL_MORE) + exchange.first(first.value() or b""))
    wire.flush()
    wire.send(b"R", struct.pack("!i", _SASL_DONE) + exchange.last(_password_message(wire)))
    wire.send(b"R", struct.pack("!i", _AUTHENTICATED))
    return told


def _password_message(wire: Wire) -> bytes:
    kind, content = wire.message()
    if kind != b"p":
        raise scram.Denied("no password was sent")
    return content
