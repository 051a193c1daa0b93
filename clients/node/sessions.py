"""Where a node keeps its secure-sum sessions between the stages of a cohort.

At a gRPC server, or in one process, that is memory. Where Flower carries the work, or
the node comes by now and then, successive messages may reach different processes of the
node, so what must outlive a process lies in a file of the node's own: open sessions,
each replaced before its answer leaves and deleted when its cohort closes, and the
node's key for a run. Flower's Context is no place for them: it is shipped with every
message and shown to the SuperNode.

The file has mode 600; every entry is sealed with AES-GCM under a key in the same
folder, bound to its place; what is deleted is overwritten. The seal keeps secrets out
of copies that leave the key out; whoever reads the whole folder reads the secrets.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from wallflower.protocol.errors import UnavailableError
from wallflower.protocol.files.sqlite import open_database
from wallflower.protocol.identity.canonical import canonical
from wallflower.protocol.secure_sum.session import ClientSession

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


class Sessions(Protocol):
    """The open sessions of one node, by cohort."""

    def get(self, cohort_id: str) -> ClientSession | None:
        """Return the session of a cohort, or None where none is open."""
        ...

    def keep(self, cohort_id: str, session: ClientSession) -> None:
        """Keep a session as it is now; called before its answer leaves."""
        ...

    def drop(self, cohort_id: str) -> None:
        """Close a session and forget its secrets."""
        ...


class MemorySessions:
    """Sessions of a node that lives in one process."""

    def __init__(self) -> None:
        self._open: dict[str, ClientSession] = {}

    def get(self, cohort_id: str) -> ClientSession | None:
        """Return the session of a cohort, or None where none is open."""
        return self._open.get(cohort_id)

    def keep(self, cohort_id: str, session: ClientSession) -> None:
        """Keep a session."""
        self._open[cohort_id] = session

    def drop(self, cohort_id: str) -> None:
        """Close a session and forget its secrets."""
        session = self._open.pop(cohort_id, None)
        if session is not None:
            session.close()


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


class StoredSessions:
    """Sessions of a node whose every message may be served by another process.

    Parameters
    ----------
    store : SessionStore
        The file; nodes of one machine may share it.
    node_id : str
        Whose sessions.
    restore : Callable[[bytes], ClientSession]
        Makes a session of a snapshot.
    """

    def __init__(
        self,
        store: SessionStore,
        node_id: str,
        restore: Callable[[bytes], ClientSession],
    ) -> None:
        self._store = store
        self._node_id = node_id
        self._restore = restore

    def get(self, cohort_id: str) -> ClientSession | None:
        """Unseal the session of a cohort; one that was tampered with is gone."""
        snapshot = self._store.read("session", self._node_id, cohort_id)
        return None if snapshot is None else self._restore(snapshot)

    def keep(self, cohort_id: str, session: ClientSession) -> None:
        """Seal and write a session; on return it is on the disk."""
        try:
            self._store.write("session", self._node_id, cohort_id, session.snapshot())
        except BaseException:
            # Without the record a later process could answer a second time.
            session.close()
            raise

    def drop(self, cohort_id: str) -> None:
        """Delete a session and forget its secrets."""
        self._store.delete("session", self._node_id, cohort_id)


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
