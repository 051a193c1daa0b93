"""Who lives with a node, and who of them cannot be asked.

The question is the same bytes on both sides: a node that only polls answers it before
it is asked. The second answer is one bit for each user of the first. A node with ten
million users says it in 1.25 MB, one with nobody to leave out in no byte at all. A mark
of the names shows that both sides mean the same description.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from wallflower.protocol.errors import MalformedMessageError
from wallflower.protocol.wire.node_pb2 import Describe, NodeRequest, Task

DESCRIBE: Final = "describe"


@lru_cache(maxsize=16)
def describe_body(run_id: str) -> bytes:
    """Return the NodeRequest that asks a node who lives with it."""
    tasks = [Task(task_id=DESCRIBE, describe=Describe())]
    return NodeRequest(run_id=run_id, tasks=tasks).SerializeToString(deterministic=True)


Mask = npt.NDArray[np.bool_]  # True: this user cannot be asked
_MARK_BYTES = 8


def mark_users(users: Sequence[str]) -> int:
    """Return a number that stands for these names in this order."""
    names = hashlib.sha256(json.dumps(users).encode()).digest()
    return int.from_bytes(names[:_MARK_BYTES], "big")


def pack_left_out(users: Sequence[str], left_out: Collection[str]) -> bytes:
    """Write which of the users are left out; zero bytes at the end are not written.

    Examples
    --------
    >>> pack_left_out(["a", "b", "c"], {"b"}).hex()
    '02'
    """
    if not left_out:
        return b""
    flags = np.fromiter((user in left_out for user in users), np.bool_, len(users))
    return np.packbits(flags, bitorder="little").tobytes().rstrip(b"\0")


def unpack_left_out(packed: bytes, users: int) -> Mask:
    """Read what `pack_left_out` wrote for so many users.

    Raises MalformedMessageError for bits that stand for nobody.
    """
    if len(packed) > (users + 7) // 8:
        raise MalformedMessageError("a node leaves out more users than it has")
    whole = np.zeros((users + 7) // 8, np.uint8)
    whole[: len(packed)] = np.frombuffer(packed, np.uint8)
    flags = np.unpackbits(whole, bitorder="little").astype(np.bool_)
    if flags[users:].any():
        raise MalformedMessageError("a node leaves out more users than it has")
    return flags[:users]
