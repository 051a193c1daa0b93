"""Exact accounting: what a cohort's noise is worth, computed from its law.

Everything here is an upper bound that holds: divergences are summed on ℤ with proven
tails (`accounting_shift`), conversions are theorems, and whatever is shown to people is
rounded up (`protocol.quantities.round_up`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass

import protocol.accounting_gaussian
import protocol.accounting_laplace
import protocol.accounting_skellam  # noqa: F401
from protocol.accounting_shift import ShiftedNoise, shifted
from protocol.conversion import approximate_epsilon, check_delta, epsilon_at
from protocol.errors import InputError
from protocol.mechanism import CohortMechanism
from protocol.quantities import round_up

# Every order gives a valid bound; these surround the best one of the closed form.
_AROUND = (0.5, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.25, 1.5, 2.0)


@dataclass(frozen=True, slots=True)
class Bound:
    """An (ε, δ) promise and the argument it rests on."""

    epsilon: float
    privacy_delta: float
    reason: str


@functools.lru_cache(maxsize=256)
def shifted_noise(cohort: CohortMechanism) -> ShiftedNoise | None:
    """The noise a user counts on against its shift by g; None without noise."""
    noise = cohort.hiding_noise()
    return None if noise is None else shifted(noise, cohort.precision)


def exact_epsilon(cohort: CohortMechanism) -> float:
    """ε of (ε, 0)-DP: the largest log-ratio of the shifted masses; may be infinite."""
    noise = shifted_noise(cohort)
    return math.inf if noise is None else noise.pure()


def renyi_divergence(cohort: CohortMechanism, order: float) -> float:
    """Upper bound on D_α of one cohort: exact sum or closed form, the smaller.

    The sum is not taken where it would be long (g in the thousands and a high order)
    or where the closed form lies within 10⁻⁴ of a Gaussian's αε²/2 anyway.
    """
    promise = cohort.guarantee()
    closed = promise.renyi(order)
    noise = shifted_noise(cohort)
    if noise is None or promise.epsilon is None:
        return closed
    gaussian = order * float(promise.epsilon) ** 2 / 2
    settled = promise.kind != "pure" and closed <= gaussian * (1 + 1e-4)
    if settled or not noise.within_reach(order):
        return closed
    return min(closed, noise.renyi(order).upper)


def approximate(cohort: CohortMechanism, privacy_delta: float) -> Bound:
    """Smallest ε of (ε, δ)-DP for one cohort, with its reason."""
    check_delta(privacy_delta)
    noise = shifted_noise(cohort)
    if noise is None:
        return Bound(math.inf, privacy_delta, "no noise is added")
    candidates = []
    if noise.within_reach(1.0):
        exact = noise.approximate(privacy_delta)
        candidates.append(Bound(exact, privacy_delta, "exact trade-off of the noise"))
    else:
        candidates.append(renyi_bound([cohort], 1, privacy_delta))
    pure = noise.pure()
    if math.isfinite(pure):
        candidates.append(Bound(pure, 0.0, "pure differential privacy"))
    return min(candidates, key=lambda bound: bound.epsilon)


def renyi_bound(
    cohorts: Iterable[CohortMechanism], participations: int, privacy_delta: float
) -> Bound:
    """Add up Rényi divergences, then convert; valid for any mix of the cohorts."""
    possible = list(cohorts)

    def closed(order: float) -> float:
        return participations * max(c.guarantee().renyi(order) for c in possible)

    def best_order() -> float:
        grid = [1 + math.exp(-3 + 0.05 * k) for k in range(260)]
        return min(grid, key=lambda a: epsilon_at(closed(a), a, privacy_delta))

    centre = best_order()
    orders = {1 + (centre - 1) * factor for factor in _AROUND} | {round(centre) + 1.0}
    exact = approximate_epsilon(
        lambda a: participations * max(renyi_divergence(c, a) for c in possible),
        privacy_delta,
        sorted(orders),
    )
    fallback = approximate_epsilon(closed, privacy_delta)
    return Bound(min(exact, fallback), privacy_delta, "Rényi divergences added up")


def returning_users(
    cohorts: Iterable[CohortMechanism], participations: int, privacy_delta: float
) -> list[Bound]:
    """Bounds for a user who joins at most `participations` cohorts, best first.

    The candidates: adding up pure ε (no δ needed), adding up Rényi divergences and
    converting, and composing privacy loss distributions (dp-accounting). The order of
    cohorts may depend on earlier results: all three composition theorems allow it.
    """
    check_delta(privacy_delta)
    possible = list(cohorts)
    if not possible or participations < 1:
        raise InputError("participations", participations, "at least 1 of some cohort")
    if participations == 1:
        worst = max(
            (approximate(cohort, privacy_delta) for cohort in possible),
            key=lambda bound: bound.epsilon,
        )
        return [worst]
    bounds = [renyi_bound(possible, participations, privacy_delta)]
    pure = max(exact_epsilon(cohort) for cohort in possible)
    if math.isfinite(pure):
        bounds.append(Bound(participations * pure, 0.0, "pure ε added up"))
        bounds.append(_loss_distribution(possible, pure, participations, privacy_delta))
    # Of bounds that read the same, the one without δ is worth more.
    return sorted(bounds, key=lambda bound: (_shown(bound), bound.privacy_delta))


def _shown(bound: Bound) -> float:
    return math.inf if math.isinf(bound.epsilon) else float(round_up(bound.epsilon))


def _loss_distribution(
    cohorts: list[CohortMechanism],
    pure: float,
    participations: int,
    privacy_delta: float,
) -> Bound:
    """Compose by dp-accounting: Lap_ℤ if all cohorts share one g, else the worst pure.

    Randomized response at ε dominates every (ε, 0)-DP mechanism (Kairouz, Oh and
    Viswanath 2015), so it covers any mix of cohorts.
    """
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as pld

    steps = {cohort.precision for cohort in cohorts}
    if len(steps) == 1:
        (step,) = steps
        one = pld.from_discrete_laplace_mechanism(pure / step, sensitivity=step)
    else:
        one = pld.from_privacy_parameters(common.DifferentialPrivacyParameters(pure, 0))
    composed = one.self_compose(participations)
    epsilon = float(composed.get_epsilon_for_delta(privacy_delta))
    return Bound(epsilon, privacy_delta, "privacy loss distributions composed")
