"""Where a node keeps its secure-sum sessions between the stages of a cohort.

At a desk, or in one process, that is memory. Where Flower carries the work, successive
messages may reach different processes of the node, so the sessions lie in a file of the
node's own, mode 600: sealed under a key of the same home, each replaced before its
answer leaves, deleted (and overwritten) when the cohort closes. Flower's Context is no
place for them: it is shipped with every message and shown to the SuperNode.
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

from protocol.errors import UnavailableError
from protocol.session import ClientSession

_NONCE_BYTES = 12
_SCHEMA = """
CREATE TABLE IF NOT EXISTS session (
    cohort_id  TEXT PRIMARY KEY,
    sealed     BLOB NOT NULL,
    touched_at REAL NOT NULL
) STRICT
"""


class Sessions(Protocol):
    """The open sessions of one node, by cohort."""

    def get(self, cohort_id: str) -> ClientSession | None:
        """Give the session of a cohort, or None where none is open."""
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
        """Give the session of a cohort, or None where none is open."""
        return self._open.get(cohort_id)

    def keep(self, cohort_id: str, session: ClientSession) -> None:
        """Keep a session."""
        self._open[cohort_id] = session

    def drop(self, cohort_id: str) -> None:
        """Close a session and forget its secrets."""
        session = self._open.pop(cohort_id, None)
        if session is not None:
            session.close()


class StoredSessions:
    """Sessions of a node whose every message may be served by another process.

    Parameters
    ----------
    home : Path
        The node's own folder; ``sessions.sqlite`` and ``sessions.key`` lie in it.
    restore : Callable[[bytes], ClientSession]
        Makes a session of a snapshot.
    oldest_s : float
        Sessions untouched for so long are deleted: their cohort is over, and the
        server never said so.
    """

    def __init__(
        self,
        home: Path,
        restore: Callable[[bytes], ClientSession],
        *,
        oldest_s: float = 7 * 86_400,
    ) -> None:
        self._restore = restore
        try:
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._cipher = AESGCM(_own_key(home / "sessions.key"))
            path = home / "sessions.sqlite"
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            self._database = sqlite3.connect(path, timeout=30.0, isolation_level=None)
            # Deleted sessions are overwritten with zeros; no copy stays in a log file.
            self._database.execute("PRAGMA secure_delete = ON")
            self._database.execute("PRAGMA journal_mode = TRUNCATE")
            self._database.execute(_SCHEMA)
            self._database.execute(
                "DELETE FROM session WHERE touched_at < ?", (time.time() - oldest_s,)
            )
        except (OSError, sqlite3.Error) as error:
            raise UnavailableError(
                f"the node's session store in {home} cannot be opened "
                f"({type(error).__name__}); check the folder's owner and free space"
            ) from None

    def get(self, cohort_id: str) -> ClientSession | None:
        """Unseal the session of a cohort; one that was tampered with is gone."""
        row = self._database.execute(
            "SELECT sealed FROM session WHERE cohort_id = ?", (cohort_id,)
        ).fetchone()
        if row is None:
            return None
        sealed = bytes(row[0])
        try:
            snapshot = self._cipher.decrypt(
                sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], cohort_id.encode()
            )
        except InvalidTag:
            return None
        return self._restore(snapshot)

    def keep(self, cohort_id: str, session: ClientSession) -> None:
        """Seal and write a session; on return it is on the disk."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = nonce + self._cipher.encrypt(
            nonce, session.snapshot(), cohort_id.encode()
        )
        try:
            self._database.execute(
                "INSERT INTO session VALUES (?, ?, ?) ON CONFLICT (cohort_id) DO "
                "UPDATE SET sealed = excluded.sealed, touched_at = excluded.touched_at",
                (cohort_id, sealed, time.time()),
            )
        except sqlite3.Error as error:
            # Without the record a later process could answer a second time.
            session.close()
            raise UnavailableError(
                f"the node's session store cannot be written ({type(error).__name__}); "
                "nothing was answered"
            ) from None

    def drop(self, cohort_id: str) -> None:
        """Delete a session and forget its secrets."""
        self._database.execute("DELETE FROM session WHERE cohort_id = ?", (cohort_id,))

    def close(self) -> None:
        """Close the file; the sessions stay in it."""
        self._database.close()


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
