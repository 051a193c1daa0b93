"""Ensure that the run has a key to seal its sums under.

A key is dealt by a committee drawn among all nodes that are there and agree to the
run's terms: once, and again when so many members went away that those left could not
stand the stated dropout. Nobody is asked for a reward in it, so a dealing that fails
costs no user anything. What it came to, and who broke its rules, is written down.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping

from wallflower.protocol.errors import UnavailableError
from wallflower.protocol.messages.port import NodeId, NodeTransport
from wallflower.protocol.secure_sum.backends import SEALED
from wallflower.protocol.secure_sum.sealed.committee import dealing_spec
from wallflower.protocol.secure_sum.session import KeyReady, Void
from wallflower.strategy.config import ExperimentConfig
from wallflower.strategy.run.driver import Deadlines, run_dealing
from wallflower.strategy.run.pending_cohorts import SessionFactory
from wallflower.strategy.run.requests import Closings, CohortTraffic
from wallflower.strategy.store import events
from wallflower.strategy.store.entries import DEALING, DealingRecord
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.store.losses import select_findings


class DealingFailedError(UnavailableError):
    """The nodes that are there could not make a key; nobody was asked for anything."""


class KeyGeneration:
    """Keeps the run's key usable.

    Parameters
    ----------
    config : ExperimentConfig
        The experiment.
    journal : Journal
        Where dealings are written down.
    transport : NodeTransport
        How nodes are reached.
    sessions : SessionFactory
        Opens the server's half of a dealing, and knows the run's key.
    closings : Closings
        Tells members of a key that has come to its end to erase their shares.
    listen : events.Listen
        Hears how dealings go.
    """

    def __init__(
        self,
        config: ExperimentConfig,
        journal: Journal,
        transport: NodeTransport,
        sessions: SessionFactory,
        closings: Closings,
        listen: events.Listen,
    ) -> None:
        self._config = config
        self._journal = journal
        self._transport = transport
        self._sessions = sessions
        self._closings = closings
        self._listen = listen
        self._deadlines = Deadlines(config.transport.stage_timeout_s)
        self._lock = asyncio.Lock()
        self._ended: dict[str, tuple[NodeId, ...]] = {}
        self.sizes: list[int] = []  # nodes among whom each key was dealt

    async def recall(self) -> None:
        """Learn from the journal which keys an earlier part of the run made."""
        for one in await self._journal.call(self._journal.dealings):
            self._ended[one.dealing_id] = one.members
            if not one.reason:
                self.sizes.append(one.nodes)

    async def ensure(self, nodes: Mapping[NodeId, int], largest: int = 0) -> None:
        """Return when there is a key whose members, among `nodes`, can open sums.

        `largest` is how many nodes the largest cohort has: more may be here than when
        the key was dealt, and they do not seal under one dealt among too few.
        Raises DealingFailedError where the nodes cannot make one.
        """
        if self._config.secure_sum.backend != SEALED:
            return
        async with self._lock:  # cohorts of all arms need it at the same time
            key = self._sessions.shared_key
            if key is not None:
                if key.usable(nodes) and key.serves(min(largest, len(nodes))):
                    return
                # Cohorts under way may still need it: it ends with the round.
                self._ended[key.dealing_id] = key.members
            for left in range(self._config.transport.attempts - 1, -1, -1):
                outcome = await self._deal(nodes)
                if isinstance(outcome, KeyReady):
                    return
                if not left:
                    raise DealingFailedError(
                        f"{len(nodes)} nodes that stay could not make a key for sealed "
                        "sums "
                        f"({outcome.code}: {outcome.detail}); nobody was asked for a "
                        "reward. When more nodes are there, resume the run: wallflower "
                        f"resume {self._journal.run_dir}"
                    )

    async def _deal(self, nodes: Mapping[NodeId, int]) -> KeyReady | Void:
        started = time.monotonic()
        dealing_id = f"{DEALING}{secrets.token_hex(8)}"
        spec = dealing_spec(
            self._journal.run_id, dealing_id, self._config.secure_sum.threat, nodes
        )
        traffic = CohortTraffic(spec, {}, self._closings)
        session = self._sessions.open(spec, nodes)
        outcome = await run_dealing(
            session, self._transport, traffic.wrap, traffic.unwrap, self._deadlines
        )
        void = None if isinstance(outcome, KeyReady) else outcome.code
        findings = select_findings(void, session.findings)
        record = DealingRecord(
            dealing_id=dealing_id,
            nodes=len(nodes),
            reason=void or "",
            dealers=outcome.dealers if isinstance(outcome, KeyReady) else (),
            members=outcome.members if isinstance(outcome, KeyReady) else (),
            findings=findings,
        )
        await self._journal.call(self._journal.deal, record)
        if not record.reason:
            self.sizes.append(record.nodes)
        await self._listen(
            events.KeyGenerated(
                dealing_id=dealing_id,
                nodes=len(nodes),
                dealers=len(record.dealers),
                members=len(record.members),
                void=record.reason or None,
                seconds=time.monotonic() - started,
                findings=findings,
            )
        )
        return outcome

    def close_ended(self) -> None:
        """Ask members to erase their shares of keys that no cohort needs any more."""
        key = self._sessions.shared_key
        for dealing_id, members in self._ended.items():
            if key is None or dealing_id != key.dealing_id:
                self._closings.add_dealing(dealing_id, members)
        self._ended.clear()

    def close_all(self) -> None:
        """Ask members to erase their shares: the run is over."""
        key = self._sessions.shared_key
        self.close_ended()
        if key is not None:
            self._closings.add_dealing(key.dealing_id, key.members)
