"""Trustees: nodes that stay connected and hold the key, where people come and go.

They need not host anybody. The key is generated among all of them that are there; a
sum is opened when enough of those that hold a share have come back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Mapping, Sequence

from wallflower.protocol.errors import UnavailableError, command_on
from wallflower.protocol.messages.port import NodeId, NodeTransport
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.protocol.wire.node_pb2 import Description
from wallflower.strategy.run.driver import Refusal
from wallflower.strategy.run.meeting import (
    NeedsStreamError,
    NodeCall,
    Terms,
    describe_refusals,
    refused_by_policy,
)
from wallflower.strategy.secure_sum.keyring import SharedKey
from wallflower.strategy.store import events
from wallflower.strategy.store.journal import Journal

_LOOK_S = 0.25  # transports are asked who is there, they do not tell


class TrusteesMissingError(UnavailableError):
    """Too few trustees are there; nothing that was answered is lost."""


class Trustees(NodeCall):
    """Knows which nodes stay, and waits for as many as are needed."""

    def __init__(
        self,
        transport: NodeTransport,
        journal: Journal,
        timeout_s: float,
        arms: Sequence[str],
        listen: events.Listen,
    ) -> None:
        super().__init__(transport, journal, timeout_s)
        self._arms = arms
        self._listen = listen
        self._staying: set[NodeId] = set()

    @property
    def _known(self) -> Container[NodeId]:
        return self._staying

    def _meet(self, node: NodeId, description: Description) -> None:
        if description.polls:
            raise NeedsStreamError("a trustee must stay")
        self._staying.add(node)

    async def present(self) -> dict[NodeId, int]:
        """Name the trustees that are there; each counts as one node."""
        return dict.fromkeys(await self.refresh(), 1)

    async def wait_for(self, least: int, timeout_s: float) -> dict[NodeId, int]:
        """Wait until `least` trustees are there; raise TrusteesMissingError if not."""
        there = await self._wait(lambda there: len(there) >= least, timeout_s)
        if len(there) < least:
            raise TrusteesMissingError(
                f"{len(there)} trustees are there after {timeout_s:g} s; at least "
                f"{least} are needed (visitors.least-trustees). Nobody was asked: "
                "start trustees (wallflower trustee), then resume: "
                f"{command_on('resume', self._journal.run_dir)}"
            )
        return there

    async def wait_for_willing(
        self, least: int, timeout_s: float, specs: Sequence[CohortSpec]
    ) -> dict[NodeId, int]:
        """Wait until `least` trustees agree to open sums on these terms.

        One that refuses them would refuse the sum, after people were asked for it.
        Whoever comes back was perhaps mended, and is asked again.
        """
        loop = asyncio.get_running_loop()
        deadline, reported = loop.time() + timeout_s, ""
        agreed, refused = set[NodeId](), dict[NodeId, Refusal]()
        while True:
            there = await self.present()
            agreed &= there.keys()
            refused = {n: refused[n] for n in there if n in refused}
            new = [n for n in there if n not in agreed and n not in refused]
            against = await self._offer(specs, new)
            agreed |= set(new) - against.keys()
            refused |= {n: against[n] for n in refused_by_policy(against)}
            text = describe_refusals(refused, len(there)) if refused else ""
            if text and text != reported:
                reported = text
                await self._listen(events.TermsRefused(len(refused), len(there), text))
            if len(agreed) >= least:
                return {node: 1 for node in there if node in agreed}
            if loop.time() >= deadline:
                why = f"{text}. " if text else ""
                raise TrusteesMissingError(
                    f"{len(agreed)} trustees agree after {timeout_s:g} s; at least "
                    f"{least} are needed (visitors.least-trustees). {why}"
                    "Nobody was asked: start or mend trustees, then resume: wallflower "
                    f"resume {self._journal.run_dir}"
                )
            await asyncio.sleep(_LOOK_S)

    async def _offer(
        self, specs: Sequence[CohortSpec], nodes: Sequence[NodeId]
    ) -> Mapping[NodeId, Refusal]:
        """Return the trustees that do not agree, or did not say."""
        terms = Terms(self._transport, self._run_id, self._arms, self._timeout_s)
        return await terms.offer(specs, nodes)

    async def wait_for_holders(self, key: SharedKey, timeout_s: float) -> None:
        """Wait until enough trustees that hold a share of the key are there."""
        there = await self._wait(key.usable, timeout_s)
        if not key.usable(there):
            held = sum(member in there for member in key.members)
            raise TrusteesMissingError(
                f"{held} of the {len(key.members)} trustees that hold the key are "
                f"there after {timeout_s:g} s; {key.threshold} must answer. Every "
                "answer is kept: start the others, then resume: "
                f"{command_on('resume', self._journal.run_dir)}"
            )

    async def _wait(
        self, enough: Callable[[dict[NodeId, int]], bool], timeout_s: float
    ) -> dict[NodeId, int]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            there = await self.present()
            if enough(there) or loop.time() >= deadline:
                return there
            await asyncio.sleep(_LOOK_S)
