"""Nodes in memory that vanish as a rule says: by arm, by people, by their outcomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from unittest import mock

from wallflower.cli import main as command_line
from wallflower.engines import fast
from wallflower.protocol.messages.port import NodeHandler, NodeId, Request
from wallflower.protocol.wire.node_pb2 import CohortStage, NodeRequest
from wallflower.strategy.transport.memory import MemoryTransport
from wallflower.strategy.transport.pending_requests import Inbox

# Whether a node is gone when it is asked for a stage of a cohort.
Gone = Callable[[NodeId, CohortStage], bool]


class VanishingPort(MemoryTransport):
    """A memory transport on which a rule makes single requests fail."""

    def __init__(self, handlers: Mapping[NodeId, NodeHandler], gone: Gone) -> None:
        super().__init__(handlers)
        self._gone = gone

    def _post(self, request: Request, inbox: Inbox, deadline: float) -> None:
        tasks = NodeRequest.FromString(request.body).tasks
        stages = [task.stage for task in tasks if task.WhichOneof("kind") == "stage"]
        if any(self._gone(request.node_id, stage) for stage in stages):
            inbox.refuse(request, "node-gone")
            return
        super()._post(request, inbox, deadline)


def is_fifth_node_in_first_arm(node: NodeId, stage: CohortStage) -> bool:
    """Every fifth node vanishes when it is asked about the first arm."""
    return stage.spec.arm == 0 and int(node.removeprefix("node-")) % 5 == 0


def main() -> None:
    """Run the command line on engine fast, with such nodes, in a process of its own."""

    def port(handlers: Mapping[NodeId, NodeHandler]) -> VanishingPort:
        return VanishingPort(handlers, is_fifth_node_in_first_arm)

    with mock.patch.object(fast, "MemoryTransport", port):
        command_line()


if __name__ == "__main__":
    main()
