"""One cohort from its invitations to its sum, with what is heard of it on the way."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import secrets
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from wallflower.protocol.cohort import to_range, to_rational
from wallflower.protocol.messages.port import NodeId, NodeTransport
from wallflower.protocol.privacy.honest_floor import Floor
from wallflower.protocol.secure_sum.backends import backend_modulus, reward_stages
from wallflower.protocol.secure_sum.session import Finding, SecureSum, Void
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.strategy.bandit.policy import CohortRequest, CohortSum
from wallflower.strategy.config import ExperimentConfig
from wallflower.strategy.run.analyzer import released_sum
from wallflower.strategy.run.common_nodes import CommonNodes
from wallflower.strategy.run.driver import Deadlines, run_session
from wallflower.strategy.run.pending_cohorts import Contributions, PendingCohorts
from wallflower.strategy.run.recruiting import Recruited
from wallflower.strategy.run.requests import Closings, CohortTraffic
from wallflower.strategy.store import events
from wallflower.strategy.store.chain import sign_cohort_id
from wallflower.strategy.store.entries import CohortRecord, SumRecord
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.store.losses import (
    COHORT_VOID,
    NO_ANSWER,
    count_losses,
    select_findings,
)
from wallflower.strategy.store.seats import SeatCounts

_CLOSING_TIMEOUT_S = 10.0
_PROGRESS_EVERY_S = 0.2


@dataclass(frozen=True, slots=True)
class AskedCohort:
    """One attempt at one request, ready to be written down and sent."""

    cohort_request: CohortRequest
    record: CohortRecord
    traffic: CohortTraffic
    users: int

    @property
    def composition(self) -> Mapping[NodeId, int]:
        """How many users of each node are asked."""
        return {node: len(users) for node, users in self.record.users.items()}


@dataclass(frozen=True, slots=True)
class CohortLosses:
    """People of one cohort who are in no sum; `returned` ones may be asked again."""

    lost: int
    by_reason: Mapping[str, int]
    returned: int = 0

    @classmethod
    def of_seats(cls, seats: SeatCounts, *, summed: bool) -> CohortLosses:
        """Count those who were seated and are in no sum, once the seats are closed."""
        counts = {NO_ANSWER: seats.taken, COHORT_VOID: 0 if summed else seats.answered}
        why = {reason: people for reason, people in counts.items() if people}
        return cls(sum(why.values()), why)


@dataclass(frozen=True, slots=True)
class OpenedSum:
    """What became of a sum, who was found to cause it, and when it was begun."""

    end: SecureSum | Void
    findings: tuple[Finding, ...]
    started: float


@dataclass(slots=True)
class Tally:
    """Users of the whole run, for views; `asked` counts those invited by arm."""

    asked: Counter[int] = field(default_factory=Counter)
    answered: int = 0
    lost: int = 0
    losses: Counter[str] = field(default_factory=Counter)

    @property
    def invited(self) -> int:
        """All who were invited, about whatever arm."""
        return self.asked.total()


def stage_deadlines(config: ExperimentConfig) -> Deadlines:
    """Return how long the server waits for each stage.

    Where people are shown the arm, outcomes have their window and the answers, which
    leave at its end, the time of a stage.
    """
    stage_s = config.transport.stage_timeout_s
    with_outcomes = config.window.limit_s + stage_s
    return Deadlines(stage_s, dict.fromkeys(reward_stages(), with_outcomes))


class CohortRunner:
    """Runs cohorts whose invitations are in the journal.

    Parameters
    ----------
    journal : Journal
        Where void cohorts are noted.
    transport : NodeTransport
        How nodes are reached.
    open_cohorts : PendingCohorts
        Opens, keeps and restores the server's halves of secure sums.
    listen : events.Listen
        Hears every event.
    deadlines : Deadlines
        How long each stage may take.
    """

    def __init__(
        self,
        journal: Journal,
        transport: NodeTransport,
        pending: PendingCohorts,
        listen: events.Listen,
        deadlines: Deadlines,
    ) -> None:
        self._journal = journal
        self._key = journal.cohort_key
        self._transport = transport
        self._pending = pending
        self._listen = listen
        self._deadlines = deadlines
        self.closings = Closings()
        self.tally = Tally()

    def traffic(
        self, spec: CohortSpec, users: Mapping[NodeId, tuple[str, ...]]
    ) -> CohortTraffic:
        """Return what wraps and unwraps the messages of a cohort."""
        return CohortTraffic(spec, users, self.closings)

    def prepare(self, found: Recruited, number: int, attempt: int) -> AskedCohort:
        """Make a cohort of round `number` ready to be written down and sent."""
        cohort_request, users, spec = (
            found.cohort_request,
            found.draw.users,
            CohortSpec(),
        )
        spec.CopyFrom(found.spec)
        spec.cohort_id = sign_cohort_id(self._key, spec.cohort_id)
        record = CohortRecord(
            cohort_id=spec.cohort_id,
            round_number=number,
            batch=cohort_request.batch,
            arm=cohort_request.arm,
            attempt=attempt,
            size=cohort_request.size,
            spec=spec.SerializeToString(deterministic=True),
            users=users,
        )
        traffic = self.traffic(spec, users)
        return AskedCohort(cohort_request, record, traffic, spec.cohort_size)

    async def attempt(
        self, asked: AskedCohort, common: CommonNodes
    ) -> tuple[CohortSum, SumRecord] | None:
        """Run one cohort to its sum, or write down why there is none.

        `common` keeps the sums of its round to the same nodes.
        """
        started = time.monotonic()
        record, users = asked.record, asked.users
        await self.announce(asked, len(record.users))
        ticker = asyncio.create_task(self._tell_progress(asked))
        try:
            session, kept = await self._pending.session(
                asked.traffic.spec, asked.composition
            )
            end = await run_session(
                session=session,
                transport=self._transport,
                wrap=asked.traffic.wrap,
                unwrap=asked.traffic.unwrap,
                deadlines=self._deadlines,
                spool=kept,
                settle=common.settle_for(record.arm, record.users.keys(), session),
            )
        finally:
            ticker.cancel()
            await asyncio.wait([ticker])
            self.closings.add(record.cohort_id, record.users)
        survivors = end.users if isinstance(end, SecureSum) else 0
        back = asked.traffic.returned
        used = {node: names for node, names in record.users.items() if node not in back}
        returned = users - sum(map(len, used.values()))
        self.tally.asked[record.arm] -= returned
        summed = end.survivors if isinstance(end, SecureSum) else None
        why = count_losses(used, summed, survivors, session.out, asked.traffic.reported)
        ended = CohortLosses(users - survivors - returned, why, returned)
        return await self.conclude(asked, end, session.findings, ended, started)

    async def announce(self, asked: AskedCohort, nodes: int) -> None:
        """Say that a cohort is about to be asked."""
        record = asked.record
        await self._listen(
            events.CohortAsked(
                cohort_id=record.cohort_id,
                number=record.round_number,
                batch=record.batch,
                arm=record.arm,
                attempt=record.attempt,
                users=asked.users,
                nodes=nodes,
            )
        )

    async def open_contributions(
        self, asked: AskedCohort, read: Contributions
    ) -> OpenedSum:
        """Open the sum of a cohort whose people came, answered and may be gone.

        Nothing is written down: that is for `conclude`.
        """
        started = time.monotonic()
        spec = asked.traffic.spec
        session, kept = await self._pending.session(spec, {}, read)
        end = await run_session(
            session=session,
            transport=self._transport,
            wrap=asked.traffic.wrap,
            unwrap=asked.traffic.unwrap,
            deadlines=self._deadlines,
            spool=kept,
        )
        if (key := self._pending.shared_key) is not None:
            self.closings.add(spec.cohort_id, dict.fromkeys(key.members))
        return OpenedSum(end, tuple(session.findings), started)

    async def forget_opening(self, cohort_id: str) -> None:
        """Forget that a sum could not be opened, and who was silent."""
        await self._pending.forget([cohort_id])
        if (key := self._pending.shared_key) is not None:
            for member in key.members:
                key.note_opened(member)

    async def conclude(
        self,
        asked: AskedCohort,
        end: SecureSum | Void,
        found: Sequence[Finding],
        ended: CohortLosses,
        started: float,
    ) -> tuple[CohortSum, SumRecord] | None:
        """Count a cohort that is over; write it down if it has no sum."""
        record, why = asked.record, ended.by_reason
        survivors = end.users if isinstance(end, SecureSum) else 0
        void = None if isinstance(end, SecureSum) else end.code
        self.tally.answered += survivors
        self.tally.lost += ended.lost
        self.tally.losses.update(why)
        findings = select_findings(void, found)
        if void is not None:
            await self._journal.call(
                self._journal.void, record.cohort_id, void, why, findings
            )
            await self._pending.forget([record.cohort_id])
        await self._listen(
            events.CohortEnded(
                cohort_id=record.cohort_id,
                arm=record.arm,
                attempt=record.attempt,
                survivors=survivors,
                lost=ended.lost,
                void=void,
                refusals=tuple(sorted(asked.traffic.refusals.items())),
                seconds=time.monotonic() - started,
                losses=tuple(why.items()),
                returned=ended.returned,
                findings=findings,
            )
        )
        if not isinstance(end, SecureSum):
            return None
        outcome, released = released_sum(asked.traffic.spec, end)
        return outcome, dataclasses.replace(released, losses=why, findings=findings)

    async def close_all(self, run_id: str, *, shares_only: bool) -> None:
        """Tell nodes which cohorts are over; nothing depends on an answer."""
        requests = self.closings.requests(run_id, shares_only=shares_only)
        stream = self._transport.ask(requests, timeout_s=_CLOSING_TIMEOUT_S)
        with contextlib.suppress(Exception):
            async with aclosing(stream) as answers:
                async for _ in answers:
                    pass

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


def describe_cohort(
    config: ExperimentConfig,
    run_id: str,
    cohort_request: CohortRequest,
    floor: Floor,
    attempt: int,
) -> CohortSpec:
    """Describe a cohort; its id is new for every attempt and never repeated.

    Clients refuse a cohort id they answered before, also after their restart, so the
    id carries randomness: a run directory that was deleted must not block a new run.
    """
    mechanism = config.mechanism().for_cohort(
        floor.cohort_size, floor.honest_floor, cohort_request.wrap_probability
    )
    backend = config.secure_sum.backend
    return CohortSpec(
        run_id=run_id,
        batch=cohort_request.batch,
        arm=cohort_request.arm,
        arm_name=config.experiment.arms[cohort_request.arm],
        cohort_id=f"b{cohort_request.batch}-a{cohort_request.arm}-t{attempt}-{secrets.token_hex(6)}",
        mechanism=config.privacy.mechanism,
        epsilon=to_rational(config.privacy.epsilon),
        scale=to_rational(config.privacy.scale),
        wrap_probability=to_rational(cohort_request.wrap_probability),
        cohort_size=floor.cohort_size,
        honest_floor=floor.honest_floor,
        quorum=floor.quorum,
        backend=backend,
        modulus=backend_modulus(backend, mechanism.modulus),
        threat=config.secure_sum.threat.to_wire(),
        proved_inputs=config.secure_sum.inputs == "proved",
        reward_range=to_range(config.reward_range),
        window_ms=config.window.stated_ms,
        admission="" if config.visitors is None else config.visitors.admission,
    )
