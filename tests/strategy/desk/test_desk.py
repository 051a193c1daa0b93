from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager

from tests.support.desk_fixtures import open_office
from tests.support.port_contract import StoppingPortContract
from wallflower.protocol.messages.port import NodeHandler, NodePort


class TestDesk(StoppingPortContract):
    """The port contract over loopback gRPC with TLS and real nodes."""

    def open_port(
        self, handlers: Mapping[str, NodeHandler]
    ) -> AbstractAsyncContextManager[NodePort]:
        return open_office(handlers)
