"""A node's keys for a run, the same in every process that serves the node.

The server remembers the public key that a node announced and does not ask again, so a
second process must not come with another one.
"""

from __future__ import annotations

from collections.abc import Callable

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from wallflower.clients.node.sessions import SessionStore
from wallflower.clients.secure_sum.keyring import ClientKeyring, OwnKey
from wallflower.protocol.identity.canonical import canonical


class StoredKeyShares:
    """Shares of a run's keys in the node's own sealed store."""

    def __init__(self, store: SessionStore, node_id: str, run_id: str) -> None:
        self._store = store
        self._node_id = node_id
        self._run_id = run_id

    def read(self, name: str) -> bytes | None:
        """Return a share, or None; one that was tampered with is gone."""
        return self._store.read("share", self._node_id, self._place(name))

    def write(self, name: str, secret: bytes) -> None:
        """Keep a share; on return it is on the disk."""
        self._store.write("share", self._node_id, self._place(name), secret)

    def delete(self, name: str) -> None:
        """Delete and overwrite a share."""
        self._store.delete("share", self._node_id, self._place(name))

    def _place(self, name: str) -> str:
        return canonical(self._run_id, name).hex()


def stored_keyring(store: SessionStore, node_id: str) -> Callable[[str], ClientKeyring]:
    """Return a maker of keyrings whose run key lies in the node's store."""

    def keyring(run_id: str) -> ClientKeyring:
        fresh = X25519PrivateKey.generate().private_bytes_raw()
        kept = store.write_once("run-key", node_id, run_id, fresh)
        made = ClientKeyring(run_id, key_shares=StoredKeyShares(store, node_id, run_id))
        private = X25519PrivateKey.from_private_bytes(kept)
        made.adopt(OwnKey.of(private, whole_run=True))
        return made

    return keyring
