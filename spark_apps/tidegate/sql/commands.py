"""Statements that are no queries: transactions, settings, and where one statement ends and the next begins."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tidegate.sql import catalog
from tidegate.sql.guard import Refused

# Settings that a client may change for itself: how it is shown things. None of them reaches DuckDB.
_SETTABLE = {
    "application_name": "",
    "bytea_output": "hex",
    "client_encoding": "UTF8",
    "client_min_messages": "notice",
    "datestyle": "ISO, MDY",
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "on",
    "extra_float_digits": "1",
    "idle_in_transaction_session_timeout": "0",
    "intervalstyle": "postgres",
    "jit": "off",
    "lock_timeout": "0",
    "row_security": "on",
    "search_path": "tidegate, warehouse",
    "standard_conforming_strings": "on",
    "statement_timeout": "0",
    "timezone": "UTC",
    "transaction_isolation": "read committed",
    "transaction_read_only": "on",
}
# What clients are told at the start, in PostgreSQL's spelling.
TOLD: tuple[str, ...] = (
    "server_version",
    "server_encoding",
    "client_encoding",
    "application_name",
    "DateStyle",
    "IntervalStyle",
)
TOLD += ("TimeZone", "integer_datetimes", "standard_conforming_strings", "is_superuser", "session_authorization")
# Values that are not changed by a SET: their meaning is the server's promise.
_ONLY = {"client_encoding": ("utf8", "utf-8", "unicode"), "timezone": ("utc", "etc/utc", "gmt", "default", "local")}
_ONLY |= {"standard_conforming_strings": ("on", "true", "1"), "bytea_output": ("hex",)}
_ONLY |= {"default_transaction_read_only": ("on", "true", "1"), "transaction_read_only": ("on", "true", "1")}
_ALIASES = {"names": "client_encoding", "time zone": "timezone", "transaction isolation level": "transaction_isolation"}
_TRANSACTIONS = {"BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "SAVEPOINT", "RELEASE"}
_FORGETTING = {"DEALLOCATE", "DISCARD", "CLOSE", "UNLISTEN"}
_LONGEST_VALUE = 1000
_TOKEN = re.compile(
    r"""(?P<text>[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|(?P<tag>\$(?:[^\W\d]\w*)?\$).*?(?P=tag))"""
    r"|(?P<comment>--[^\n]*)|(?P<open>/\*)|(?P<end>;)|\w+|\S",
    re.DOTALL,
)
_COMMENT_MARK = re.compile(r"/\*|\*/")
# More words of a statement than these say nothing of its kind.
_WORDS = 16


@dataclass(frozen=True)
class Piece:
    """One statement: its text, and the first of its words in upper case."""

    text: str
    words: tuple[str, ...]

    @property
    def verb(self) -> str:
        """The first word; empty for an empty statement."""
        return self.words[0] if self.words else ""


def split(sql: str) -> list[Piece]:
    """The statements of a text; at least one, which may be empty. Cost: linear in its length.

    Each piece is parsed by DuckDB as one statement before it runs: a text that the two read differently is refused.

    >>> [piece.text for piece in split("select ';' -- a; b\\n; /* ; /* */ */ show x;")]
    ["select ';'", 'show x']
    """
    pieces: list[Piece] = []
    words: list[str] = []
    at, start, end = 0, -1, 0
    while found := _TOKEN.search(sql, at):
        at = found.end()
        if found["comment"]:
            continue
        if found["open"]:
            at = _end_of_comment(sql, at)
            continue
        if found["end"]:
            if words:
                pieces.append(Piece(sql[start:end], tuple(words)))
            words, start = [], -1
            continue
        start, end = found.start() if start < 0 else start, found.end()
        if len(words) < _WORDS:
            words.append(found[0].upper())
    if words:
        pieces.append(Piece(sql[start:end], tuple(words)))
    return pieces or [Piece("", ())]


def _end_of_comment(sql: str, at: int) -> int:
    """Where a comment ends whose inside begins at ``at``: comments nest."""
    depth = 1
    while depth and (found := _COMMENT_MARK.search(sql, at)):
        depth += 1 if found[0] == "/*" else -1
        at = found.end()
    return at if not depth else len(sql)


def is_transaction(piece: Piece) -> bool:
    """Whether a statement begins or ends a transaction, or a part of one."""
    return piece.verb in _TRANSACTIONS


def is_forgetting(piece: Piece) -> bool:
    """Whether a statement lets go of what the client has prepared."""
    return piece.verb in _FORGETTING


@dataclass
class Settings:
    """A client's settings."""

    held: dict[str, str] = field(default_factory=lambda: dict(_SETTABLE))

    def all(self) -> dict[str, str]:
        """Every setting that there is, by its name in small letters."""
        return catalog.FIXED_SETTINGS | self.held

    def show(self, piece: Piece) -> tuple[str, str]:
        """The name and value of the setting that SHOW asks for. Raises Refused."""
        name = " ".join(piece.words[1:]).lower().replace(" . ", ".")
        name = _ALIASES.get(name, name)
        if name not in self.all():
            raise Refused("42704", f'unrecognized configuration parameter "{name}"')
        return name, self.all()[name]

    def change(self, piece: Piece) -> tuple[str, str] | None:
        """Carry out SET or RESET: the setting and its new value, or None if nothing changed. Raises Refused."""
        text = re.sub(r"^\s*SET\s+(SESSION|LOCAL)\s+(?!CHARACTERISTICS|AUTHORIZATION)", "SET ", piece.text, flags=re.I)
        if piece.verb == "RESET":
            name = piece.words[1].lower() if len(piece.words) > 1 else "all"
            if name != "all" and name not in self.held:
                raise refused_setting(name)
            self.held |= _SETTABLE if name == "all" else {name: _SETTABLE[name]}
            return None
        if re.match(r"SET\s+(SESSION\s+CHARACTERISTICS\s+AS\s+)?TRANSACTION\b", text, re.I):
            return None  # every transaction reads, and reads what is committed
        found = re.fullmatch(
            r"\s*SET\s+(NAMES|TIME\s+ZONE|[\w.]+)\s*(?:=|\bTO\b|\s)\s*(.+?)\s*", text, re.IGNORECASE | re.DOTALL
        )
        if not found:
            raise Refused("42601", "SET takes a setting and a value")
        return self.assign(" ".join(found[1].lower().split()), found[2])

    def assign(self, name: str, written: str) -> tuple[str, str] | None:
        """Set a setting to a value as it was written. Raises Refused."""
        name = _ALIASES.get(name, name)
        value = ", ".join(part.strip().strip("'\"") for part in written.split(","))
        if name not in self.held:
            raise refused_setting(name)
        if len(value) > _LONGEST_VALUE:
            raise Refused("22023", f"the value of {name} is too long")
        if value.lower() == "default":
            value = _SETTABLE[name]
        if name == "timezone" and value.lower() not in _ONLY[name]:
            return None  # drivers set their machine's zone; times stay UTC, and say so
        if name in _ONLY and value.lower() not in _ONLY[name]:
            raise Refused("22023", f"{name} cannot be {value!r} here: it is always {_SETTABLE[name]}")
        self.held[name] = _SETTABLE[name] if name in _ONLY else value
        return name, self.held[name]

    def search_path(self) -> tuple[str, ...]:
        """The schemas in which a bare name is looked up."""
        return tuple(part.strip().lower() for part in self.held["search_path"].split(","))

    def timeout_s(self, most: float) -> float:
        """How long a statement may take: what the client wants, at most ``most`` seconds."""
        found = re.fullmatch(r"(\d{1,9})\s*(ms|s|min|h)?", self.held["statement_timeout"])
        if not found or not int(found[1]):
            return most
        return min(most, int(found[1]) * {None: 0.001, "ms": 0.001, "s": 1, "min": 60, "h": 3600}[found[2]])


def refused_setting(name: str) -> Refused:
    """What is said to a SET of anything else."""
    return Refused("42501", f'setting "{name}" cannot be changed here')


def explained(piece: Piece) -> tuple[str, str]:
    """What stands before the query that an EXPLAIN explains, and the query: ("", the text) for any other statement.

    >>> explained(split("explain (costs off) select 1")[0])
    ('EXPLAIN ', 'select 1')
    """
    if piece.verb != "EXPLAIN":
        return "", piece.text
    text = re.sub(r"^\s*EXPLAIN\b\s*(\([\w\s,]*\))?", "", piece.text, flags=re.IGNORECASE)
    analyzed = re.match(r"\s*(ANALYZE|VERBOSE|ANALYSE)\b", text, re.IGNORECASE)
    while found := re.match(r"\s*(ANALYZE|VERBOSE|ANALYSE)\b", text, re.IGNORECASE):
        text = text[found.end() :]
    return ("EXPLAIN ANALYZE " if analyzed else "EXPLAIN "), text.strip()
