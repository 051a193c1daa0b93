"""A small certificate authority for the TLS of a run: PEM in, PEM out.

For tests, for `wallflower run` on loopback, and for the deployment script. A site with
its own authority uses that instead; nothing here is needed at run time but
`fingerprint`.

TLS says *which gRPC server* a node talks to. Who a node is, is said by its Ed25519
identity (`protocol.identity`), not by a client certificate.
"""

from __future__ import annotations

import datetime
import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from wallflower.protocol.errors import InputError

# A clock that is a few minutes behind must not refuse a fresh certificate.
_BACKDATED = datetime.timedelta(minutes=10)
_AUTHORITY_DAYS = 3650
_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_LONGEST_HOST = 253
_SERVER_DAYS = 397


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    private_key: bytes

    def __repr__(self) -> str:
        """Name the certificate; never show the key."""
        return f"KeyPair(fingerprint={fingerprint(self.certificate).hex()[:16]})"


def make_authority(
    name: str, *, now: datetime.datetime, days: int = _AUTHORITY_DAYS
) -> KeyPair:
    """Make a self-signed certificate authority (P-256).

    Parameters
    ----------
    name : str
        What people see, e.g. ``Wallflower run authority``.
    now : datetime.datetime
        Start of validity, with a time zone.
    days : int
        How long it is valid.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        _builder(subject, subject, key.public_key(), now, days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(
            x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    return _pair(certificate, key)


def make_server_certificate(
    authority: KeyPair,
    hosts: Sequence[str],
    *,
    now: datetime.datetime,
    days: int = _SERVER_DAYS,
) -> KeyPair:
    """Make a server certificate for host names and addresses, signed by `authority`.

    Parameters
    ----------
    authority : KeyPair
        What `make_authority` gave.
    hosts : Sequence[str]
        Every DNS name and IP address under which nodes reach the server.
    now : datetime.datetime
        Start of validity, with a time zone. A time in the past makes an expired
        certificate, which tests need.
    days : int
        How long it is valid.
    """
    if not hosts:
        raise InputError("hosts", "empty", "at least one host name or address")
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    issuer_key = serialization.load_pem_private_key(authority.private_key, None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    # X.509 bounds a common name to 64 characters; names are matched by the list below.
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0][:64])])
    certificate = (
        _builder(subject, issuer.subject, key.public_key(), now, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False
        )
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False
        )
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.public_key()),  # type: ignore[arg-type]
            critical=False,
        )
        .sign(issuer_key, hashes.SHA256())
    )
    return _pair(certificate, key)


def fingerprint(certificate: bytes) -> bytes:
    """SHA-256 of the (first) certificate in a PEM text; what pinning compares."""
    try:
        return x509.load_pem_x509_certificate(certificate).fingerprint(hashes.SHA256())
    except ValueError:
        raise InputError(
            "certificate", "not a PEM certificate", "a file with BEGIN CERTIFICATE"
        ) from None


def is_valid_at(certificate: bytes, moment: datetime.datetime) -> bool:
    """Return whether a certificate is in time at a moment (with a time zone)."""
    fingerprint(certificate)
    loaded = x509.load_pem_x509_certificate(certificate)
    return loaded.not_valid_before_utc <= moment <= loaded.not_valid_after_utc


def days_left(certificate: bytes, moment: datetime.datetime) -> float:
    """Return for how many days a certificate is still good; below 0 it has expired."""
    fingerprint(certificate)
    end = x509.load_pem_x509_certificate(certificate).not_valid_after_utc
    return (end - moment) / datetime.timedelta(days=1)


def names_host(certificate: bytes, host: str) -> bool:
    """Return whether a certificate lists a host name or address (wildcards do not)."""
    loaded = x509.load_pem_x509_certificate(certificate)
    try:
        names = loaded.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return False
    return _host(host) in list(names.value)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    now: datetime.datetime,
    days: int,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def check_host(host: str) -> None:
    """Refuse what is neither a name of a host nor an IP address."""
    _host(host)


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    labels = host.removeprefix("*.").split(".")
    named = all(map(_LABEL.fullmatch, labels)) and not labels[-1].isdigit()
    if not named or len(host) > _LONGEST_HOST:
        allowed = "a host name or an IP address, no port (ä as xn--…)"
        raise InputError("address", f'"{host}"', allowed)
    return x509.DNSName(host)


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    return KeyPair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )
