"""Nodes that fail when they are asked to show an arm: their people are in no sum."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

import pytest

from wallflower.clients.node.node import Node
from wallflower.protocol.wire.node_pb2 import NodeRequest


@contextmanager
def nodes_fail(
    names: Collection[str], arms: Collection[str] | None = None
) -> Iterator[None]:
    """Make nodes of these names fail, for the arms named or for all."""
    handle = Node.handle

    async def fail(node: Node, body: bytes) -> bytes:
        for task in NodeRequest.FromString(body).tasks:
            spec = task.stage.spec
            asked = bool(task.stage.users) and spec.arm_name
            if node.node_id in names and asked and (arms is None or asked in arms):
                raise RuntimeError("the node's disk is broken")
        return await handle(node, body)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Node, "handle", fail)
        yield
