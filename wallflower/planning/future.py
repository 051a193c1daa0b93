"""The batches to come if no arm falls, and how many users an experiment usually takes.

The first follow from the plan; the second is the mean of exact simulations.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from wallflower.protocol.privacy.mechanism import LARGEST_COHORT, CohortMechanism
from wallflower.protocol.rewards.models import BernoulliRewards
from wallflower.regret.elimination import FastElimination
from wallflower.regret.simulation import Accounts, Simulation
from wallflower.strategy.bandit.confidence import confidence_for
from wallflower.strategy.bandit.policy import DECIDED, Ending
from wallflower.strategy.bandit.radius import pair_bound
from wallflower.strategy.bandit.schedule import Schedule
from wallflower.strategy.bandit.sequential_test import evidence_for
from wallflower.strategy.bandit.spec import LARGEST_HORIZON, PolicySpec

RUNS = 40
# Seeded: the same question has the same answer.
_SEED = 20
_HALVINGS, _NEAR = 14, 1.05  # how far a smallest lead is narrowed down
# Where this many times the horizon does not decide, nobody will wait for it.
LONGEST = 100


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


class Future:
    """A policy's batches, also beyond its horizon, computed when first asked for."""

    def __init__(self, policy: PolicySpec) -> None:
        assert policy.ratio is not None
        self._policy = policy
        self._schedule = Schedule(policy.ratio, policy.first_batch)
        self._confidence = confidence_for(policy)
        self._evidence = evidence_for(policy)
        self._batches: list[PlannedBatch] = []

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
        """Return batch `number`, counted from 1."""
        while len(self._batches) < number:
            self._batches.append(self._next(len(self._batches) + 1))
        return self._batches[number - 1]

    def _next(self, number: int) -> PlannedBatch:
        policy = self._policy
        size = self._schedule.size(number)
        floor = policy.floor(size)
        cohort = policy.calibrated(size, floor, self._confidence.wrap(number))
        before = self._batches[-1].users if self._batches else 0
        separates = self._separates(number)
        return PlannedBatch(number, cohort, before + policy.arms * size, separates)

    def _separates(self, number: int) -> float:
        """The gap at which an arm is dropped by the end of this batch, but for p.

        It falls when the estimates differ by more than the test needs, which is most
        about a mean of ½. The lead's deviation in the wrong direction is bounded at the
        level that the aims of earlier tests and the moduli leave; where it holds, the
        best arm does not fall in this batch either.
        """
        heard = self._evidence.planned(number)
        bound = self._confidence.pair(heard, number)
        pool = self._confidence.pool(heard, bound.pooled)
        wraps = self._policy.arms * self._confidence.wrap(number)
        # Ville's inequality: earlier tests err with at most the parts of their aims.
        earlier = self._evidence.mixed(number - 1) if number > 1 else range(0)
        unspent = self._policy.failure_probability - self._evidence.part_of(earlier)
        level = (unspent - wraps) / max(self._policy.arms - 1, 1)
        needed = self._evidence.lead_needed(number, 0.5)
        return needed + pair_bound(pool, level)[0]


@lru_cache(maxsize=8)
def future_of(policy: PolicySpec) -> Future:
    """Return the batches of a resolved policy, the same object for the same policy."""
    return Future(policy)


@lru_cache(maxsize=256)
def typical_users(
    policy: PolicySpec, base_rate: Fraction, gap: Fraction, runs: int = RUNS
) -> int | None:
    """Mean users until a run is decided, if one arm leads all others by `gap`.

    Rewards are 0 or 1; the others' mean is `base_rate`, or less where the leader would
    exceed 1. None where some run is undecided after 100 times the horizon.
    """
    for times in (1, LONGEST):
        longest = min(times * policy.horizon, LARGEST_HORIZON)
        spec = dataclasses.replace(policy, horizon=longest)
        accounts = _simulate(spec, base_rate, gap, runs)
        if all(why in DECIDED for why in accounts.finished):
            return round(float(accounts.asked.mean()))
    return None


def _simulate(
    policy: PolicySpec, base_rate: Fraction, gap: Fraction, runs: int
) -> Accounts:
    """Play experiments in which an arm that is no control leads all others by `gap`."""
    best = min(float(base_rate + gap), 1.0)
    means = np.full((runs, policy.arms), best - float(gap))
    means[:, -1 if policy.control == 0 else 0] = best
    simulation = Simulation(policy, BernoulliRewards(means.ravel()), runs, _SEED)
    engine = FastElimination(simulation)
    for _ in engine.steps():
        pass
    return engine.accounts


@lru_cache(maxsize=64)
def smallest_lead(policy: PolicySpec, base_rate: Fraction) -> Fraction | None:
    """Return the smallest lead that is found within the horizon, in two digits.

    Found: one arm is left in four of five simulated experiments, in which it leads all
    others, whose mean is `base_rate`. None where no lead below 1 − base_rate is.
    """
    policy = _within_cohorts(policy)

    def is_found(gap: float) -> bool:
        accounts = _simulate(policy, base_rate, Fraction(gap), RUNS)
        winners = accounts.finished.count(Ending.WINNER)
        return 5 * winners >= 4 * RUNS

    high = 1 - float(base_rate)
    if not is_found(high):
        return None
    low = 0.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2 if low else high / 4
        low, high = (low, middle) if is_found(middle) else (middle, high)
        if low and high / low < _NEAR:
            break
    return Fraction(f"{high:.1e}")


@lru_cache(maxsize=64)
def users_if_equal(policy: PolicySpec, base_rate: Fraction) -> int | None:
    """Return the mean users until the margin ends a run of arms that are all alike.

    All means are `base_rate`. None where fewer than four of five simulated experiments
    end so within the horizon.
    """
    accounts = _simulate(_within_cohorts(policy), base_rate, Fraction(0), RUNS)
    ended = sum(why in (Ending.EQUAL, Ending.FUTILE) for why in accounts.finished)
    return round(float(accounts.asked.mean())) if 5 * ended >= 4 * RUNS else None


def _within_cohorts(policy: PolicySpec) -> PolicySpec:
    """Return it with a horizon in which two arms meet no cohort too large to sum."""
    future = future_of(policy)
    most = 2 * future.batch(future.last_affordable).users // policy.arms
    return dataclasses.replace(policy, horizon=min(policy.horizon, most))
