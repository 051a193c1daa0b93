"""The ``fast`` engine of ``wallflower run``: the sums alone.

Same draws, rewards, randomizer, analyzer, policy and journal as every other engine, but
the users' integers are simply added up: no nodes, no ledger, no secure sum, no
transport. It rehearses an experiment in moments. With ``test.noise-seed`` its sums are
those of ``local`` and ``simulation``, bit by bit, which shows that crypto and transport
change nothing. It protects nobody: whoever runs it holds every reward.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from wallflower.clients.node.randomizer import real_randomizer, seeded_randomizer
from wallflower.clients.rewards.ready import require_ready
from wallflower.clients.rewards.source import Pull, Rewards, pull_rewards
from wallflower.engines.population import (
    check_rewards,
    hosted_patience,
    node_names,
    reward_sources,
    users_of,
)
from wallflower.engines.registry import EngineJob
from wallflower.protocol.cohort import cohort_mechanism
from wallflower.protocol.errors import InputError, UnavailableError
from wallflower.strategy.bandit.policy import (
    USERS_EXHAUSTED,
    CohortOutcome,
    CohortWish,
    Policy,
)
from wallflower.strategy.bandit.setup import policy_for
from wallflower.strategy.config import ExperimentConfig
from wallflower.strategy.record import events
from wallflower.strategy.record.entries import CohortRecord, RoundRecord, SumRecord
from wallflower.strategy.record.event_log import EventLog
from wallflower.strategy.record.journal import Journal
from wallflower.strategy.run.analyzer import analyze
from wallflower.strategy.run.cohort_spec import (
    cohort_spec,
    draw_round,
    everybody_suffices,
    may_go_on,
    who_is_left,
)
from wallflower.strategy.run.drawing import Draw, UserRegistry
from wallflower.strategy.run.sharing import UsersExhaustedError
from wallflower.strategy.run.spending import Asked, spent
from wallflower.strategy.watch.telemetry import fan_out


def check(config: ExperimentConfig) -> None:
    """Refuse what would fail later."""
    check_rewards(config)


async def run_plain(job: EngineJob) -> None:
    """Drive a job to its end; see `wallflower.engines.Engine`."""
    run_dir = job.run_dir
    with Journal.resume(run_dir, job.config) as journal, EventLog(run_dir) as log:
        if journal.cohorts():
            raise InputError(
                "run", str(job.run_dir), "a new one: engine fast begins anew"
            )
        listen = fan_out(log.listen, job.listen)
        await _Rehearsal(dataclasses.replace(job, listen=listen), journal).run()


@dataclass(slots=True)
class _Cohort:
    """A cohort with the integers of its users added up; void below its quorum."""

    record: CohortRecord
    losses: Mapping[str, int]
    outcome: CohortOutcome | None = None
    result: SumRecord | None = None


class _Rehearsal:
    """One run without nodes."""

    def __init__(self, job: EngineJob, journal: Journal) -> None:
        self._config = job.config
        self._job = job
        self._journal = journal
        self._source = reward_sources(job.config)
        seed = job.config.test.noise_seed
        self._registry = UserRegistry(job.config.privacy.max_participations, seed)
        counts = zip(node_names(job.config), job.config.nodes.sizes, strict=True)
        for name, count in sorted(counts):
            self._registry.add_node(name, users_of(self._source(name), count))
        self._randomizer = real_randomizer()
        self._all: list[Asked] = []
        self._asked = self._answered = 0

    async def run(self) -> None:
        """Go from wish to sum to decision until the policy has enough."""
        policy = policy_for(self._config)
        await self._job.listen(
            events.RunStarted(
                run_id=self._job.run_id,
                arms=self._config.experiment.arms,
                nodes=len(self._registry.nodes),
                population=self._registry.population,
                horizon=self._config.horizon,
                rounds_done=0,
                head=self._journal.head,
                test_mode=self._config.test_mode,
            )
        )
        self._journal.meet(self._registry.known)
        number = 1
        while policy.finished is None:
            await self._round(number, policy)
            number += 1

    async def _round(self, number: int, policy: Policy) -> None:
        started = time.monotonic()
        await self._journal.call(self._shrink, number, policy)
        wishes = policy.wishes()
        cohorts: list[_Cohort] = []
        try:
            draws = draw_round(
                self._registry, self._config, wishes, self._registry.nodes
            )
        except (UsersExhaustedError, InputError) as error:
            raise InputError(
                "nodes", str(error), "enough users on enough nodes for the first batch"
            ) from None
        for wish, draw in zip(wishes, draws, strict=True):
            for node_id in draw.users:
                name = self._config.experiment.arms[wish.arm]
                await require_ready(self._source(node_id), wish.arm, name)
        for wish, draw in zip(wishes, draws, strict=True):
            cohorts += await self._fill(number, wish, draw)
        await self._journal.call(self._write_cohorts, cohorts)
        outcomes = [one.outcome for one in cohorts if one.outcome is not None]
        if not outcomes:
            raise UnavailableError(
                f"no cohort of round {number} gave a sum (see `wallflower status "
                f"{self._journal.run_dir}`); too few people had a reward"
            )
        policy.observe(outcomes)
        if policy.finished is None and not may_go_on(
            self._registry, self._config, policy
        ):
            policy.stop(USERS_EXHAUSTED)
        head = await self._journal.call(self._write, number, policy, cohorts)
        await self._job.listen(
            events.RoundFinished(
                number=number,
                views=tuple(policy.arms()),
                invited=self._asked,
                answered=self._answered,
                lost=self._asked - self._answered,
                finished=policy.finished,
                seconds=time.monotonic() - started,
                head=head,
            )
        )

    def _shrink(self, number: int, policy: Policy) -> None:
        """Limit a round to who is left, as other engines do."""
        if everybody_suffices(self._registry, self._config, policy.wishes()):
            return
        users = who_is_left(self._registry, self._config, policy)
        if users is not None:
            self._journal.note_limited(number, users)
            policy.limit(users)

    async def _fill(self, number: int, wish: CohortWish, draw: Draw) -> list[_Cohort]:
        """Fill one wish as other engines do: a void cohort is recruited again."""
        asked: list[_Cohort] = []
        for attempt in range(1, self._config.transport.attempts + 1):
            asked.append(await self._cohort(number, wish, draw, attempt))
            if asked[-1].outcome is not None:
                break
            try:
                (draw,) = draw_round(
                    self._registry, self._config, [wish], self._registry.nodes
                )
            except (UsersExhaustedError, InputError):
                break
        return asked

    async def _cohort(
        self, number: int, wish: CohortWish, draw: Draw, attempt: int
    ) -> _Cohort:
        spec = cohort_spec(self._config, self._job.run_id, wish, draw.floor, attempt)
        mechanism = cohort_mechanism(spec)
        seed = self._config.test.noise_seed
        total = survivors = 0
        nodes: list[str] = []
        losses: Counter[str] = Counter()
        for node_id, users in draw.users.items():
            source: Rewards = self._source(node_id)
            pull = Pull(
                run_id=spec.run_id,
                cohort_id=spec.cohort_id,
                batch=spec.batch,
                arm=spec.arm,
                arm_name=spec.arm_name,
                node_id=node_id,
                users=users,
            )
            pulled = await pull_rewards(source, pull, hosted_patience(self._config))
            losses.update(pulled.reasons)
            present = ~np.isnan(pulled.values)
            if not present.any():
                continue
            names = list(itertools.compress(users, present))
            randomize = (
                self._randomizer if seed is None else seeded_randomizer(seed, node_id)
            )
            total += randomize(spec, mechanism, names, pulled.values[present])
            survivors += len(names)
            nodes.append(node_id)
        self._asked += spec.cohort_size
        self._all.append((spec, len(draw.users)))
        record = CohortRecord(
            cohort_id=spec.cohort_id,
            round_number=number,
            batch=wish.batch,
            arm=wish.arm,
            attempt=attempt,
            size=wish.size,
            spec=spec.SerializeToString(deterministic=True),
            users=draw.users,
        )
        if survivors < spec.quorum:
            return _Cohort(record, losses)
        self._answered += survivors
        released = total % spec.modulus
        value = analyze(mechanism, released, spec.modulus)
        return _Cohort(
            record,
            losses,
            CohortOutcome(
                batch=spec.batch,
                arm=spec.arm,
                cohort_size=spec.cohort_size,
                honest_floor=spec.honest_floor,
                survivors=survivors,
                precision=mechanism.precision,
                total=value,
            ),
            SumRecord(
                cohort_id=spec.cohort_id,
                released=None if mechanism.server_noise() is not None else released,
                modulus=spec.modulus,
                total=value,
                precision=mechanism.precision,
                survivors=survivors,
                nodes=tuple(nodes),
                losses=losses,
            ),
        )

    def _write_cohorts(self, cohorts: Sequence[_Cohort]) -> None:
        self._journal.invite([cohort.record for cohort in cohorts])
        for cohort in cohorts:
            if cohort.result is None:
                self._journal.void(
                    cohort.record.cohort_id, "quorum-not-met", cohort.losses
                )

    def _write(self, number: int, policy: Policy, cohorts: Sequence[_Cohort]) -> str:
        record = RoundRecord(
            number,
            tuple(dataclasses.asdict(view) for view in policy.arms()),
            policy.state(),
            spent(
                self._all,
                self._registry.most_invited,
                test_mode=self._config.test_mode,
            ),
            policy.finished,
        )
        sums = [one.result for one in cohorts if one.result is not None]
        return self._journal.finish_round(record, sums)
