from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
import threading
from pathlib import Path

import pytest
from cryptography import x509

from wallflower.protocol.errors import InputError
from wallflower.protocol.identity.certificates import (
    KeyPair,
    fingerprint,
    make_authority,
    make_server_certificate,
)

NOW = datetime.datetime.now(datetime.UTC)


def handshake(server: KeyPair, authority: KeyPair, host: str, folder: Path) -> str:
    """Do a TLS handshake in memory as a client of `host`; give the reason it failed."""
    (folder / "server.crt").write_bytes(server.certificate)
    (folder / "server.key").write_bytes(server.private_key)
    inside = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    inside.load_cert_chain(folder / "server.crt", folder / "server.key")
    outside = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    outside.load_verify_locations(cadata=authority.certificate.decode())
    left, right = socket.socketpair()

    def serve() -> None:
        try:
            with inside.wrap_socket(left, server_side=True) as stream:
                stream.recv(1)
        except (ssl.SSLError, OSError):
            left.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with outside.wrap_socket(right, server_hostname=host):
            return ""
    except ssl.SSLCertVerificationError as error:
        return str(error.verify_message)
    finally:
        right.close()
        thread.join()


def test_a_server_certificate_is_accepted_for_its_hosts_only(tmp_path: Path) -> None:
    authority = make_authority("test authority", now=NOW)
    server = make_server_certificate(
        authority, ["server.example", "127.0.0.1"], now=NOW
    )
    assert handshake(server, authority, "server.example", tmp_path) == ""
    assert handshake(server, authority, "127.0.0.1", tmp_path) == ""
    assert "mismatch" in handshake(server, authority, "127.0.0.2", tmp_path)


def test_another_authority_is_refused(tmp_path: Path) -> None:
    authority = make_authority("test authority", now=NOW)
    other = make_authority("test authority", now=NOW)
    server = make_server_certificate(other, ["127.0.0.1"], now=NOW)
    assert handshake(server, authority, "127.0.0.1", tmp_path) != ""


def test_an_expired_certificate_is_refused(tmp_path: Path) -> None:
    authority = make_authority("test authority", now=NOW)
    past = NOW - datetime.timedelta(days=30)
    server = make_server_certificate(authority, ["127.0.0.1"], now=past, days=1)
    assert "expired" in handshake(server, authority, "127.0.0.1", tmp_path)


def test_addresses_are_addresses_and_names_are_names() -> None:
    authority = make_authority("test authority", now=NOW)
    server = make_server_certificate(authority, ["a.example", "::1"], now=NOW)
    certificate = x509.load_pem_x509_certificate(server.certificate)
    names = certificate.extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    ).value
    assert names.get_values_for_type(x509.DNSName) == ["a.example"]
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("::1")]


def test_a_key_pair_shows_no_key() -> None:
    authority = make_authority("test authority", now=NOW)
    assert "PRIVATE" not in repr(authority)
    assert fingerprint(authority.certificate).hex()[:16] in repr(authority)


def test_no_hosts_and_no_certificate_are_named_errors() -> None:
    authority = make_authority("test authority", now=NOW)
    with pytest.raises(InputError, match="hosts"):
        make_server_certificate(authority, [], now=NOW)
    with pytest.raises(InputError, match="BEGIN CERTIFICATE"):
        fingerprint(b"rubbish")
