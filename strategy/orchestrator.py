"""One experiment from its first cohort to its winner, through any port.

Per round: the policy wishes; users never asked before are drawn for every arm; all
invitations are written down; the cohorts of all arms run at the same time; void ones
are recruited anew from unused users; the policy decides on the sums; the round is
written down. A crash at any point loses at most the round under way, never a user's
place in the record.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass

from protocol.errors import InputError, UnavailableError, first_error
from protocol.port import NodeId, NodePort
from protocol.session import SecureSum
from protocol.wire.cohort_pb2 import CohortSpec
from strategy import events
from strategy.cohort_spec import cohort_spec, floor_rule
from strategy.cohorts import UserRegistry, UsersExhaustedError
from strategy.config import ExperimentConfig
from strategy.journal import Journal
from strategy.open_cohorts import OpenCohorts, OpenSession
from strategy.policy import CohortOutcome, CohortWish, Policy
from strategy.policy_setup import policy_for, restored_policy
from strategy.records import CohortRecord, RoundRecord, SumRecord
from strategy.released import released_sum
from strategy.requests import Closings, CohortTraffic
from strategy.roll_call import RollCall
from strategy.spending import spent
from strategy.spool import Spool
from strategy.sum_driver import Deadlines, run_session

# Stages in which users pull the arm, by back-end; they may take hours.
_REWARD_STAGES = ("contribute", "mask")
_PROGRESS_EVERY_S = 0.2
_CLOSING_TIMEOUT_S = 10.0
USERS_EXHAUSTED = "users-exhausted"


@dataclass(slots=True)
class _Asked:
    """One attempt at one wish, written down and ready to be sent."""

    wish: CohortWish
    record: CohortRecord
    traffic: CohortTraffic
    users: int
    resumed: bool = False  # from before a restart; nobody is asked anew


@dataclass(slots=True)
class _Tally:
    """Users of the whole run, for views."""

    invited: int = 0
    answered: int = 0
    lost: int = 0


class Orchestrator:
    """Drives one run; everything it needs is given.

    Parameters
    ----------
    config : ExperimentConfig
        What the journal began with.
    journal : Journal
        Opened for writing; new, or of a run to go on with.
    port : NodePort
        How nodes are reached.
    open_session : OpenSession
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
        port: NodePort,
        open_session: OpenSession,
        listen: events.Listen = events.ignore,
        expected_nodes: int = 2,
        spool: Spool | None = None,
    ) -> None:
        self._config = config
        self._journal = journal
        self._port = port
        self._open = OpenCohorts(journal, open_session, spool)
        self._listen = listen
        self._expected_nodes = expected_nodes
        self._run_id = journal.run_id
        self._registry = UserRegistry(
            config.privacy.max_participations, config.test.noise_seed
        )
        transport = config.transport
        self._roll_call = RollCall(
            port, self._run_id, self._registry, transport.stage_timeout_s
        )
        self._deadlines = Deadlines(
            transport.stage_timeout_s,
            dict.fromkeys(_REWARD_STAGES, transport.reward_timeout_s),
        )
        self._closings = Closings()
        self._tally = _Tally()
        self._specs: list[CohortSpec] = []
        self._attempts: Counter[tuple[int, int]] = Counter()  # by round and arm

    async def run(self) -> None:
        """Bring the experiment to its end; the journal is the result."""
        try:
            await self._run()
        except BaseExceptionGroup as group:
            raise first_error(group) from None

    async def _run(self) -> None:
        last = await asyncio.to_thread(self._journal.last_round)
        over = last is not None and last.finished is not None
        number = 1 if last is None else last.number + 1
        await self._open.recover(None if over else number)
        await self._roll_call.wait_for(
            self._expected_nodes, self._config.transport.attend_timeout_s
        )
        await asyncio.to_thread(self._mark_invited)
        if over:
            return
        nodes = len(self._registry.nodes)
        policy = (
            policy_for(self._config)
            if last is None
            else restored_policy(last.policy_state)
        )
        await self._listen(
            events.RunStarted(
                self._run_id,
                self._config.experiment.arms,
                nodes,
                self._registry.population,
                self._config.horizon,
                number - 1,
            )
        )
        while policy.finished is None:
            await self._round(number, policy)
            number += 1
        await self._close_all()

    def _mark_invited(self) -> None:
        cohorts = self._journal.cohorts()
        self._registry.mark_invited(
            (node_id, users) for _, node_id, users in self._journal.invitations()
        )
        for cohort_id, _, users in self._journal.invitations():
            if cohort_id not in self._open:  # those are counted when they are asked
                self._tally.invited += len(users)
        for cohort in cohorts:
            self._specs.append(CohortSpec.FromString(cohort.spec))
            self._attempts[cohort.round_number, cohort.arm] = cohort.attempt
            if cohort.result is not None:
                self._tally.answered += cohort.result.survivors
        self._tally.lost = self._tally.invited - self._tally.answered

    async def _round(self, number: int, policy: Policy) -> None:
        started = time.monotonic()
        present = await self._roll_call.refresh()
        wishes = policy.wishes()
        try:
            chosen = self._chosen(wishes, present)
            asked = [
                self._resumed(wish) or self._ask(number, wish, chosen)
                for wish in wishes
            ]
        except UsersExhaustedError:
            policy.stop(USERS_EXHAUSTED)
            await self._open.drop()
            await self._finish(number, policy, [], started)
            return
        await self._open.drop()
        new = [one.record for one in asked if not one.resumed]
        await asyncio.to_thread(self._journal.invite, new)
        await self._listen(
            events.RoundStarted(
                number,
                wishes[0].batch,
                tuple(wish.arm for wish in wishes),
                sum(one.users for one in asked),
            )
        )
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._fill(one)) for one in asked]
        results = [task.result() for task in tasks]
        sums = [result for result in results if result is not None]
        if not sums:
            raise UnavailableError(
                f"no cohort of round {number} gave a sum (see `wallflower status "
                f"{self._journal.run_dir}`); when nodes are back, resume the run"
            )
        outcomes = [outcome for outcome, _ in sums]
        records = [record for _, record in sums]
        # A policy may take long over many arms; nodes must still be served meanwhile.
        await asyncio.to_thread(policy.observe, outcomes)
        await self._finish(number, policy, records, started)

    async def _finish(
        self,
        number: int,
        policy: Policy,
        sums: Sequence[SumRecord],
        started: float,
    ) -> None:
        views = tuple(policy.arms())
        record = RoundRecord(
            number,
            tuple(dataclasses.asdict(view) for view in views),
            policy.state(),
            spent(self._specs, self._registry.most_invited),
            policy.finished,
        )
        await asyncio.to_thread(self._journal.finish_round, record, sums)
        await self._open.forget(one.cohort_id for one in sums)
        await self._listen(
            events.RoundFinished(
                number,
                views,
                self._tally.invited,
                self._tally.answered,
                self._tally.lost,
                policy.finished,
                time.monotonic() - started,
            )
        )

    def _chosen(
        self, wishes: Sequence[CohortWish], present: Sequence[NodeId]
    ) -> tuple[NodeId, ...]:
        return self._registry.choose(
            sum(wish.size for wish in wishes),
            self._config.secure_sum.nodes_per_cohort,
            present,
        )

    def _ask(self, number: int, wish: CohortWish, nodes: Sequence[NodeId]) -> _Asked:
        """Draw users and describe the cohort; nothing is sent yet."""
        rule = floor_rule(self._config, len(nodes))
        draw = self._registry.draw(wish.size, rule, nodes)
        self._attempts[number, wish.arm] += 1
        attempt = self._attempts[number, wish.arm]
        spec = cohort_spec(self._config, self._run_id, wish, draw.floor, attempt)
        self._specs.append(spec)
        record = CohortRecord(
            spec.cohort_id,
            number,
            wish.batch,
            wish.arm,
            attempt,
            wish.size,
            spec.SerializeToString(deterministic=True),
            draw.users,
        )
        traffic = CohortTraffic(spec, draw.users, self._closings)
        return _Asked(wish, record, traffic, draw.floor.cohort_size)

    def _resumed(self, wish: CohortWish) -> _Asked | None:
        """Go on with the cohort that a restart interrupted after its set was closed."""
        record = self._open.take(wish)
        if record is None:
            return None
        spec = CohortSpec.FromString(record.spec)
        traffic = CohortTraffic(spec, record.users, self._closings)
        return _Asked(wish, record, traffic, spec.cohort_size, resumed=True)

    async def _fill(self, asked: _Asked) -> tuple[CohortOutcome, SumRecord] | None:
        """Fill one wish; a void cohort is recruited again, a bounded number of times.

        The first attempt's invitations are in the journal already.
        """
        for left in range(self._config.transport.attempts - 1, -1, -1):
            result = await self._attempt(asked)
            if result is not None:
                return result
            if not left:
                break
            present = await self._roll_call.refresh()
            try:
                chosen = self._chosen([asked.wish], present)
                asked = self._ask(asked.record.round_number, asked.wish, chosen)
            except (UsersExhaustedError, InputError):
                break
            await asyncio.to_thread(self._journal.invite, [asked.record])
        return None  # nothing is learnt about this arm in this round

    async def _attempt(self, asked: _Asked) -> tuple[CohortOutcome, SumRecord] | None:
        """Run one cohort to its sum, or write down why there is none."""
        started = time.monotonic()
        record, users = asked.record, asked.users
        self._tally.invited += users
        await self._listen(
            events.CohortAsked(
                record.cohort_id,
                record.round_number,
                record.batch,
                record.arm,
                record.attempt,
                users,
                len(record.users),
            )
        )
        ticker = asyncio.create_task(self._tell_progress(asked))
        try:
            session, kept = await self._open.session(
                asked.traffic.spec, {n: len(u) for n, u in record.users.items()}
            )
            end = await run_session(
                session,
                self._port,
                asked.traffic.wrap,
                asked.traffic.unwrap,
                self._deadlines,
                kept,
            )
        finally:
            ticker.cancel()
            await asyncio.wait([ticker])
            self._closings.add(record.cohort_id, record.users)
        survivors = end.users if isinstance(end, SecureSum) else 0
        self._tally.answered += survivors
        self._tally.lost += users - survivors
        void = None if isinstance(end, SecureSum) else end.code
        if void is not None:
            await asyncio.to_thread(self._journal.void, record.cohort_id, void)
            await self._open.forget([record.cohort_id])
        await self._listen(
            events.CohortEnded(
                record.cohort_id,
                record.arm,
                record.attempt,
                survivors,
                users - survivors,
                void,
                tuple(sorted(asked.traffic.refusals.items())),
                time.monotonic() - started,
            )
        )
        return (
            released_sum(asked.traffic.spec, end)
            if isinstance(end, SecureSum)
            else None
        )

    async def _tell_progress(self, asked: _Asked) -> None:
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

    async def _close_all(self) -> None:
        """Tell nodes to forget their last cohorts; nothing depends on an answer."""
        requests = self._closings.requests(self._run_id)
        if not requests:
            return
        stream = self._port.ask(requests, timeout_s=_CLOSING_TIMEOUT_S)
        with contextlib.suppress(Exception):
            async with aclosing(stream) as answers:
                async for _ in answers:
                    pass
