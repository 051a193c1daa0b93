"""A shuffler's folder: its keys, what it hands to the operator, and what it gave."""

from __future__ import annotations

import datetime
import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from wallflower.protocol.files.keyfiles import read_private, write_private
from wallflower.protocol.identity.certificates import (
    KeyPair,
    make_authority,
    make_server_certificate,
)
from wallflower.protocol.secure_sum.shuffle.seals import HYBRID, OpeningKey
from wallflower.shuffler.given import Given

# What the operator gets, besides the address.
OPERATOR = "operator"
PUBLIC_KEY = "shuffler.pub"
AUTHORITY = "ca.crt"
TOKEN = "token"  # noqa: S105 - the name of a file
_PRIVATE_KEY, _TLS_CERTIFICATE, _TLS_KEY = "shuffler.key", "tls.crt", "tls.key"


@dataclass(frozen=True, slots=True)
class Home:
    """All that a shuffler keeps; nothing of it is about anybody."""

    key: OpeningKey
    tls: KeyPair
    token: bytes
    given: Given

    @property
    def fingerprint(self) -> str:
        """What nodes pin."""
        return hashlib.sha256(self.key.public).hexdigest()


def open_home(folder: Path, addresses: Sequence[str]) -> Home:
    """Read a folder, or make its keys; `addresses` go into the TLS certificate."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (folder / _PRIVATE_KEY).exists():
        _make(folder, addresses)
    return Home(
        OpeningKey(HYBRID, read_private(folder / _PRIVATE_KEY)),
        KeyPair(
            (folder / _TLS_CERTIFICATE).read_bytes(), read_private(folder / _TLS_KEY)
        ),
        read_private(folder / OPERATOR / TOKEN),
        Given(folder / "given"),
    )


def _make(folder: Path, addresses: Sequence[str]) -> None:
    now = datetime.datetime.now(datetime.UTC)
    authority = make_authority("Wallflower shuffler", now=now)
    tls = make_server_certificate(authority, addresses, now=now)
    key = OpeningKey.generate(HYBRID)
    handed = folder / OPERATOR
    handed.mkdir(mode=0o700, exist_ok=True)
    (handed / PUBLIC_KEY).write_bytes(key.public)
    (handed / AUTHORITY).write_bytes(authority.certificate)
    _anew(handed / TOKEN, secrets.token_urlsafe(32).encode())
    (folder / _TLS_CERTIFICATE).write_bytes(tls.certificate)
    _anew(folder / _TLS_KEY, tls.private_key)
    # Last: a folder without it was not finished, and is made again.
    write_private(folder / _PRIVATE_KEY, key.private_bytes())


def _anew(path: Path, content: bytes) -> None:
    if path.exists():
        path.unlink()  # of a folder that was never finished
    write_private(path, content)
