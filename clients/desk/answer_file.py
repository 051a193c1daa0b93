"""A node's stored answers on disk, so that a restart answers as before or not at all.

For nodes that live longer than a process. A request that was begun and not finished
when the process ended is answered with ``interrupted``: nobody knows how far it got, so
it must not be worked on again.
"""

from __future__ import annotations

import secrets
import sqlite3
from pathlib import Path
from types import TracebackType

from wallflower.protocol.errors import JournalError
from wallflower.protocol.files.private import private_file
from wallflower.protocol.identity.tokens import INSTANCE_BYTES
from wallflower.protocol.messages.answers import (
    INTERRUPTED,
    REUSED,
    Progress,
    StoredAnswer,
    digest,
)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS store (instance BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS answer (
    request_id TEXT PRIMARY KEY,
    request    BLOB NOT NULL,
    body       BLOB,
    failure    TEXT
) STRICT;
"""


class AnswerFile:
    """An `AnswerStore` in one SQLite file (WAL, mode 0600); one run, one node.

    `instance` names the file: a desk that sees it again knows that nothing was
    forgotten. Answers hold sealed shares only, but the file belongs to the node alone.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._running: set[str] = set()
        try:
            private_file(path)
            self._database = sqlite3.connect(path, isolation_level=None)
        except (OSError, sqlite3.Error) as error:
            raise self._trouble("opened", error) from None
        try:
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = FULL")
            self._database.executescript(_SCHEMA)
            self.instance = self._instance()
        except sqlite3.Error as error:
            self._database.close()
            raise self._trouble("opened", error) from None

    def __enter__(self) -> AnswerFile:
        """Use as a context manager: closed at the end."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the file."""
        self._database.close()

    def begin(self, key: str, body: bytes) -> Progress | StoredAnswer:
        """Say whether to work on a request, wait for it, or send what is stored."""
        request = digest(key, body)
        try:
            row = self._database.execute(
                "SELECT request, body, failure FROM answer WHERE request_id = ?",
                (key,),
            ).fetchone()
            if row is None:
                self._database.execute(
                    "INSERT INTO answer VALUES (?, ?, NULL, NULL)", (key, request)
                )
        except sqlite3.Error as error:
            raise self._trouble("written", error) from None
        if row is None:
            self._running.add(key)
            return Progress.NEW
        known, answer, failure = row
        if known != request:
            return StoredAnswer(failure=REUSED)
        if key in self._running:
            return Progress.RUNNING
        if answer is None and failure is None:
            return self.finish(key, StoredAnswer(failure=INTERRUPTED))
        return StoredAnswer(answer or b"", failure)

    def finish(self, key: str, answer: StoredAnswer) -> StoredAnswer:
        """Store the answer of a begun request; the first one stays."""
        self._running.discard(key)
        body = answer.body if answer.failure is None else None
        try:
            self._database.execute(
                "UPDATE answer SET body = ?, failure = ? WHERE request_id = ? "
                "AND body IS NULL AND failure IS NULL",
                (body, answer.failure, key),
            )
            stored, failure = self._database.execute(
                "SELECT body, failure FROM answer WHERE request_id = ?", (key,)
            ).fetchone()
        except sqlite3.Error as error:
            raise self._trouble("written", error) from None
        return StoredAnswer(stored or b"", failure)

    def _instance(self) -> bytes:
        with self._database:
            row = self._database.execute("SELECT instance FROM store").fetchone()
            if row is not None:
                instance: bytes = row[0]
                return instance
            fresh = secrets.token_bytes(INSTANCE_BYTES)
            self._database.execute("INSERT INTO store VALUES (?)", (fresh,))
            return fresh

    def _trouble(self, what: str, error: Exception) -> JournalError:
        return JournalError(f"answers {self._path} cannot be {what}: {error}")
