"""One experiment with people who arrive: seats instead of invitations.

Per round the policy requests cohorts; their seats open together and workers give them
to whoever comes; when they close, either every cohort has its quorum and all sums are
opened by the trustees, or none is, and the round is asked anew with new seats. Nothing
is kept in this process: after a kill a restart goes on with the seats, the answers and
the open sums as they are written down.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from wallflower.protocol.cohort import from_rational
from wallflower.protocol.errors import InputError, UnavailableError
from wallflower.protocol.messages.port import NodeTransport
from wallflower.protocol.privacy.honest_floor import FloorRule
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.strategy.bandit.policy import CohortRequest, CohortSum, Policy
from wallflower.strategy.config import ExperimentConfig
from wallflower.strategy.run.arriving.seated_round import (
    LOOK_S,
    NO_FREE_SEAT,
    SeatedRounds,
)
from wallflower.strategy.run.arriving.sums import RoundSums
from wallflower.strategy.run.arriving.trustees import Trustees, TrusteesMissingError
from wallflower.strategy.run.cohort import AskedCohort, describe_cohort
from wallflower.strategy.run.pending_cohorts import SessionFactory
from wallflower.strategy.run.recruiting import Recruited
from wallflower.strategy.run.registry import Draw
from wallflower.strategy.run.run_loop import RunLoop
from wallflower.strategy.secure_sum.keyring import SharedKey
from wallflower.strategy.store import events
from wallflower.strategy.store.entries import INVITED, VOID, WAITING, SumRecord
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.store.losses import describe_losses
from wallflower.strategy.store.seats import SeatCounts
from wallflower.strategy.store.spool import Spool

_STOPPED = "server-stopped"
_KEY = "key"  # the stage under which the spool keeps a key


class AttemptsSpentError(UnavailableError):
    """A round has no sums after all its attempts: to go on would use up more people."""


class VisitorSessions(SessionFactory, Protocol):
    """Opens sums, and goes on with the key of an earlier server."""

    def restore_key(self, state: bytes) -> None:
        """Go on with a key from its public state."""
        ...


class VisitorOrchestrator(RunLoop):
    """Drives one run with people who arrive.

    Parameters
    ----------
    config : ExperimentConfig
        What the journal began with; it has ``[visitors]``.
    journal : Journal
        Opened for writing; workers open the same run beside it.
    transport : NodeTransport
        How trustees are reached.
    sessions : VisitorSessions
        Opens the server's half of a secure sum.
    spool : Spool
        Keeps the key and the open sums.
    listen : events.Listen
        Hears every event.
    clock : Callable[[], float]
        Seconds since the epoch, as the workers have it.
    look_s : float
        How often seats are counted.
    """

    def __init__(
        self,
        config: ExperimentConfig,
        journal: Journal,
        transport: NodeTransport,
        sessions: VisitorSessions,
        spool: Spool,
        listen: events.Listen = events.ignore,
        clock: Callable[[], float] = time.time,
        look_s: float = LOOK_S,
    ) -> None:
        super().__init__(config, journal, transport, sessions, listen, spool)
        if config.visitors is None:
            raise InputError("visitors", "missing", "a [visitors] table")
        self._visitors = config.visitors
        self._sessions = sessions
        self._keys = spool
        self._seats = SeatedRounds(config, journal, listen, clock, look_s)
        self._sums = RoundSums(self._runner, self._seats)
        self._trustees = Trustees(
            transport,
            journal,
            config.transport.stage_timeout_s,
            config.experiment.arms,
            listen,
        )
        self._under_way: list[AskedCohort] = []

    # --- the run -----------------------------------------------------------------

    async def _begin(self, number: int | None) -> None:
        await self._key_generation.recall()
        await self._restore_key()
        await self._journal.call(self._count_asked)
        open_cohorts = await self._journal.call(self._read_open)
        if number is None:
            await self._give_up(open_cohorts)
            return
        seated = await self._journal.call(self._read_seated)
        self._under_way = [
            one for one in open_cohorts if one.record.cohort_id in seated
        ]
        # Written down, and killed before anybody could take a seat.
        await self._give_up(
            [one for one in open_cohorts if one.record.cohort_id not in seated]
        )
        await self._trustees.wait_for(
            self._visitors.least_trustees, self._config.transport.join_timeout_s
        )

    async def _describe_start(self, number: int) -> events.RunStarted:
        return events.RunStarted(
            run_id=self._run_id,
            arms=self._config.experiment.arms,
            nodes=len(await self._trustees.present()),
            population=self._config.horizon,
            horizon=self._config.horizon,
            rounds_done=number - 1,
            head=await self._journal.call(lambda: self._journal.head),
            test_mode=self._config.test_mode,
            arriving=True,
        )

    async def _count_participations(self) -> int:
        if self._config.privacy.max_participations == 1:
            return min(1, self._tally.invited)
        counted = await self._journal.call(self._journal.count_participations)
        return max(counted, default=0)

    async def _show(self, policy: Policy, reason: str) -> None:
        await self._seats.show(policy, reason)

    async def _close_all(self) -> None:
        if self.is_over:  # after a pause the same key is used
            self._key_generation.close_all()
        await self._runner.close_all(self._run_id, shares_only=False)

    # --- one round ---------------------------------------------------------------

    async def _round(self, number: int, policy: Policy) -> None:
        started = time.monotonic()
        await self._seats.show(policy, NO_FREE_SEAT)
        asked = await self._take_under_way(policy)
        for left in range(self._config.transport.attempts - 1, -1, -1):
            if not asked:
                asked = await self._open(number, policy.next_cohorts())
            await self._announce(number, asked)
            await self._seats.wait(asked)
            sums = await self._sum(number, asked)
            if sums:
                break
            asked = []
            if not left:
                raise AttemptsSpentError(
                    f"no sum of round {number} in {self._config.transport.attempts} "
                    "attempts (transport.attempts); people lost so far: "
                    f"{describe_losses(self._tally.losses)} (see `wallflower status "
                    f"{self._journal.run_dir}`). Answers come later than "
                    "visitors.answer-s allows, or more people vanish than "
                    "secure-sum.dropout: begin a run with others, or resume this one"
                )
        await self._observe(policy, sums)
        records = [record for _, record in sums]
        await self._finish(number, policy, records, started)
        await self._seats.forget([one.cohort_id for one in records])
        await self._forget_old_keys()

    async def _open(
        self, number: int, requests: Sequence[CohortRequest]
    ) -> list[AskedCohort]:
        """Write the cohorts of a round down, then open their seats."""
        asked = [self._describe(number, request) for request in requests]
        willing = await self._trustees.wait_for_willing(
            self._visitors.least_trustees,
            self._config.transport.return_timeout_s,
            [one.traffic.spec for one in asked],
        )
        await self._key_generation.ensure(willing)
        key = await self._keep_key()
        for one in asked:
            place = one.record.round_number, one.record.arm
            self._attempts[place] = one.record.attempt
            self._spending.add(one.traffic.spec, 0)
        await self._journal.call(self._journal.invite, [one.record for one in asked])
        await self._seats.open(asked, key)
        return asked

    def _describe(self, number: int, request: CohortRequest) -> AskedCohort:
        """Describe a cohort in which everybody is a node of their own."""
        stated = self._config.secure_sum
        rule = FloorRule(request.size, stated.corrupt, stated.dropout)
        floor, attempt = rule.floor(request.size), self._attempts[number, request.arm]
        spec = describe_cohort(self._config, self._run_id, request, floor, attempt + 1)
        found = Recruited(request, Draw({}, floor), spec)
        return self._runner.prepare(found, number, attempt + 1)

    async def _announce(self, number: int, asked: Sequence[AskedCohort]) -> None:
        await self._listen(
            events.RoundStarted(
                number,
                asked[0].record.batch,
                tuple(one.record.arm for one in asked),
                sum(one.users for one in asked),
            )
        )
        for one in asked:
            await self._runner.announce(one, one.users)

    async def _sum(
        self, number: int, asked: Sequence[AskedCohort]
    ) -> list[tuple[CohortSum, SumRecord]]:
        """Close the seats; open all sums, or none where one arm has too few."""
        counts = await self._seats.close([one.record.cohort_id for one in asked])
        by_cohort = {one.record.cohort_id: one for one in asked}
        for cohort_id, seats in counts.items():
            arm = by_cohort[cohort_id].record.arm
            self._tally.asked[arm] += seats.taken + seats.answered
        return await self._sums.open(asked, counts, partial(self._find_holders, number))

    async def _find_holders(self, number: int) -> None:
        """Return when enough trustees that hold the key are there."""
        key = self._sessions.shared_key
        assert key is not None, "seats are opened under a key that is kept"
        try:
            await self._trustees.wait_for_holders(
                key, self._config.transport.return_timeout_s
            )
        except TrusteesMissingError:
            await self._journal.call(self._journal.note, WAITING, number)
            raise

    # --- after a restart ----------------------------------------------------------

    def _count_asked(self) -> None:
        """Count what an earlier part of the run asked and heard.

        People may come meanwhile: those of open cohorts are counted when their seats
        are closed, as in every other round.
        """
        people = self._journal.count_asked()  # read once, since it grows
        for cohort in self._journal.cohorts():
            self._spending.add(CohortSpec.FromString(cohort.spec), 0)
            self._attempts[cohort.round_number, cohort.arm] = cohort.attempt
            if cohort.state != INVITED:
                self._tally.asked[cohort.arm] += people[cohort.cohort_id]
            if cohort.result is not None:
                self._tally.answered += cohort.result.survivors
        self._tally.lost = self._tally.invited - self._tally.answered

    def _read_open(self) -> list[AskedCohort]:
        """Return the cohorts that are not over, ready to go on with."""
        found = []
        for cohort in self._journal.cohorts():
            if cohort.state != INVITED:
                continue
            spec = CohortSpec.FromString(cohort.spec)
            wrap = from_rational("wrap", spec.wrap_probability)
            request = CohortRequest(cohort.batch, cohort.arm, cohort.size, wrap)
            traffic = self._runner.traffic(spec, {})
            found.append(AskedCohort(request, cohort, traffic, spec.cohort_size))
        return found

    def _read_seated(self) -> Mapping[str, bool]:
        return {one.cohort_id: one.is_closed for one in self._seats.register.seated()}

    async def _take_under_way(self, policy: Policy) -> list[AskedCohort]:
        """Return the round that a restart interrupted, without arms retired since."""
        under_way, self._under_way = self._under_way, []
        wanted = set(map(_terms, policy.next_cohorts()))
        kept = [one for one in under_way if _terms(one.cohort_request) in wanted]
        if await self._journal.call(self._is_given_up, kept):
            kept = []
        await self._give_up([one for one in under_way if one not in kept])
        return kept

    def _is_given_up(self, asked: Sequence[AskedCohort]) -> bool:
        """Say whether another arm of the same seats is void: then no sum counts."""
        draws = {one.record.draw for one in asked}
        return any(
            cohort.draw in draws
            and cohort.state == VOID
            and cohort.reason != _STOPPED  # of an arm that was retired
            for cohort in self._journal.cohorts()
        )

    async def _give_up(self, asked: Sequence[AskedCohort]) -> None:
        """Close and void cohorts that nobody needs any more."""
        seated = await self._journal.call(self._read_seated)
        for one in asked:
            cohort_id = one.record.cohort_id
            counts = SeatCounts()
            if cohort_id in seated:
                counts = (await self._seats.close([cohort_id]))[cohort_id]
                self._tally.asked[one.record.arm] += counts.taken + counts.answered
            await self._sums.give_up(one, counts, _STOPPED)

    # --- the key -----------------------------------------------------------------

    async def _keep_key(self) -> SharedKey:
        """Keep the key before anybody seals under it; it holds no secret."""
        key = self._sessions.shared_key
        assert key is not None, "the key generation has just made one"
        kept = self._keys.cohort(key.dealing_id)
        if await kept.snapshot() is None:
            state = key.state.SerializeToString(deterministic=True)
            await kept.enter_stage(_KEY, state)
        return key

    async def _restore_key(self) -> None:
        for one in reversed(await self._journal.call(self._journal.dealings)):
            if one.reason:
                continue
            state = await self._keys.cohort(one.dealing_id).snapshot()
            if state is not None:
                self._sessions.restore_key(state)
            return

    async def _forget_old_keys(self) -> None:
        key = self._sessions.shared_key
        dealt = await self._journal.call(self._journal.dealings)
        for one in dealt:
            if key is not None and one.dealing_id != key.dealing_id:
                await self._keys.cohort(one.dealing_id).forget()


def _terms(request: CohortRequest) -> tuple[int, int, int]:
    return request.batch, request.arm, request.size
