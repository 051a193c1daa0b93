"""One experiment from its first cohort to its winner, through any transport.

Per round: the policy requests cohorts; users never asked before are drawn for every
arm; all invitations are written down; the cohorts of all arms run at the same time;
void ones are recruited anew from unused users; the policy decides on the sums; the
round is written down. A crash at any point loses at most the round under way, never a
user's place in the record.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from wallflower.protocol.errors import UnavailableError
from wallflower.protocol.messages.port import NodeTransport
from wallflower.protocol.privacy.honest_floor import Floor
from wallflower.protocol.secure_sum.backends import asks_once
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.strategy.bandit.policy import (
    USERS_EXHAUSTED,
    CohortRequest,
    CohortSum,
    Policy,
)
from wallflower.strategy.config import ExperimentConfig
from wallflower.strategy.run.cohort import (
    AskedCohort,
    describe_cohort,
)
from wallflower.strategy.run.common_nodes import CommonNodes, fill_together
from wallflower.strategy.run.key_generation import DealingFailedError
from wallflower.strategy.run.meeting import RollCall, Terms, TermsRefusedError
from wallflower.strategy.run.pending_cohorts import SessionFactory
from wallflower.strategy.run.recruiting import (
    NodesMissingError,
    Recruited,
    Recruiter,
)
from wallflower.strategy.run.registry import UserRegistry
from wallflower.strategy.run.run_loop import RunLoop
from wallflower.strategy.run.run_state import (
    asked_by_arm,
)
from wallflower.strategy.run.sharing import UsersExhaustedError
from wallflower.strategy.store import events
from wallflower.strategy.store.entries import (
    WAITING,
    SumRecord,
)
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.store.losses import describe_losses
from wallflower.strategy.store.spool import Spool


class Orchestrator(RunLoop):
    """Drives one run; everything it needs is given.

    Parameters
    ----------
    config : ExperimentConfig
        What the journal began with.
    journal : Journal
        Opened for writing; new, or of a run to go on with.
    transport : NodeTransport
        How nodes are reached.
    sessions : SessionFactory
        Opens the server's half of a secure sum.
    listen : events.Listen
        Hears every event.
    expected_nodes : int
        How many nodes to wait for before the first round.
    spool : Spool, optional
        Keeps open sessions, where nodes outlive the server: a restart then finishes
        the cohorts whose contributions were all in.
    """

    def __init__(
        self,
        config: ExperimentConfig,
        journal: Journal,
        transport: NodeTransport,
        sessions: SessionFactory,
        listen: events.Listen = events.ignore,
        expected_nodes: int = 2,
        spool: Spool | None = None,
    ) -> None:
        super().__init__(config, journal, transport, sessions, listen, spool)
        self._spool = spool
        self._expected_nodes = expected_nodes
        self._registry = UserRegistry(
            config.privacy.max_participations, config.test.noise_seed
        )
        stage_timeout_s = config.transport.stage_timeout_s
        self._roll_call = RollCall(
            transport,
            journal,
            self._registry,
            stage_timeout_s,
            config.secure_sum.backend,
        )
        terms = Terms(transport, self._run_id, config.experiment.arms, stage_timeout_s)
        self._recruiter = Recruiter(
            config,
            journal,
            self._roll_call,
            registry=self._registry,
            terms=terms,
            listen=listen,
        )
        self._refused: TermsRefusedError | None = None

    async def _begin(self, number: int | None) -> None:
        await self._pending.recover(number)
        await self._roll_call.wait_for(
            self._expected_nodes, self._config.transport.join_timeout_s
        )
        await self._journal.call(self._mark_invited)
        await self._recruiter.restore_nodes()
        await self._key_generation.recall()

    async def _describe_start(self, number: int) -> events.RunStarted:
        return events.RunStarted(
            run_id=self._run_id,
            arms=self._config.experiment.arms,
            nodes=len(self._registry.nodes),
            population=self._registry.population,
            horizon=self._config.horizon,
            rounds_done=number - 1,
            head=await self._journal.call(lambda: self._journal.head),
            test_mode=self._config.test_mode,
        )

    async def _count_participations(self) -> int:
        return self._registry.most_invited

    def _mark_invited(self) -> None:
        cohorts = self._journal.cohorts()
        used = tuple(self._journal.used())
        self._registry.mark_invited((node_id, users) for _, node_id, users in used)
        nodes = self._journal.count_invited()
        self._tally.asked = asked_by_arm(self._journal)
        under_way = sum(len(users) for one, _, users in used if one in self._pending)
        for cohort in cohorts:
            spec = CohortSpec.FromString(cohort.spec)
            self._spending.add(spec, len(nodes.get(cohort.cohort_id, ())))
            self._attempts[cohort.round_number, cohort.arm] = cohort.attempt
            if cohort.result is not None:
                self._tally.answered += cohort.result.survivors
        self._tally.lost = self._tally.invited - self._tally.answered - under_way

    async def _round(self, number: int, policy: Policy) -> None:
        started = time.monotonic()
        resumed = [
            one for one in map(self._resume_cohort, policy.next_cohorts()) if one
        ]
        if not resumed:
            await self._recruiter.limit_round(number, policy)
        await self._pending.drop()
        try:
            new = await self._ask_round(number, policy, resumed)
        except UsersExhaustedError as error:
            if not resumed:
                await self._nobody_left(number, policy, error, started)
                return
            new = []  # nothing is learnt about the other arms in this round
        except NodesMissingError:
            await self._journal.call(self._journal.note, WAITING, number)
            raise
        next_cohorts = policy.next_cohorts()
        await self._invite(new)
        asked = sorted(resumed + new, key=lambda one: one.cohort_request.arm)
        await self._listen(
            events.RoundStarted(
                number,
                next_cohorts[0].batch,
                tuple(cohort_request.arm for cohort_request in next_cohorts),
                sum(one.users for one in asked),
            )
        )
        results = await fill_together(
            {one.cohort_request.arm: one for one in asked}, self._fill
        )
        sums = [result for result in results if result is not None]
        if not sums and self._refused is not None:
            raise self._refused
        if not sums:
            raise UnavailableError(
                f"no cohort of round {number} gave a sum; users lost so far: "
                f"{describe_losses(self._tally.losses)} (see `wallflower status "
                f"{self._journal.run_dir}`). When the cause is mended, resume the run"
            )
        await self._observe(policy, sums)
        if policy.finished is None and await self._recruiter.is_exhausted(policy):
            policy.stop(USERS_EXHAUSTED)
        await self._finish(number, policy, [record for _, record in sums], started)

    async def _ask_round(
        self, number: int, policy: Policy, resumed: Sequence[AskedCohort]
    ) -> list[AskedCohort]:
        """Find users for the rest of a round, or of a smaller one for who is left."""
        going_on = {one.cohort_request.arm for one in resumed}
        while True:
            rest = [
                cohort_request
                for cohort_request in policy.next_cohorts()
                if cohort_request.arm not in going_on
            ]
            try:
                return await self._ask(number, rest, resumed)
            except UsersExhaustedError:
                if resumed or not await self._recruiter.limit_round(number, policy):
                    raise

    async def _nobody_left(
        self, number: int, policy: Policy, error: UsersExhaustedError, started: float
    ) -> None:
        """End a run whose last cohorts were all void; a round is never written empty.

        Ordinarily the round before knew that it was the last.
        """
        if not any(asked_in == number for asked_in, _ in self._attempts):
            raise self._recruiter.describe_shortage(number, error) from None
        policy.stop(USERS_EXHAUSTED)
        await self._finish(number, policy, [], started)

    async def _ask(
        self,
        number: int,
        next_cohorts: Sequence[CohortRequest],
        like: Sequence[AskedCohort] = (),
    ) -> list[AskedCohort]:
        """Find users for all requests or none, on nodes that agree to the terms.

        `like` are cohorts of the same round, whose composition these should have.
        """
        if not next_cohorts:
            return []

        def describe(cohort_request: CohortRequest, floor: Floor) -> CohortSpec:
            attempt = self._attempts[number, cohort_request.arm] + 1
            return describe_cohort(
                self._config, self._run_id, cohort_request, floor, attempt
            )

        nodes = like[0].composition if like else None
        found = await self._recruiter.recruit(next_cohorts, describe, nodes)
        await self._have_key(found)
        return [
            self._runner.prepare(
                one, number, self._attempts[number, one.cohort_request.arm] + 1
            )
            for one in found
        ]

    async def _have_key(self, found: Sequence[Recruited]) -> None:
        """Ensure that the run has a key; without one nobody was drawn."""
        willing = await self._recruiter.list_willing()
        try:
            largest = max(len(one.draw.users) for one in found)
            await self._key_generation.ensure(willing, largest)
        except DealingFailedError:
            for one in found:
                self._registry.give_back(one.draw.users)
            raise

    async def _invite(self, asked: Sequence[AskedCohort]) -> None:
        """Write invitations down; only then may they be sent."""
        for one in asked:
            self._attempts[one.record.round_number, one.record.arm] += 1
            self._tally.asked[one.record.arm] += one.users
            self._spending.add(one.traffic.spec, len(one.record.users))
        await self._journal.call(self._journal.invite, [one.record for one in asked])

    def _resume_cohort(self, cohort_request: CohortRequest) -> AskedCohort | None:
        """Go on with the cohort that a restart interrupted after its set was closed."""
        record = self._pending.take(cohort_request)
        if record is None:
            return None
        spec = CohortSpec.FromString(record.spec)
        traffic = self._runner.traffic(spec, record.users)
        return AskedCohort(cohort_request, record, traffic, spec.cohort_size)

    async def _fill(
        self, asked: AskedCohort, common: CommonNodes
    ) -> tuple[CohortSum, SumRecord] | None:
        """Fill one request; a void cohort is recruited again, a bounded number of
        times.

        The first attempt's invitations are in the journal already.
        """
        number = asked.record.round_number
        for left in range(self._config.transport.attempts - 1, -1, -1):
            result = await self._runner.attempt(asked, common)
            await self._give_back(asked)
            if result is not None:
                return result
            if not left:
                break
            try:
                (asked,) = await self._ask(number, [asked.cohort_request], [asked])
            except TermsRefusedError as error:
                self._refused = error  # told when no arm got any further
                break
            except (UsersExhaustedError, NodesMissingError, DealingFailedError):
                break
            await self._invite([asked])
        return None  # nothing is learnt about this arm in this round

    async def _give_back(self, asked: AskedCohort) -> None:
        """Free users whose node refused before they saw the arm."""
        traffic = asked.traffic
        for node_id, refusal in traffic.declined.items():
            self._recruiter.terms.note_refusal(node_id, traffic.spec, refusal)
        for node_id in traffic.returned.keys() | traffic.outdated:
            self._recruiter.terms.forget_acceptance(node_id)
        if traffic.returned:
            await self._journal.call(
                self._journal.give_back, traffic.spec.cohort_id, traffic.returned
            )
            self._registry.give_back({n: traffic.users[n] for n in traffic.returned})

    async def _close_all(self) -> None:
        """Tell nodes to forget their last cohorts; nothing depends on an answer."""
        self._key_generation.close_all()
        # Without a spool nodes end with the server, and so do their sessions.
        once = self._spool is None and asks_once(self._config.secure_sum.backend)
        await self._runner.close_all(self._run_id, shares_only=once)
