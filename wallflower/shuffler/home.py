"""A shuffler's folder: its keys, the operator's files and the released cohorts."""

from __future__ import annotations

import datetime
import hashlib
import os
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

# What the operator gets, besides the address.
OPERATOR = "operator"
PUBLIC_KEY = "shuffler.pub"
AUTHORITY = "ca.crt"
TOKEN = "token"  # noqa: S105 - the name of a file
_PRIVATE_KEY, _TLS_CERTIFICATE, _TLS_KEY = "shuffler.key", "tls.crt", "tls.key"


class ReleasedCohorts:
    """The cohorts whose batch was released, on disk before the batch leaves.

    Each is an empty file named by the digest of the cohort's description. The file
    system lets only one of two requests create it.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder

    def claim(self, context: bytes) -> bool:
        """Record a cohort as released; return False if it was before."""
        path = self._folder / context.hex()
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return False
        os.close(handle)
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return True


@dataclass(frozen=True, slots=True)
class Home:
    """Everything a shuffler keeps on disk; nothing of it is about any user."""

    key: OpeningKey
    tls: KeyPair
    token: bytes
    released: ReleasedCohorts

    @property
    def fingerprint(self) -> str:
        """The digest of the public key, which nodes pin."""
        return hashlib.sha256(self.key.public).hexdigest()


def open_home(folder: Path, addresses: Sequence[str]) -> Home:
    """Return the shuffler's folder; make its keys if there are none.

    `addresses` go into the TLS certificate.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (folder / _PRIVATE_KEY).exists():
        _make_keys(folder, addresses)
    return Home(
        OpeningKey(HYBRID, read_private(folder / _PRIVATE_KEY)),
        KeyPair(
            (folder / _TLS_CERTIFICATE).read_bytes(), read_private(folder / _TLS_KEY)
        ),
        read_private(folder / OPERATOR / TOKEN),
        ReleasedCohorts(folder / "released"),
    )


def _make_keys(folder: Path, addresses: Sequence[str]) -> None:
    now = datetime.datetime.now(datetime.UTC)
    authority = make_authority("Wallflower shuffler", now=now)
    tls = make_server_certificate(authority, addresses, now=now)
    key = OpeningKey.generate(HYBRID)
    operator_folder = folder / OPERATOR
    operator_folder.mkdir(mode=0o700, exist_ok=True)
    (operator_folder / PUBLIC_KEY).write_bytes(key.public)
    (operator_folder / AUTHORITY).write_bytes(authority.certificate)
    _write_again(operator_folder / TOKEN, secrets.token_urlsafe(32).encode())
    (folder / _TLS_CERTIFICATE).write_bytes(tls.certificate)
    _write_again(folder / _TLS_KEY, tls.private_key)
    # Written last: a folder without it is unfinished, and is made again.
    write_private(folder / _PRIVATE_KEY, key.private_bytes())


def _write_again(path: Path, content: bytes) -> None:
    if path.exists():
        path.unlink()  # left by a start that was interrupted
    write_private(path, content)
