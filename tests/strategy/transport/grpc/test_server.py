from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager

from tests.support.grpc_fixtures import open_office
from tests.support.transport_contract import StoppingTransportContract
from wallflower.protocol.messages.port import NodeHandler, NodeTransport


class TestGrpcServer(StoppingTransportContract):
    """The transport contract over loopback gRPC with TLS and real nodes."""

    def open_transport(
        self, handlers: Mapping[str, NodeHandler]
    ) -> AbstractAsyncContextManager[NodeTransport]:
        return open_office(handlers)
