"""One cohort from its invitations to its sum, with what is heard of it on the way."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from wallflower.protocol.messages.port import NodeId, NodePort
from wallflower.protocol.secure_sum.session import SecureSum
from wallflower.protocol.secure_sum.stages import reward_stages
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.strategy.bandit.policy import CohortOutcome, CohortWish
from wallflower.strategy.config import TransportSettings
from wallflower.strategy.record import events
from wallflower.strategy.record.blame import told
from wallflower.strategy.record.entries import CohortRecord, SumRecord
from wallflower.strategy.record.journal import Journal
from wallflower.strategy.record.losses import losses
from wallflower.strategy.run.analyzer import released_sum
from wallflower.strategy.run.driver import Deadlines, run_session
from wallflower.strategy.run.open_cohorts import OpenCohorts
from wallflower.strategy.run.requests import Closings, CohortTraffic

_PROGRESS_EVERY_S = 0.2


@dataclass(frozen=True, slots=True)
class AskedCohort:
    """One attempt at one wish, ready to be written down and sent."""

    wish: CohortWish
    record: CohortRecord
    traffic: CohortTraffic
    users: int


@dataclass(slots=True)
class Tally:
    """Users of the whole run, for views."""

    invited: int = 0
    answered: int = 0
    lost: int = 0
    losses: Counter[str] = field(default_factory=Counter)


class CohortRunner:
    """Runs cohorts whose invitations are in the journal.

    Parameters
    ----------
    journal : Journal
        Where void cohorts are noted.
    port : NodePort
        How nodes are reached.
    open_cohorts : OpenCohorts
        Opens, keeps and restores the server's halves of secure sums.
    listen : events.Listen
        Hears every event.
    transport : TransportSettings
        How long each stage may take.
    """

    def __init__(
        self,
        journal: Journal,
        port: NodePort,
        open_cohorts: OpenCohorts,
        listen: events.Listen,
        transport: TransportSettings,
    ) -> None:
        self._journal = journal
        self._port = port
        self._open = open_cohorts
        self._listen = listen
        # Where rewards are pulled they have their time and the answers theirs: what a
        # node knows when its users' deadline ends must still reach the server.
        with_rewards = transport.reward_timeout_s + transport.stage_timeout_s
        self._deadlines = Deadlines(
            transport.stage_timeout_s, dict.fromkeys(reward_stages(), with_rewards)
        )
        self._reward_timeout_s = transport.reward_timeout_s
        self.closings = Closings()
        self.tally = Tally()

    def traffic(
        self, spec: CohortSpec, users: Mapping[NodeId, tuple[str, ...]]
    ) -> CohortTraffic:
        """Give what wraps and unwraps the messages of a cohort."""
        return CohortTraffic(spec, users, self.closings, self._reward_timeout_s)

    async def attempt(
        self, asked: AskedCohort
    ) -> tuple[CohortOutcome, SumRecord] | None:
        """Run one cohort to its sum, or write down why there is none."""
        started = time.monotonic()
        record, users = asked.record, asked.users
        self.tally.invited += users
        await self._listen(
            events.CohortAsked(
                cohort_id=record.cohort_id,
                number=record.round_number,
                batch=record.batch,
                arm=record.arm,
                attempt=record.attempt,
                users=users,
                nodes=len(record.users),
            )
        )
        ticker = asyncio.create_task(self._tell_progress(asked))
        try:
            session, kept = await self._open.session(
                asked.traffic.spec, {n: len(u) for n, u in record.users.items()}
            )
            end = await run_session(
                session=session,
                port=self._port,
                wrap=asked.traffic.wrap,
                unwrap=asked.traffic.unwrap,
                deadlines=self._deadlines,
                spool=kept,
            )
        finally:
            ticker.cancel()
            await asyncio.wait([ticker])
            self.closings.add(record.cohort_id, record.users)
        survivors = end.users if isinstance(end, SecureSum) else 0
        back = asked.traffic.returned
        used = {node: names for node, names in record.users.items() if node not in back}
        returned = users - sum(map(len, used.values()))
        lost = users - survivors - returned
        self.tally.answered += survivors
        self.tally.lost += lost
        self.tally.invited -= returned
        summed = end.survivors if isinstance(end, SecureSum) else None
        void = None if isinstance(end, SecureSum) else end.code
        why = losses(used, summed, survivors, session.out, asked.traffic.reported)
        self.tally.losses.update(why)
        findings = told(void, session.findings)
        if void is not None:
            await self._journal.call(
                self._journal.void, record.cohort_id, void, why, findings
            )
            await self._open.forget([record.cohort_id])
        await self._listen(
            events.CohortEnded(
                cohort_id=record.cohort_id,
                arm=record.arm,
                attempt=record.attempt,
                survivors=survivors,
                lost=lost,
                void=void,
                refusals=tuple(sorted(asked.traffic.refusals.items())),
                seconds=time.monotonic() - started,
                losses=tuple(why.items()),
                returned=returned,
                findings=findings,
            )
        )
        if not isinstance(end, SecureSum):
            return None
        outcome, released = released_sum(asked.traffic.spec, end)
        return outcome, dataclasses.replace(released, losses=why, findings=findings)

    async def _tell_progress(self, asked: AskedCohort) -> None:
        while True:
            await asyncio.sleep(_PROGRESS_EVERY_S)
            await self._listen(
                events.CohortProgress(
                    asked.record.cohort_id,
                    asked.record.arm,
                    asked.traffic.stage,
                    asked.traffic.heard,
                    len(asked.record.users),
                )
            )
