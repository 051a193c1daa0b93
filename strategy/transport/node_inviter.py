"""Send every node of a Flower run to the gRPC server, once, and again if it had to
leave.

The reply to *connect* comes when the node has left the gRPC server: at the end of the
run, or early because its process died or it lost the gRPC server for good. Then it is
sent for again, after a pause that doubles, for as long as Flower lists it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from wallflower.protocol.messages import flower as flower_record
from wallflower.strategy.transport.flower import FlowerTransport
from wallflower.strategy.transport.grid import Fields

log = logging.getLogger("wallflower.flower")

_CONNECT_S = 86_400.0  # how long an invitation lives on its way


@dataclass(frozen=True, slots=True)
class InvitationPace:
    """How patiently nodes are sent for.

    `look_s` is how often Flower is asked for new nodes; both pauses bound the wait
    before a node that left is sent for again.
    """

    look_s: float = 1.0
    first_pause_s: float = 1.0
    longest_pause_s: float = 60.0


class NodeInviter:
    """Keeps the nodes of a run at its gRPC server.

    Parameters
    ----------
    port : FlowerTransport
        Open.
    invitation : Callable[[int], Fields]
        What the node with this number of Flower's is told: where, which run, token.
    pace : InvitationPace
        How patiently.
    """

    def __init__(
        self,
        port: FlowerTransport,
        invitation: Callable[[int], Fields],
        pace: InvitationPace | None = None,
    ) -> None:
        self._port = port
        self._invitation = invitation
        self._pace = pace or InvitationPace()
        self.sent = 0
        self.failures: Counter[str] = Counter()

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Send for nodes for as long as the context is open."""
        keeping = asyncio.create_task(self._keep(), name="invitations")
        try:
            yield
        finally:
            keeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await keeping

    async def _keep(self) -> None:
        known: set[int] = set()
        async with asyncio.TaskGroup() as group:
            while True:
                try:
                    listed = await self._port.flower_ids()
                except Exception as error:
                    # Anyone's Grid may raise anything while its server is away.
                    log.warning("Flower's nodes not listed (%s)", type(error).__name__)
                    listed = ()
                for flower_id in listed:
                    if flower_id not in known:
                        known.add(flower_id)
                        group.create_task(self._see_to(flower_id))
                await asyncio.sleep(self._pace.look_s)

    async def _see_to(self, flower_id: int) -> None:
        """Send for one node until it says that the run is over."""
        pause_s = self._pace.first_pause_s
        while True:
            self.sent += 1
            reply, failure = await self._port.send(
                flower_id,
                flower_record.CONNECT,
                self._invitation(flower_id),
                timeout_s=_CONNECT_S,
            )
            reason = failure or (reply or {}).get(flower_record.REASON)
            if reason == flower_record.RUN_OVER:
                return
            self.failures[str(reason)] += 1
            log.warning("Flower node %d left the gRPC server (%s)", flower_id, reason)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, self._pace.longest_pause_s)
