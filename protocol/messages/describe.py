"""The question who lives with a node: the same bytes on both sides.

A node that only polls answers it before it is asked, so both must agree on what it is.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from wallflower.protocol.wire.node_pb2 import Describe, NodeRequest, Task

DESCRIBE: Final = "describe"


@lru_cache(maxsize=16)
def describe_body(run_id: str) -> bytes:
    """Return the NodeRequest that asks a node who lives with it."""
    tasks = [Task(task_id=DESCRIBE, describe=Describe())]
    return NodeRequest(run_id=run_id, tasks=tasks).SerializeToString(deterministic=True)
