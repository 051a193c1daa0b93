"""The one port through which the server reaches nodes.

*Ask these nodes, give me answers as they arrive, until this deadline.* Adapters: the
gRPC gRPC server, Flower's grid, in memory, fault-injecting. A request is answered at
most once; the same request id always gets the same stored answer.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import NamedTuple, Protocol

from wallflower.protocol.refusals import RefusalCode

NodeId = str


# Why a user is not shown an arm. Nodes count nobody else to the server: whoever was
# shown it is in their answer.
BEFORE_SHOWN: frozenset[str] = frozenset(
    (
        RefusalCode.BUDGET_EXCEEDED,
        RefusalCode.USER_REPEATED,
        RefusalCode.USER_UNKNOWN,
    )
)


class Request(NamedTuple):
    """One message to the node `node_id`; `request_id` makes a repetition harmless.

    `body` is a serialized ``wallflower.v1.NodeRequest``.
    """

    node_id: NodeId
    request_id: str
    body: bytes


class Answer(NamedTuple):
    """A node's reply, or the reason why there will be none.

    `node_id` and `request_id` say what is answered, `body` is a serialized
    ``wallflower.v1.NodeAnswer``. `failure` is None for a reply, else a stable
    kebab-case word such as ``node-gone``, ``too-large``, ``not-connected``.
    """

    node_id: NodeId
    request_id: str
    body: bytes = b""
    failure: str | None = None


class NodeTransport(Protocol):
    """How the orchestrator talks to nodes."""

    async def nodes(self) -> Sequence[NodeId]:
        """Name the nodes that can be asked now."""
        ...

    def ask(
        self, requests: Sequence[Request], *, timeout_s: float
    ) -> AsyncGenerator[Answer, None]:
        """Send all requests; yield answers as they come; end at the deadline.

        Sending starts with the first ``anext``. Ends early when every request is
        answered or has failed. A request without an Answer when the iterator ends was
        not answered in time. Closing the iterator early (use ``contextlib.aclosing``)
        abandons the rest; late answers are refused. A handler runs at most once per
        (node, request id): asking again gives the stored answer, or the failure
        ``abandoned`` if nobody waited for it any more.
        """
        ...


class NodeHandler(Protocol):
    """A node's side of the port: what the adapters call on a node."""

    async def handle(self, body: bytes) -> bytes:
        """Answer one NodeRequest with one NodeAnswer, both serialized."""
        ...
