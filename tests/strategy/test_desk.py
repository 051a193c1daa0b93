from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager

from protocol.port import NodeHandler, NodePort
from tests.strategy.desk_fixtures import open_office
from tests.strategy.port_contract import StoppingPortContract


class TestDesk(StoppingPortContract):
    """The port contract over loopback gRPC with TLS and real nodes."""

    def open_port(
        self, handlers: Mapping[str, NodeHandler]
    ) -> AbstractAsyncContextManager[NodePort]:
        return open_office(handlers)
