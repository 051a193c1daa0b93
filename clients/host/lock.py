"""One message at a time on one node, whatever processes serve it.

The server sends a node one message at a time; a lying server could send two at once and
hope that two processes answer from the same state. The second one is turned away.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wallflower.protocol.errors import RefusalError
from wallflower.protocol.refusals import RefusalCode


@contextmanager
def node_lock(home: Path) -> Iterator[None]:
    """Hold a node's lock; RefusalError ``node-busy`` if another message has it.

    The kernel frees the lock when its process dies.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(home / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RefusalError(
                RefusalCode.NODE_BUSY,
                "this node is still working on an earlier message",
            ) from None
        yield
    finally:
        os.close(lock)
