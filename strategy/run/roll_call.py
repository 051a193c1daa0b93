"""Who is there: wait for nodes and let each describe its users."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing

from wallflower.protocol.errors import ProtocolError, UnavailableError
from wallflower.protocol.messages.port import NodeTransport
from wallflower.protocol.secure_sum.stages import asks_once
from wallflower.protocol.wire.node_pb2 import Description
from wallflower.strategy.run.drawing import UserRegistry
from wallflower.strategy.run.requests import describe_request, description_of
from wallflower.strategy.store.journal import Journal

_log = logging.getLogger(__name__)

# How often a port is asked again who is there; a count is cheap on every port.
_TRIES = 3  # a node that is busy for a moment must not miss the roll call
_PAUSE_S, _RETRY_S = 0.05, 0.3
_MOST_ANSWERED = 1_000  # cohorts that one node's word is taken for


class NeedsStreamError(ProtocolError):
    """A node comes now and then, and the run's sums need it to stay."""

    code = "needs-a-stream"


class RollCall:
    """Keeps the registry up to date with the nodes a port can reach.

    Parameters
    ----------
    port : NodePort
        How nodes are reached.
    journal : Journal
        The run's; nodes that answered cohorts which it lacks end the run.
    registry : UserRegistry
        Filled with every node that describes itself credibly.
    timeout_s : float
        How long a node may take to describe itself.
    backend : str
        Of the run's secure sums; some ask every node several times a cohort, which
        a node that only visits cannot keep up with.
    """

    def __init__(
        self,
        port: NodeTransport,
        journal: Journal,
        registry: UserRegistry,
        timeout_s: float,
        backend: str,
    ) -> None:
        self._port = port
        self._journal = journal
        self._run_id = journal.run_id
        self._registry = registry
        self._timeout_s = timeout_s
        self._backend = backend
        self._calls = 0
        self._refused: set[str] = set()

    async def wait_for(self, expected: int, timeout_s: float) -> None:
        """Wait until `expected` nodes are there and described, or the time is up.

        With fewer the run begins all the same, as long as two are there: a cohort
        needs at least two nodes, and later ones join between rounds.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while len(await self._port.nodes()) < expected:  # noqa: ASYNC110
                    await asyncio.sleep(_PAUSE_S)  # ports are asked, they do not tell
        except TimeoutError:
            _log.warning("not all nodes are there", extra={"event": "nodes-missing"})
        await self.refresh()
        if len(self._registry.nodes) < 2:
            raise UnavailableError(
                f"{len(self._registry.nodes)} nodes are there after {timeout_s:g} s; "
                "an experiment needs at least 2: start the nodes, then resume"
            )

    async def refresh(self) -> tuple[str, ...]:
        """Let new nodes describe themselves; give all that can be asked now."""
        present, known = await self._port.nodes(), self._registry.nodes
        others = [node for node in present if node not in known]
        if not others:
            return tuple(present)
        new = [node for node in others if node not in self._refused]
        if new:
            await self._describe(new)
        return tuple(node for node in present if node in known)

    async def _describe(self, nodes: list[str]) -> None:
        described: dict[str, Description] = {}
        for _ in range(_TRIES):
            nodes = await self._ask(nodes, described)
            if not nodes:
                break
            await asyncio.sleep(_RETRY_S)
        answered = [
            cohort_id
            for said in described.values()
            for cohort_id in said.answered[:_MOST_ANSWERED]
        ]
        if answered:
            await self._journal.call(self._journal.check_answered, answered)
        # In one order whatever the network did: a seeded draw must repeat itself.
        for node in sorted(described):
            said = described[node]
            if not said.users:
                self._refused.add(node)  # nobody lives there: not worth a word
                continue
            try:
                if said.visits and not asks_once(self._backend):
                    raise NeedsStreamError(f"{self._backend} needs nodes that stay")
                self._registry.add_node(node, tuple(said.users), visits=said.visits)
            except ProtocolError as error:
                self._refuse(node, error)

    async def _ask(
        self, nodes: list[str], described: dict[str, Description]
    ) -> list[str]:
        """Ask nodes who lives there; give those whose asking failed at once."""
        self._calls += 1
        failed = []
        requests = [describe_request(self._run_id, n, self._calls) for n in nodes]
        stream = self._port.ask(requests, timeout_s=self._timeout_s)
        async with aclosing(stream) as answers:
            async for answer in answers:
                if answer.failure is not None:
                    failed.append(answer.node_id)
                    continue
                try:
                    described[answer.node_id] = description_of(answer)
                except ProtocolError as error:
                    self._refuse(answer.node_id, error)
        return failed

    def _refuse(self, node_id: str, error: ProtocolError) -> None:
        self._refused.add(node_id)
        _log.warning(
            "node left out",
            extra={"event": "node-refused", "node_id": node_id, "reason": error.code},
        )
