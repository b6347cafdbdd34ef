"""The SQL door with a certificate: what travels is encrypted, and nobody gets in who does not ask for that."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import psycopg
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.sql.door import Door

from tidegate.cli import main
from tidegate.declarations.errors import UserError
from tidegate.sql.door import serve

SSL_REQUEST = struct.pack("!ii", 8, 80877103)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Of this machine, signed by itself."""
    folder, key = tmp_path_factory.mktemp("tls"), ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    here = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now).not_valid_after(now + timedelta(days=1)).add_extension(here, critical=False)
    (folder / "cert.pem").write_bytes(made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    (folder / "key.pem").write_bytes(pem)
    return folder / "cert.pem", folder / "key.pem"


@pytest.fixture(scope="module")
def locked(door: Door, certificate: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    opened = Door(door.root, tmp_path_factory.mktemp("locked"), tls=certificate)
    yield opened
    assert opened.close() == ""


def test_a_client_that_verifies_the_certificate_is_served_by_tls(locked: Door, certificate: tuple[Path, Path]) -> None:
    assert any("sslmode=require" in line for line in locked.said)
    with locked.connect(sslmode="verify-full", sslrootcert=str(certificate[0])) as client:
        assert client.pgconn.ssl_in_use
        assert client.execute("SELECT count(*) > 0 FROM warehouse.events_readings").fetchall() == [(True,)]
        rows = client.execute("SELECT repeat('x', 1000) FROM range(3000)").fetchall()
        assert len(rows) == 3000, "more than a record of TLS holds"


def test_a_client_in_the_clear_is_turned_away_before_the_password(locked: Door) -> None:
    with pytest.raises(psycopg.OperationalError, match="speaks TLS only"):
        locked.connect(sslmode="disable")


def test_an_old_version_of_tls_is_refused(locked: Door) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with socket.create_connection(("127.0.0.1", locked.port), timeout=20) as stranger:
        stranger.sendall(SSL_REQUEST)
        assert stranger.recv(1) == b"S"
        with pytest.raises(OSError):  # noqa: PT011 - an alert, or a connection that is closed
            context.wrap_socket(stranger)


def test_what_is_sent_in_the_clear_behind_the_request_does_not_count_as_encrypted(locked: Door) -> None:
    startup = struct.pack("!i", 196608) + b"user\0analyst\0database\0sensors\0\0"
    with socket.create_connection(("127.0.0.1", locked.port), timeout=20) as stranger:
        stranger.sendall(SSL_REQUEST + struct.pack("!i", len(startup) + 4) + startup)
        received = b""
        with suppress(ConnectionResetError):
            while piece := stranger.recv(4096):
                received += piece
    assert received[:1] == b"S"
    assert b"SCRAM" not in received
    with locked.connect(sslmode="require") as client:
        assert client.execute("SELECT 1").fetchall() == [(1,)]


def test_a_door_without_a_certificate_says_so_to_a_client_that_wants_one(door: Door) -> None:
    with pytest.raises(psycopg.OperationalError, match="SSL"):
        door.connect(sslmode="require")


def test_a_certificate_that_cannot_be_read_is_a_sentence(
    certificate: tuple[Path, Path], tmp_path: Path, door: Door
) -> None:
    (tmp_path / "no.pem").write_text("no certificate")
    for file, why in (("no.pem", "PEM"), ("none.pem", "No such file")):
        with pytest.raises(UserError, match=f"no TLS with certificate .*{why}"):
            serve(door.warehouse, port=0, tls=(tmp_path / file, certificate[1]))


def test_a_certificate_without_its_key_is_a_sentence(
    certificate: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["sql", "dags/pipelines/flights", "--warehouse", str(tmp_path), "--tls-cert", str(certificate[0])]
    assert main(command) == 2
    assert "TLS takes both --tls-cert and --tls-key" in capsys.readouterr().err
