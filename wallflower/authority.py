"""X.509 for a consortium: one authority, server certificates, Flower's node keys.

P-384 throughout, which is what Flower's node authentication demands. Certificates start
five minutes in the past, so that a node whose clock is a little slow is not locked out.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from protocol.errors import InputError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

CLOCK_TOLERANCE = datetime.timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A private key and what may be shown of it, both as files hold them."""

    private: bytes
    public: bytes

    def __repr__(self) -> str:
        """Hide the private half."""
        return f"KeyPair(public={len(self.public)} bytes)"


def make_authority(name: str, *, days: int) -> KeyPair:
    """Make a certificate authority: its private key and its certificate, as PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP384R1())
    subject = _subject(name)
    usage = _usage(certificate_signing=True)
    builder = (
        _builder(subject, subject, key, days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(_identifier(key), critical=False)
    )
    return _signed(builder, key, key)


def issue_server(
    authority: KeyPair,
    addresses: Sequence[str],
    *,
    days: int,
    starts: datetime.datetime | None = None,
) -> KeyPair:
    """Issue a server certificate that is valid for these names and addresses.

    `starts` is for tests of expired and future certificates.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    if not addresses:
        raise InputError("addresses", "empty", "at least one name or address")
    issuer = x509.load_pem_x509_certificate(authority.public)
    issuer_key = serialization.load_pem_private_key(authority.private, None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP384R1())
    names = x509.SubjectAlternativeName([_general_name(a) for a in addresses])
    purpose = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    constraints = x509.BasicConstraints(ca=False, path_length=None)
    builder = (
        _builder(_subject(addresses[0]), issuer.subject, key, days, starts)
        .add_extension(constraints, critical=True)
        .add_extension(_usage(certificate_signing=False), critical=True)
        .add_extension(purpose, critical=False)
        .add_extension(names, critical=False)
        .add_extension(_authority_identifier(issuer_key), critical=False)
    )
    return _signed(builder, issuer_key, key)


def make_flower_key() -> KeyPair:
    """Make a SuperNode's key pair in OpenSSH form (ECDSA P-384)."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    return KeyPair(private, public + b"\n")


def expiry_of(certificate: bytes) -> datetime.datetime:
    """Tell when a PEM certificate ends."""
    from cryptography import x509

    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def _subject(name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    organisation = x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Wallflower")
    common = x509.NameAttribute(NameOID.COMMON_NAME, name[:64])
    return x509.Name([organisation, common])


def _general_name(address: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        pass
    try:
        return x509.DNSName(address)
    except ValueError:
        allowed = "a host name or an IP address"
        raise InputError("address", address, allowed) from None


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    days: int,
    starts: datetime.datetime | None = None,
) -> x509.CertificateBuilder:
    from cryptography import x509

    now = datetime.datetime.now(datetime.UTC)
    begin = now - CLOCK_TOLERANCE if starts is None else starts
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + datetime.timedelta(days=days))
    )


def _usage(*, certificate_signing: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not certificate_signing,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=certificate_signing,
        crl_sign=certificate_signing,
        encipher_only=False,
        decipher_only=False,
    )


def _identifier(key: ec.EllipticCurvePrivateKey) -> x509.SubjectKeyIdentifier:
    from cryptography import x509

    return x509.SubjectKeyIdentifier.from_public_key(key.public_key())


def _authority_identifier(
    key: ec.EllipticCurvePrivateKey,
) -> x509.AuthorityKeyIdentifier:
    from cryptography import x509

    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())


def _signed(
    builder: x509.CertificateBuilder,
    issuer_key: ec.EllipticCurvePrivateKey,
    key: ec.EllipticCurvePrivateKey,
) -> KeyPair:
    from cryptography.hazmat.primitives import hashes, serialization

    certificate = builder.sign(issuer_key, hashes.SHA384())
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return KeyPair(private, certificate.public_bytes(serialization.Encoding.PEM))
