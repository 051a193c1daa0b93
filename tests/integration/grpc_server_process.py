"""A server process for the kill tests: gRPC server, spool, one secure sum; may kill
itself.

``python -m tests.integration.grpc_server_process CONFIG.json`` prints the outcome as
JSON. The config names the moment at which the process sends itself SIGKILL, or none.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from tests.support.sum_nodes import Sum, SumNode
from wallflower.protocol.identity.certificates import KeyPair
from wallflower.protocol.identity.tokens import RunTokens
from wallflower.protocol.messages.port import Answer, NodeTransport, Request
from wallflower.protocol.secure_sum.session import SecureSum
from wallflower.strategy.store.spool import Spool
from wallflower.strategy.transport.grpc.admission import Admission, EnrolledKeys
from wallflower.strategy.transport.grpc.server import GrpcServer
from wallflower.strategy.transport.grpc.settings import GrpcServerSettings


class KillingPort:
    """Kills its own process at a moment of a stage."""

    def __init__(self, inner: NodeTransport, stage: str, answers: int) -> None:
        self._inner = inner
        self._stage = stage
        self._answers = answers

    async def nodes(self) -> Sequence[str]:
        return await self._inner.nodes()

    async def ask(
        self, requests: Sequence[Request], *, timeout_s: float
    ) -> AsyncGenerator[Answer, None]:
        here = requests[0].request_id.endswith(f"/{self._stage}")
        if here and self._answers == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        heard = 0
        async with aclosing(self._inner.ask(requests, timeout_s=timeout_s)) as answers:
            async for answer in answers:
                yield answer
                heard += 1
                if here and heard == self._answers:
                    os.kill(os.getpid(), signal.SIGKILL)


async def main(config: dict[str, Any]) -> None:
    folder = Path(config["folder"])
    server = KeyPair(
        (folder / "server.crt").read_bytes(), (folder / "server.key").read_bytes()
    )
    admission = Admission(
        RunTokens("run-1", bytes.fromhex(config["secret"])),
        EnrolledKeys(bytes.fromhex(config["enrolment"])),
    )
    names = config["nodes"]
    grpc_server = GrpcServer(
        admission, server, GrpcServerSettings(heartbeat_s=2.0), expected=names
    )
    await grpc_server.open(f"127.0.0.1:{config['port']}")
    await grpc_server.wait_for(config["wait_for"], timeout_s=60)
    # The server knows names, never values: a node here has none to give away.
    secure_sum = Sum({name: SumNode(name, -1) for name in names}, config["backend"])
    port: NodeTransport = grpc_server
    if config["kill"] is not None:
        port = KillingPort(grpc_server, *config["kill"])
    with Spool(folder / "spool.sqlite") as spool:
        outcome = await secure_sum.run(port, spool.cohort(secure_sum.cohort_id))
    await grpc_server.close("finished")
    assert isinstance(outcome, SecureSum), outcome
    print(json.dumps({"total": outcome.total, "survivors": outcome.survivors}))


if __name__ == "__main__":
    asyncio.run(main(json.loads(Path(sys.argv[1]).read_text())))
