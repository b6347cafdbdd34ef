"""SCRAM-SHA-256 as PostgreSQL speaks it: the server's side, and the password that it asks for.

Source: RFC 5802 and RFC 7677; PostgreSQL's documentation, "SASL Authentication". Without channel binding.
Neither side sends the password; who listens learns nothing that lets him in.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
from pathlib import Path

from tidegate.declarations.errors import UserError

MECHANISM = "SCRAM-SHA-256"
_ITERATIONS = 4096
_PASSWORD_BYTES = 18


class Denied(Exception):
    """The client does not know the password, or does not speak the protocol."""


class Server:
    """One exchange: ``first`` answers the client's first message, ``last`` its proof.

    ``known`` is whether there is such a user: a stranger's exchange takes the same course, and ends in Denied.
    """

    def __init__(self, password: str, known: bool):
        self._known = known
        self._salt = secrets.token_bytes(16)
        self._salted = hashlib.pbkdf2_hmac("sha256", password.encode(), self._salt, _ITERATIONS)
        self._nonce = self._signed = ""

    def first(self, message: bytes) -> bytes:
        """The server's first message. Raises Denied."""
        header, _, bare = _text(message).partition(",,")
        if header not in ("n", "y"):
            raise Denied("channel binding is not offered")
        self._nonce = _field(bare.split(","), "r") + base64.b64encode(secrets.token_bytes(18)).decode()
        answer = f"r={self._nonce},s={base64.b64encode(self._salt).decode()},i={_ITERATIONS}"
        self._signed = f"{bare},{answer}"
        return answer.encode()

    def last(self, message: bytes) -> bytes:
        """The server's last message, which proves to the client that this is the server. Raises Denied."""
        text = _text(message)
        unproved, _, proof = text.rpartition(",p=")
        fields = unproved.split(",")
        signed = f"{self._signed},{unproved}".encode()
        client_key = _hmac(self._salted, b"Client Key")
        signature = _hmac(hashlib.sha256(client_key).digest(), signed)
        expected = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        try:
            proved = hmac.compare_digest(base64.b64decode(proof), expected)
            binding = base64.b64decode(_field(fields, "c"))
        except ValueError:
            raise Denied("the message is not base64") from None
        right = proved and hmac.compare_digest(_field(fields, "r").encode(), self._nonce.encode())
        if not (right and self._known and binding in (b"n,,", b"y,,")):
            raise Denied("the password is wrong")
        return b"v=" + base64.b64encode(_hmac(_hmac(self._salted, b"Server Key"), signed))


def password(file: Path) -> str:
    """The password in a file of mode 0600, which is made with a generated one if it is not there.

    UserError if it cannot be made or read, is empty, or may be read by others.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        pass
    except OSError as error:
        raise UserError(f"{file} cannot be written: {error.strerror}; choose another with --password-file") from None
    else:
        with os.fdopen(handle, "w") as opened:
            opened.write(secrets.token_urlsafe(_PASSWORD_BYTES) + "\n")
    try:
        if file.stat().st_mode & 0o077:
            raise UserError(f"{file} may be read by others: chmod 600 {file}")
        found = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file} cannot be read: {error}") from None
    if not found:
        raise UserError(f"{file} is empty: write a password into it, or remove it to have one generated")
    return found


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise Denied("the message is not UTF-8") from None


def _field(fields: list[str], name: str) -> str:
    found = [field[2:] for field in fields if field.startswith(f"{name}=")]
    if len(found) != 1:
        raise Denied(f"the message has no single field {name}")
    return found[0]


def _hmac(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, "sha256")
