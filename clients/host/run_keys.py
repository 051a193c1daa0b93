"""A node's key for a run, the same in every process that serves the node.

The server remembers the public key that a node announced and does not ask again, so a
second process must not come with another one.
"""

from __future__ import annotations

from collections.abc import Callable

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from wallflower.clients.node.session_store import SessionStore
from wallflower.clients.secure_sum.keyring import ClientKeyring, OwnKey


def stored_keyring(store: SessionStore, node_id: str) -> Callable[[str], ClientKeyring]:
    """Give a maker of keyrings whose run key lies in the node's store."""

    def keyring(run_id: str) -> ClientKeyring:
        fresh = X25519PrivateKey.generate().private_bytes_raw()
        kept = store.write_once("run-key", node_id, run_id, fresh)
        made = ClientKeyring(run_id)
        private = X25519PrivateKey.from_private_bytes(kept)
        made.adopt(OwnKey.of(private, whole_run=True))
        return made

    return keyring
