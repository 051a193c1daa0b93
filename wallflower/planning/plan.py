"""What users will be promised and what it will cost, before anybody is asked.

Everything follows from public settings: batch sizes from the schedule, integers from
the calibrated mechanism, separable gaps from the `tight` test, promises from the
exact accountant.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from fractions import Fraction

from wallflower.planning.future import (
    PlannedBatch,
    future_of,
    smallest_lead,
    typical_users,
    users_if_equal,
)
from wallflower.planning.request import PlanRequest, read_request
from wallflower.planning.units import Question, round_gap_up
from wallflower.policy_text import describe_purpose
from wallflower.protocol.accounting.exact import (
    Bound,
    effective_epsilon_of,
    probabilistic,
    returning_users,
)
from wallflower.protocol.accounting.truncation import truncation
from wallflower.protocol.errors import InputError
from wallflower.protocol.numbers import counted
from wallflower.protocol.privacy.guarantee import Guarantee
from wallflower.protocol.privacy.mechanism import CohortMechanism
from wallflower.protocol.privacy.pure import MixedCohort
from wallflower.protocol.privacy.sentences import (
    SENTENCE_DELTA,
    CohortCondition,
    Promise,
    percent,
)
from wallflower.protocol.secure_sum.shuffle.plan import MIXED
from wallflower.stated_experiment import StatedExperiment
from wallflower.strategy.bandit.spec import LARGEST_HORIZON, PolicySpec
from wallflower.strategy.config import ExperimentConfig
from wallflower.strategy.policy_names import ELIMINATION

PRIVACY_DELTAS = (1e-5, SENTENCE_DELTA, 1e-9)
ARRIVING = (Fraction(1), Fraction(19, 20), Fraction(3, 4), Fraction(1, 2))


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

    def fits(self, users: int) -> bool:
        """Return whether so many users suffice."""
        return self.users is not None and self.users <= users


@dataclass(frozen=True, slots=True)
class DropoutEffect:
    """ε if a sum were used although only this part of the floor answered."""

    arriving: Fraction
    epsilon: float


@dataclass(frozen=True, slots=True)
class LieEffect:
    """How far one dishonest person can move the mean of a cohort of `people`.

    Attributes
    ----------
    people : in the cohort.
    trusted : where their input is trusted: as far as the sum's window reaches.
    counts_as : honest people whose rewards their proved input can be worth at most.
    proved : how far they then move the mean.
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
    promise: Promise
    equivalents: tuple[Bound, ...]
    losses: tuple[float, ...]  # of one cohort, each exceeded with probability δ
    returning: tuple[Bound, ...]
    dropouts: tuple[DropoutEffect, ...]
    lies: tuple[LieEffect, ...]  # in every batch; none where inputs cannot be proved
    gaps: tuple[GapCost, ...]
    smallest_lead: Fraction | None  # that is typically found within the horizon
    users_if_equal: int | None  # until the margin typically ends a run of equal arms

    @property
    def sentence(self) -> str:
        """What one person is promised, and on which condition."""
        return self.promise.sentence()


def planned_batches(request: PlanRequest) -> list[PlannedBatch]:
    """Return the batches that the users suffice for, no arm dropped."""
    future = future_of(request.policy())
    batches: list[PlannedBatch] = []
    for number in range(1, future.last_affordable + 1):
        planned = future.batch(number)
        if planned.users > request.horizon:
            break
        if request.reach is not None and number > request.reach.rounds:
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
        promise=_promise(request, guarantee, cohorts, returning[0]),
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
        smallest_lead=smallest_lead(policy, request.base_rate),
        users_if_equal=(
            None if policy.margin is None else users_if_equal(policy, request.base_rate)
        ),
    )


def _cost(gap: Fraction, policy: PolicySpec, base_rate: Fraction) -> GapCost:
    """Look within the horizon, then within ever longer ones."""
    horizon = policy.horizon
    while True:
        future, per_arm = future_of(policy), 0
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
        # Beyond the horizon a gap costs people, in however many rounds.
        policy = dataclasses.replace(policy, horizon=longer, most_rounds=0)


def _promise(
    request: PlanRequest,
    guarantee: Guarantee,
    cohorts: list[CohortMechanism],
    best: Bound,
) -> Promise:
    """Return what one person is promised for the whole experiment.

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
        conditions=tuple(
            CohortCondition(c.cohort_size, c.honest_floor) for c in cohorts
        ),
        corrupt=request.corrupt,
        keys=(),
    )


def _lies(cohorts: list[CohortMechanism]) -> tuple[LieEffect, ...]:
    try:
        return tuple(LieEffect.of(cohort) for cohort in cohorts)
    except InputError:  # so large an ε that no proof could promise anything
        return ()


def _weakest(cohorts: list[CohortMechanism]) -> Guarantee:
    """Return the guarantee that covers every batch: the one with the largest ε."""
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


def describe_outlook(config: ExperimentConfig) -> tuple[bool, str]:
    """Return whether an experiment's users suffice to rule an arm out, in a moment.

    Returns
    -------
    tuple[bool, str]
        Whether any gap at all is told apart, and a sentence that names the gap.
    """
    if config.policy.name != ELIMINATION:
        return True, describe_purpose(config.policy.name)
    question = Question((), Fraction(1, 2))
    request = read_request(StatedExperiment(config), {}, question)
    batches = planned_batches(request)
    gap = min(batch.separates for batch in batches)
    many = counted(len(batches), "round")
    chance = percent(1 - config.experiment.failure_probability)
    if gap >= 1:
        return False, (
            f"{many} with all arms, and no gap of means is told apart with probability "
            f"{chance}. Ask more users, compare fewer arms or allow a larger ε "
            "(wallflower plan)"
        )
    shown = round_gap_up(gap, config.reward_range)
    return True, (
        f"{many} with all arms: means that differ by {shown} are told apart "
        f"with probability {chance}, smaller gaps where arms fall early "
        "(wallflower plan)"
    )
