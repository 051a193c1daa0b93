"""Where a node keeps its secure-sum sessions between the stages of a cohort.

At a desk, or in one process, that is memory. Where Flower carries the work, successive
messages may reach different processes of the node, so the sessions lie in a file of the
node's own (`clients.session_store`). Flower's Context is no place for them: it is
shipped with every message and shown to the SuperNode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from wallflower.clients.node.session_store import SessionStore
from wallflower.protocol.secure_sum.session import ClientSession


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
