"""What users will be promised and what it will cost, before anybody is asked.

Everything follows from public settings: batch sizes from the schedule, integers from
the calibrated mechanism, separable gaps from the `tight` test, promises from the
exact accountant.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

from wallflower.planning.typical import typical_users
from wallflower.protocol.accounting.dropout import effective_epsilon_of
from wallflower.protocol.accounting.exact import Bound, probabilistic, returning_users
from wallflower.protocol.accounting.truncation import truncation
from wallflower.protocol.cohort import check_pairing
from wallflower.protocol.errors import InputError
from wallflower.protocol.numbers import whole
from wallflower.protocol.privacy.guarantee import Guarantee
from wallflower.protocol.privacy.honest_floor import PlannedFloors
from wallflower.protocol.privacy.mechanism import (
    LARGEST_COHORT,
    CohortMechanism,
    mechanism_class,
)
from wallflower.protocol.privacy.mixed import MixedCohort
from wallflower.protocol.privacy.sentences import SENTENCE_DELTA, Group, Promise
from wallflower.protocol.secure_sum.backends import SHUFFLE
from wallflower.protocol.secure_sum.shuffle.plan import MIXED, mode_of
from wallflower.strategy.bandit.confidence import CohortFacts, confidence_for
from wallflower.strategy.bandit.evidence import evidence_for
from wallflower.strategy.bandit.radius import Pool, cohort_noise, pair_radius
from wallflower.strategy.bandit.schedule import Schedule
from wallflower.strategy.bandit.setup import planned_floors
from wallflower.strategy.bandit.spec import ELIMINATION, LARGEST_HORIZON, PolicySpec
from wallflower.strategy.config import load_config

PRIVACY_DELTAS = (1e-5, SENTENCE_DELTA, 1e-9)
ARRIVING = (Fraction(1), Fraction(19, 20), Fraction(3, 4), Fraction(1, 2))


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """The operator's question; `gaps` are differences of means to be told apart.

    `floor` is the part of every cohort that is surely honest and present, `corrupt`
    the part of its nodes that may work with the operator. `shuffle` ``mixed`` sends
    the sums of ``dist-dp`` through a shuffler.
    """

    arms: int
    horizon: int
    epsilon: Fraction
    mechanism: str
    scale: Fraction
    ratio: Fraction | None
    first_batch: int
    floor: Fraction
    corrupt: Fraction
    participations: int
    failure_probability: Fraction
    gaps: tuple[Fraction, ...]
    base_rate: Fraction = Fraction(1, 2)
    shuffle: str = ""
    floors: PlannedFloors | None = None  # of the nodes of a file, instead of `floor`

    def __post_init__(self) -> None:
        whole("participations", self.participations, at_least=1, at_most=1000)
        for gap in self.gaps:
            if not 0 < gap <= 1:
                raise InputError("gap", gap, "greater than 0 and at most 1")
        if not 0 < self.base_rate < 1:
            raise InputError("base-rate", self.base_rate, "between 0 and 1")
        if not 0 < self.floor <= 1:
            raise InputError("floor", self.floor, "greater than 0 and at most 1")
        if not 0 <= self.corrupt < 1:
            raise InputError("corrupt", self.corrupt, "from 0 to below 1")
        if mechanism_class(self.mechanism).simulated_only:
            allowed = "one that is not only simulated"
            raise InputError("mechanism", self.mechanism, allowed)
        if self.shuffle and self.shuffle != mode_of(self.mechanism):
            allowed = f'"{mode_of(self.mechanism)}" with {self.mechanism}'
            raise InputError("shuffle", self.shuffle, allowed)
        if self.shuffle:
            check_pairing(self.mechanism, SHUFFLE)

    def policy(self) -> PolicySpec:
        """The elimination policy these settings describe, first batch resolved."""
        return PolicySpec(
            policy=ELIMINATION,
            arms=self.arms,
            horizon=self.horizon,
            mechanism=self.mechanism,
            epsilon=self.epsilon,
            scale=self.scale,
            failure_probability=self.failure_probability,
            ratio=self.ratio,
            first_batch=self.first_batch,
            honest_fraction=self.floor,
            floors=self.floors,
        ).resolved()


def with_file(request: PlanRequest, path: Path, given: Collection[str]) -> PlanRequest:
    """Take from an experiment's file what no flag has given."""
    config = load_config(path)
    stated = config.secure_sum
    from_file: dict[str, Any] = {
        "arms": len(config.experiment.arms),
        "horizon": config.horizon,
        "epsilon": config.privacy.epsilon,
        "mechanism": config.privacy.mechanism,
        "scale": config.privacy.scale,
        "ratio": config.policy.ratio,
        "first_batch": config.policy.first_batch,
        "floor": Fraction(1) - stated.corrupt - stated.dropout,
        "corrupt": stated.corrupt,
        "participations": config.privacy.max_participations,
        "failure_probability": config.experiment.failure_probability,
        "shuffle": stated.shuffle if stated.backend == SHUFFLE else "",
    }
    if not {"floor", "corrupt", "arms"} & set(given):
        from_file["floors"] = planned_floors(config)
    changes = {key: value for key, value in from_file.items() if key not in given}
    return dataclasses.replace(request, **changes)


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """One batch: its integers, its cost so far, and what it can tell apart.

    `users` counts all arms up to and including this batch, no arm dropped.
    `separates` is the gap that is told apart for sure up to the failure probability;
    above 1 it says nothing.
    """

    batch: int
    cohort: CohortMechanism
    users: int
    separates: float


@dataclass(frozen=True, slots=True)
class GapCost:
    """Users needed to tell a gap apart; None where no reasonable number does.

    `users` suffice whatever the means are, with the probability promised. `typically`
    is the mean over simulated experiments in which one arm leads all others, which
    have the base rate, by this gap.
    """

    gap: Fraction
    batch: int | None
    users_per_arm: int | None
    users: int | None
    typically: int | None


@dataclass(frozen=True, slots=True)
class DropoutEffect:
    """ε if a sum were used although only this part of the floor answered."""

    arriving: Fraction
    epsilon: float


@dataclass(frozen=True, slots=True)
class LieEffect:
    """How far one dishonest person can move the mean of a group of `people`.

    Attributes
    ----------
    people : in the group.
    trusted : where her input is trusted: as far as the sum's window reaches.
    counts_as : honest people whose rewards her proved input can be worth at most.
    proved : how far she then moves the mean.
    """

    people: int
    trusted: float
    counts_as: float
    proved: float

    @classmethod
    def of(cls, cohort: CohortMechanism) -> LieEffect:
        """Compute it from the window of the sum and the range of one input."""
        size, weight = cohort.cohort_size, truncation(cohort).weight
        window = Fraction(cohort.modulus - 1, size * cohort.precision)
        return cls(size, float(window), float(weight), float(weight / size))


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole answer."""

    request: PlanRequest
    policy: PolicySpec
    batches: tuple[PlannedBatch, ...]
    guarantee: Guarantee
    sentence: str
    equivalents: tuple[Bound, ...]
    losses: tuple[float, ...]  # of one cohort, each exceeded with probability δ
    returning: tuple[Bound, ...]
    dropouts: tuple[DropoutEffect, ...]
    lies: tuple[LieEffect, ...]  # in every batch; none where inputs cannot be proved
    gaps: tuple[GapCost, ...]


def planned_batches(request: PlanRequest) -> list[PlannedBatch]:
    """Give the batches that the users suffice for, no arm dropped."""
    future = _future(request.policy())
    batches: list[PlannedBatch] = []
    for number in range(1, future.last_affordable + 1):
        planned = future.batch(number)
        if planned.users > request.horizon:
            break
        if request.shuffle == MIXED:
            mixed = MixedCohort.of(planned.cohort)
            planned = dataclasses.replace(planned, cohort=mixed)
        batches.append(planned)
    if not batches:
        raise InputError(
            "horizon",
            request.horizon,
            f"at least {planned.users}: {planned.cohort.cohort_size} users for each "
            f"of {request.arms} arms",
        )
    return batches


def make_plan(request: PlanRequest) -> Plan:
    """Answer; raises InputError where the settings allow no experiment at all."""
    policy = request.policy()
    batches = planned_batches(request)
    cohorts = [planned.cohort for planned in batches]
    promises = [
        returning_users(cohorts, request.participations, privacy_delta)
        for privacy_delta in PRIVACY_DELTAS
    ]
    returning = promises[PRIVACY_DELTAS.index(SENTENCE_DELTA)]
    guarantee = _weakest(cohorts)
    return Plan(
        request=request,
        policy=policy,
        batches=tuple(batches),
        guarantee=guarantee,
        sentence=_promise(request, guarantee, cohorts, returning[0]).sentence(),
        equivalents=tuple(bounds[0] for bounds in promises),
        losses=tuple(
            max(probabilistic(cohort, privacy_delta) for cohort in cohorts)
            for privacy_delta in PRIVACY_DELTAS
        ),
        returning=returning if request.participations > 1 else (),
        dropouts=_dropouts(guarantee, cohorts),
        lies=_lies(cohorts),
        gaps=tuple(
            _cost(gap, policy, request.base_rate)
            for gap in sorted(request.gaps, reverse=True)
        ),
    )


class _Future:
    """The batches to come, also beyond the horizon, computed when first asked for."""

    def __init__(self, policy: PolicySpec) -> None:
        assert policy.ratio is not None
        self._policy = policy
        self._schedule = Schedule(policy.ratio, policy.first_batch)
        self._shares = policy.shares
        self._confidence = confidence_for(policy)
        self._evidence = evidence_for(policy)
        self._history: tuple[CohortFacts, ...] = ()
        self._batches: list[PlannedBatch] = []
        # Failure probability that earlier batches left.
        self._unspent = policy.failure_probability

    @property
    def last_affordable(self) -> int:
        """The last batch of this horizon that a mechanism can be calibrated to."""
        batch = 1
        while (
            batch < self._policy.most_batches
            and self._schedule.size(batch + 1) <= LARGEST_COHORT
        ):
            batch += 1
        return batch

    def batch(self, number: int) -> PlannedBatch:
        while len(self._batches) < number:
            self._batches.append(self._next(len(self._batches) + 1))
        return self._batches[number - 1]

    def _next(self, number: int) -> PlannedBatch:
        policy = self._policy
        size = self._schedule.size(number)
        floor = policy.floor(size)
        cohort = policy.calibrated(size, floor, self._confidence.wrap(number))
        self._history += (CohortFacts(number, size, floor, size),)
        before = self._batches[-1].users if self._batches else 0
        separates = self._separates(number)
        self._unspent -= self._shares.batch(number)
        return PlannedBatch(number, cohort, before + policy.arms * size, separates)

    def _separates(self, number: int) -> float:
        """The gap at which an arm is dropped by the end of this batch, but for p.

        It falls when the estimates differ by more than the test needs, which is most
        about a mean of ½. The lead's deviation in the wrong direction is bounded at the
        level that earlier batches and the moduli leave; where it holds, the best arm
        does not fall in this batch either.
        """
        bound = self._confidence.pair(self._history, self._history, number)
        recent = self._history[-bound.pooled :]
        noises = tuple(
            cohort_noise(
                self._policy.calibrated(
                    facts.size, facts.floor, self._confidence.wrap(facts.level_batch)
                )
            )
            for facts in recent
        )
        pool = Pool(sum(facts.size for facts in recent), noises)
        wraps = self._policy.arms * self._confidence.wrap(number)
        level = (self._unspent - wraps) / max(self._policy.arms - 1, 1)
        needed = self._evidence.lead_needed(number, 0.5)
        return needed + pair_radius(pool, pool, level)


def _cost(gap: Fraction, policy: PolicySpec, base_rate: Fraction) -> GapCost:
    """Look within the horizon, then within ever longer ones."""
    horizon = policy.horizon
    while True:
        future, per_arm = _future(policy), 0
        for number in range(1, future.last_affordable + 1):
            planned = future.batch(number)
            per_arm += planned.cohort.cohort_size
            if planned.separates <= gap:
                often = None
                if planned.users <= 100 * horizon:
                    spec = dataclasses.replace(policy, horizon=horizon)
                    often = typical_users(spec, base_rate, gap)
                return GapCost(gap, number, per_arm, planned.users, often)
        longer = min(100 * policy.horizon, LARGEST_HORIZON)
        if longer == policy.horizon:
            return GapCost(gap, None, None, None, None)
        policy = dataclasses.replace(policy, horizon=longer)


@lru_cache(maxsize=8)
def _future(policy: PolicySpec) -> _Future:
    return _Future(policy)


def _promise(
    request: PlanRequest,
    guarantee: Guarantee,
    cohorts: list[CohortMechanism],
    best: Bound,
) -> Promise:
    """What one person is promised for the whole experiment.

    A pure promise is stated without any δ but its own, although a bound with δ may be
    a little smaller.
    """
    pure = guarantee.kind == "pure" and guarantee.epsilon is not None
    return Promise(
        kind=guarantee.kind,
        trust=guarantee.trust,
        epsilon=(
            request.participations * (guarantee.epsilon or Fraction(0))
            if pure
            else best.epsilon
        ),
        privacy_delta=(
            request.participations * float(guarantee.privacy_delta)
            if pure
            else best.privacy_delta
        ),
        times=request.participations,
        groups=tuple(Group(c.cohort_size, c.honest_floor) for c in cohorts),
        corrupt=request.corrupt,
        keys=(),
    )


def _lies(cohorts: list[CohortMechanism]) -> tuple[LieEffect, ...]:
    try:
        return tuple(LieEffect.of(cohort) for cohort in cohorts)
    except InputError:  # so large an ε that no proof could promise anything
        return ()


def _weakest(cohorts: list[CohortMechanism]) -> Guarantee:
    """The guarantee that covers every batch: the one with the largest ε."""
    promises = [cohort.guarantee() for cohort in cohorts]
    return max(promises, key=lambda promise: promise.approximate(SENTENCE_DELTA))


def _dropouts(
    guarantee: Guarantee, cohorts: list[CohortMechanism]
) -> tuple[DropoutEffect, ...]:
    if guarantee.trust not in ("distributed", "shuffler"):
        return ()
    return tuple(
        DropoutEffect(
            arriving,
            max(
                effective_epsilon_of(cohort, math.ceil(cohort.honest_floor * arriving))
                for cohort in cohorts
            ),
        )
        for arriving in ARRIVING
    )
