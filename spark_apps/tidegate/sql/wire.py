"""Messages of PostgreSQL's protocol 3.0: bytes in and out of a socket, and nothing of what they mean.

Source: PostgreSQL's documentation, "Frontend/Backend Protocol", "Message Formats".
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Sequence

PROTOCOL_3 = 3
SSL_REQUEST, GSS_REQUEST, CANCEL_REQUEST = 80877103, 80877104, 80877102
# Before a client has shown that it knows the password, a message has no reason to be long.
_LONGEST_UNTRUSTED = 10_000
LONGEST = 16 << 20
_SEND_AT = 1 << 16
_NULL = struct.pack("!i", -1)


class Hangup(Exception):
    """The client went away."""


class Garbled(Exception):
    """What came is not the protocol."""


class Wire:
    """A client's connection. Nothing is sent before ``flush``, but for what is long."""

    def __init__(self, connection: socket.socket):
        self._connection = connection
        self._reading = connection.makefile("rb")
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self.longest = _LONGEST_UNTRUSTED

    def startup(self) -> tuple[int, bytes]:
        """The first message: its code (a version of the protocol, or a request), and the rest."""
        (length,) = struct.unpack("!i", self._exactly(4))
        return struct.unpack("!i", self._exactly(4))[0], self._exactly(self._checked(length - 8))

    def message(self) -> tuple[bytes, bytes]:
        """The next message: its type, and its content."""
        kind, length = struct.unpack("!ci", self._exactly(5))
        return kind, self._exactly(self._checked(length - 4))

    def send(self, kind: bytes, content: bytes = b"") -> None:
        """Append a message."""
        self.raw(kind + struct.pack("!i", len(content) + 4) + content)

    def raw(self, content: bytes) -> None:
        """Append bytes as they are."""
        self._pending.append(content)
        self._pending_bytes += len(content)
        if self._pending_bytes >= _SEND_AT:
            self.flush()

    def flush(self) -> None:
        """Send everything."""
        try:
            self._connection.sendall(b"".join(self._pending))
        except OSError:
            raise Hangup from None
        finally:
            self._pending.clear()
            self._pending_bytes = 0

    def _exactly(self, count: int) -> bytes:
        try:
            found = self._reading.read(count)
        except OSError:
            raise Hangup from None
        if len(found) != count:
            raise Hangup
        return found

    def _checked(self, length: int) -> int:
        if not 0 <= length <= self.longest:
            raise Garbled(f"a message of {length} bytes")
        return length


class Reader:
    """The fields of one message, in order. Raises Garbled if it is shorter than it says."""

    def __init__(self, content: bytes):
        self._content = content
        self._at = 0

    def text(self) -> str:
        """Text up to a zero byte."""
        end = self._content.find(b"\0", self._at)
        if end < 0:
            raise Garbled("text without an end")
        found = self._content[self._at : end]
        self._at = end + 1
        try:
            return found.decode()
        except UnicodeDecodeError:
            raise Garbled("text that is not UTF-8") from None

    def int16(self) -> int:
        """A count or a format."""
        return int(struct.unpack("!h", self.take(2))[0])

    def int32(self) -> int:
        """A length, an OID or a number of rows."""
        return int(struct.unpack("!i", self.take(4))[0])

    def take(self, count: int) -> bytes:
        """The next bytes."""
        found = self._content[self._at : self._at + max(0, count)]
        if len(found) != count:
            raise Garbled("a message that ends early")
        self._at += count
        return found

    def value(self) -> bytes | None:
        """A value, or None for NULL."""
        length = self.int32()
        return None if length == -1 else self.take(length)

    def rest(self) -> bytes:
        """Everything that is left."""
        return self.take(len(self._content) - self._at)


def texts(*values: str) -> bytes:
    """Texts, each with its zero byte; what is behind a zero byte in one is left out."""
    return b"".join(value.partition("\0")[0].encode("utf-8", "replace") + b"\0" for value in values)


def report(severity: str, code: str, message: str, hint: str = "") -> bytes:
    """The content of an ErrorResponse or a NoticeResponse."""
    parts = {b"S": severity, b"V": severity, b"C": code, b"M": message, b"H": hint}
    return b"".join(key + texts(value) for key, value in parts.items() if value) + b"\0"


def data_rows(columns: Sequence[Sequence[bytes | None]]) -> Iterable[bytes]:
    """A DataRow for each row of equally long columns."""
    head = struct.pack("!h", len(columns))
    packed = [[_NULL if value is None else struct.pack("!i", len(value)) + value for value in c] for c in columns]
    for row in zip(*packed, strict=True):
        content = head + b"".join(row)
        yield b"D" + struct.pack("!i", len(content) + 4) + content
