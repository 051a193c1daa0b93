"""Keys and certificates as files: one format for the operator, nodes and tools.

A node's folder holds ``identity.key`` (Ed25519, PKCS #8 PEM), ``identity.certificate``
(its enrolment certificate, armoured), ``enrolment.pub`` (whom it believes),
``revoked.txt`` (serials no longer believed) and ``ca.crt`` (TLS). Private files are
created for their owner alone, never overwritten, and refused when everybody may read
them.
"""

from __future__ import annotations

import base64
import binascii
import os
import stat
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

from wallflower.protocol.errors import ConfigError, ProtocolError
from wallflower.protocol.files.watched import RevokedSerials
from wallflower.protocol.identity.enrolment import Certificate, NodeIdentity, Trust

IDENTITY_KEY = "identity.key"
IDENTITY_CERTIFICATE = "identity.certificate"
ENROLMENT_PUBLIC = "enrolment.pub"
INVITER_PUBLIC = "inviter.pub"
REVOKED = "revoked.txt"
REVOKED_NODES = "revoked-nodes.txt"
AUTHORITY_CERTIFICATE = "ca.crt"

_HEAD = "-----BEGIN WALLFLOWER ENROLMENT CERTIFICATE-----"
_FOOT = "-----END WALLFLOWER ENROLMENT CERTIFICATE-----"


def write_private(path: Path, content: bytes) -> None:
    """Create a file only its owner may read; an existing one is never replaced."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ConfigError(
            str(path), "exists already; keys are never overwritten, move it away first"
        ) from None
    with os.fdopen(handle, "wb") as file:
        file.write(content)


def read_private(path: Path) -> bytes:
    """Read a private file; refuse one that every user of the machine may read."""
    content = _read(path)
    if path.stat().st_mode & stat.S_IROTH:
        raise ConfigError(str(path), "is readable by everybody; run chmod 600 on it")
    return content


def private_key_pem(seed: bytes) -> bytes:
    """Return an Ed25519 private key as PKCS #8 PEM."""
    return Ed25519PrivateKey.from_private_bytes(seed).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def public_key_pem(public_key: bytes) -> bytes:
    """Return an Ed25519 public key as PEM."""
    return Ed25519PublicKey.from_public_bytes(public_key).public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def armour(certificate: Certificate) -> bytes:
    """Return an enrolment certificate as text."""
    body = base64.b64encode(certificate.to_bytes()).decode()
    return "\n".join([_HEAD, *textwrap.wrap(body, 64), _FOOT, ""]).encode()


def read_seed(path: Path) -> bytes:
    """Read the 32 secret bytes of an Ed25519 key file."""
    try:
        key = serialization.load_pem_private_key(read_private(path), None)
    except (ValueError, TypeError):
        raise ConfigError(str(path), "is not an Ed25519 key in PEM form") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(str(path), "is not an Ed25519 key")
    return key.private_bytes_raw()


def read_public(path: Path) -> bytes:
    """Read the 32 bytes of an Ed25519 public key file."""
    body = _read(path)
    try:
        key = serialization.load_pem_public_key(body)
    except ValueError:
        raise ConfigError(str(path), "is not an Ed25519 public key in PEM") from None
    if not isinstance(key, Ed25519PublicKey):
        raise ConfigError(str(path), "is not an Ed25519 public key")
    return key.public_bytes_raw()


def read_certificate(path: Path) -> Certificate:
    """Read an armoured enrolment certificate; says nothing about who signed it."""
    lines = _read(path).decode("ascii", errors="replace").split()
    text = " ".join(lines)
    if not (text.startswith(_HEAD) and text.endswith(_FOOT)):
        raise ConfigError(str(path), "is not an enrolment certificate")
    body = text.removeprefix(_HEAD).removesuffix(_FOOT).replace(" ", "")
    try:
        return Certificate.from_bytes(base64.b64decode(body, validate=True))
    except (binascii.Error, ProtocolError):
        raise ConfigError(str(path), "is a garbled enrolment certificate") from None


def read_revoked(path: Path) -> frozenset[int]:
    """Read the list of revoked serials; a missing file means none."""
    return RevokedSerials(path).read()


def read_identity(folder: Path) -> NodeIdentity:
    """Read a node's key and certificate."""
    certificate = read_certificate(folder / IDENTITY_CERTIFICATE)
    seed = read_seed(folder / IDENTITY_KEY)
    return NodeIdentity.from_private_bytes(certificate.node_id, seed, certificate)


def read_trust(folder: Path, clock: Callable[[], float] = time.time) -> Trust:
    """Read whom to believe: the enrolment key, and the revoked serials as they are."""
    return Trust(
        read_public(folder / ENROLMENT_PUBLIC), clock, RevokedSerials(folder / REVOKED)
    )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(
            str(path), "no such file; `wallflower keys` makes it"
        ) from None
    except OSError as error:
        raise ConfigError(str(path), f"cannot be read ({error.strerror})") from None
