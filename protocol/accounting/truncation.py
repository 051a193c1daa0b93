"""What proved inputs cost in privacy: noise that is cut off where nobody ever gets.

A proof needs a bounded range, so a user's share of the noise must be bounded: |η| ≤ B.
A node whose rewards and noise together leave −uB … u(g + B) for its u users contributes
nothing and says so (noise-out-of-range). That needs a draw beyond ±uB; whether such a
draw is refused depends on the rewards, and δ pays for it. Let p be the probability that
any of the n users of a cohort draws more than B. Off that event the cohort's sum is the
one of the untruncated mechanism M, so for neighbours x, x′ and every set S of views,
those with refusals included,

    P[M′(x) ∈ S] ≤ P[M(x) ∈ S] + p ≤ e^ε·P[M(x′) ∈ S] + p
                 ≤ e^ε·(P[M′(x′) ∈ S] + p) + p:

(ε, δ)-DP with δ = (1 + e^ε)·p. B is the two-sided quantile of one share, by enclosures
and never by floats, at the level that makes this δ at most 2⁻⁴⁰. A node's one draw for
u users exceeds uB with at most the probability that one of u separate ones exceeds B.

Deviation: the level is 2⁻⁴⁰/(n(1 + e^ε)) and not 2⁻⁴⁰/n, at which δ would be
(1 + e^ε)·2⁻⁴⁰. It makes B about ln(1 + e^ε) noise scales wider.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from wallflower.protocol.errors import InputError
from wallflower.protocol.noise.radix import PRIVACY_DELTA as PRIVACY_DELTA
from wallflower.protocol.numbers import round_up
from wallflower.protocol.privacy.mechanism import CohortMechanism
from wallflower.protocol.privacy.sentences import SENTENCE_DELTA

LARGEST_EPSILON = 64  # beyond it nothing is promised anyway, and e^ε has no end


@dataclass(frozen=True, slots=True)
class Truncation:
    """Where a share of the noise is cut, and what that adds to δ.

    Attributes
    ----------
    precision : g, the largest encoded reward.
    bound : B, the largest magnitude of one user's noise.
    privacy_delta : what the cut adds to the guarantee's δ; 0 where users add no noise.
    """

    precision: int
    bound: int
    privacy_delta: Fraction

    def allowed(self, users: int) -> tuple[int, int]:
        """Least and most that a node may send for so many users: −uB, u(g + B)."""
        return -users * self.bound, users * (self.precision + self.bound)

    @property
    def weight(self) -> Fraction:
        """How many honest users' largest reward one user's lie can be worth at most."""
        return Fraction(self.precision + 2 * self.bound, self.precision)


def truncation(cohort: CohortMechanism) -> Truncation:
    """Cut one share of a cohort's noise so that δ ≤ 2⁻⁴⁰ in all."""
    law = cohort.user_noise()
    if law is None:
        return Truncation(cohort.precision, 0, Fraction(0))
    level = _level(cohort)
    bound = law.two_sided_bound(level)
    delta = level * cohort.cohort_size * _factor(cohort)
    return Truncation(cohort.precision, bound, delta)


def added_delta(
    cohorts: Iterable[CohortMechanism], participations: int, epsilon: float
) -> Fraction:
    """Say what the cuts add to δ where so many spends together are (ε, δ)-DP.

    Pure promises add up, δ and all. Elsewhere the spends together are those of the
    untruncated mechanisms but for Σp, which costs (1 + e^ε)·Σp at the total ε.
    """
    total = Fraction(0)
    for cohort in cohorts:
        delta = participations * truncation(cohort).privacy_delta
        if cohort.guarantee().kind != "pure" and math.isfinite(epsilon):
            largest = math.ceil(1 + math.exp(min(epsilon, 700.0)) * (1 + 1e-9))
            delta *= max(Fraction(1), Fraction(largest, _factor(cohort)))
        total = max(total, delta)
    return min(total, Fraction(1))


def _level(cohort: CohortMechanism) -> Fraction:
    return PRIVACY_DELTA / (cohort.cohort_size * _factor(cohort))


def _factor(cohort: CohortMechanism) -> int:
    """1 + e^ε, rounded up; ε as of (ε, 10⁻⁶)-DP where the promise is a curve."""
    return _factor_of(cohort)


@lru_cache(maxsize=4096)
def _factor_of(cohort: CohortMechanism) -> int:
    promise = cohort.guarantee()
    if promise.kind == "pure":
        assert promise.epsilon is not None
        epsilon = float(promise.epsilon)
    else:
        epsilon = promise.approximate(SENTENCE_DELTA)
    if epsilon > LARGEST_EPSILON:
        raise InputError(
            "epsilon",
            round_up(epsilon),
            f"at most {LARGEST_EPSILON} (at δ = 10⁻⁶) where inputs are proved",
        )
    return math.ceil(1 + math.exp(epsilon) * (1 + 1e-9))
