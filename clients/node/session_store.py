"""A node's secrets that must outlive a process: sealed, in a file of its own.

Open sessions of secure sums, each replaced before its answer leaves and deleted when
its cohort closes, and the node's key for a run. The file has mode 600; every entry is
sealed with AES-GCM under a key in the same folder, bound to its place; what is deleted
is overwritten. The seal keeps secrets out of copies that leave the key out; whoever
reads the whole folder reads the secrets.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import time
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from wallflower.protocol.errors import UnavailableError
from wallflower.protocol.files.sqlite import open_database
from wallflower.protocol.identity.canonical import canonical

_NONCE_BYTES = 12
_SCHEMA = """
CREATE TABLE IF NOT EXISTS secret (
    kind       TEXT NOT NULL,
    node_id    TEXT NOT NULL,
    name       TEXT NOT NULL,
    sealed     BLOB NOT NULL,
    touched_at REAL NOT NULL,
    PRIMARY KEY (kind, node_id, name)
) STRICT, WITHOUT ROWID
"""


class SessionStore:
    """One file of sealed secrets; several processes may have it open.

    Parameters
    ----------
    home : Path
        Where ``sessions.sqlite`` and ``sessions.key`` lie.
    durable : bool
        Flush to the disk before going on. A simulation does without: its nodes do not
        outlive the machine.
    oldest_s : float
        Entries untouched for so long are deleted: their run is over, and nobody said
        so.
    """

    def __init__(
        self, home: Path, *, durable: bool = True, oldest_s: float = 7 * 86_400
    ) -> None:
        self._home = home
        try:
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._cipher = AESGCM(_own_key(home / "sessions.key"))
            self._database = open_database(
                home / "sessions.sqlite",
                wait_s=60.0,
                durable=durable,
                leaves_no_trace=True,
            )
            self._database.execute(_SCHEMA)
            self._database.execute(
                "DELETE FROM secret WHERE touched_at < ?", (time.time() - oldest_s,)
            )
        except (OSError, sqlite3.Error) as error:
            raise UnavailableError(
                f"the node's session store in {home} cannot be opened "
                f"({type(error).__name__}); check the folder's owner and free space"
            ) from None

    def read(self, kind: str, node_id: str, name: str) -> bytes | None:
        """Unseal an entry; None if there is none, or it was tampered with."""
        row = self._database.execute(
            "SELECT sealed FROM secret WHERE (kind, node_id, name) = (?, ?, ?)",
            (kind, node_id, name),
        ).fetchone()
        if row is None:
            return None
        sealed = bytes(row[0])
        try:
            return self._cipher.decrypt(
                sealed[:_NONCE_BYTES],
                sealed[_NONCE_BYTES:],
                canonical("session-store", kind, node_id, name),
            )
        except InvalidTag:
            return None

    def write(self, kind: str, node_id: str, name: str, secret: bytes) -> None:
        """Seal and write an entry; on return it is in the file."""
        self._insert(
            "INSERT INTO secret VALUES (?, ?, ?, ?, ?) ON CONFLICT DO "
            "UPDATE SET sealed = excluded.sealed, touched_at = excluded.touched_at",
            (kind, node_id, name),
            secret,
        )

    def write_once(self, kind: str, node_id: str, name: str, secret: bytes) -> bytes:
        """Write an entry unless there is one; give the one that is there now."""
        self._insert(
            "INSERT INTO secret VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (kind, node_id, name),
            secret,
        )
        kept = self.read(kind, node_id, name)
        if kept is None:
            raise UnavailableError(
                f"an entry of the node's session store in {self._home} is damaged; "
                "move sessions.sqlite away"
            )
        return kept

    def delete(self, kind: str, node_id: str, name: str) -> None:
        """Delete and overwrite an entry."""
        self._database.execute(
            "DELETE FROM secret WHERE (kind, node_id, name) = (?, ?, ?)",
            (kind, node_id, name),
        )

    def close(self) -> None:
        """Close the file; the entries stay in it."""
        self._database.close()

    def _insert(
        self, statement: str, place: tuple[str, str, str], secret: bytes
    ) -> None:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        bound = canonical("session-store", *place)
        sealed = nonce + self._cipher.encrypt(nonce, secret, bound)
        try:
            self._database.execute(statement, (*place, sealed, time.time()))
        except sqlite3.Error as error:
            raise UnavailableError(
                f"the node's session store cannot be written ({type(error).__name__}); "
                "nothing was answered"
            ) from None


def _own_key(path: Path) -> bytes:
    """Read the sealing key; the first of several processes makes it, whole."""
    if not path.exists():
        draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
        with os.fdopen(
            os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb"
        ) as file:
            file.write(secrets.token_bytes(32))
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(draft)
        draft.unlink()
    key = path.read_bytes()
    if len(key) != 32:
        raise OSError("the sealing key is damaged")
    return key
