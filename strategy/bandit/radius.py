"""How far an estimate may lie from the truth: a Chernoff bound and the `paper` radius.

The first is a Chernoff bound on reward and noise together. A reward, rounded
to a multiple of 1/g, is still in [0, 1] with the same mean, so Hoeffding's lemma covers
sampling and rounding at once (Deviation: the paper pays √2/ε·√log for the
rounding again). The noise enters by its log-MGF, whatever the mechanism. Any λ gives a
valid bound; the search for the best one therefore never decides validity.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from wallflower.protocol.errors import InputError
from wallflower.protocol.privacy.mechanism import CohortMechanism, Mechanism

LogMgf = Callable[[float], float]

_GOLDEN = (math.sqrt(5) - 1) / 2
# The bound is flat around its minimum: 2⁻⁹ in ln λ costs less than 1e-5 of it.
_LOG_TOLERANCE = 2.0**-9


@dataclass(frozen=True, slots=True)
class Pool:
    """What an estimate rests on: `users` rewards and the noises of their cohorts.

    Each noise is given by the log-MGF of the cohort's total noise in units of reward
    (total noise / g).
    """

    users: int
    noises: tuple[LogMgf, ...]

    def log_mgf(self, argument: float) -> float:
        """Bound ln E exp(argument · (estimate − mean)) for either sign."""
        scaled = argument / self.users
        total = argument * scaled / 8
        for noise in self.noises:
            total += noise(scaled)
        return total


def cohort_noise(cohort: CohortMechanism, survivors: int | None = None) -> LogMgf:
    """Return the log-MGF of a cohort's total noise in units of reward."""
    precision = cohort.precision
    total = cohort.noise_log_mgf(survivors)
    return lambda argument: total(argument / precision)


def pair_log_mgf(pool: Pool) -> LogMgf:
    """Bound the log-MGF of the difference of two estimates with equal pools."""
    return lambda argument: 2 * pool.log_mgf(argument)


def pair_bound(pool: Pool, level: Fraction) -> tuple[float, float]:
    """Bound the difference of two estimates with equal pools, one-sided, at `level`.

    Returns
    -------
    tuple[float, float]
        [λ²N/4 + 2 Σ ln M(λ/g) + ln(1/level)] / (λN), and the best λ.
    """
    return chernoff(pair_log_mgf(pool), pool.users / 2, level)


def chernoff_at(log_mgf: LogMgf, argument: float, level: Fraction) -> float:
    """Return Chernoff's bound (log_mgf(λ) + ln(1/level)) / λ at one λ > 0."""
    penalty = math.log(level.denominator) - math.log(level.numerator)
    return (log_mgf(argument) + penalty) / argument


def chernoff(log_mgf: LogMgf, users: float, level: Fraction) -> tuple[float, float]:
    """Minimise Chernoff's bound over λ by golden section in ln λ; give it and λ."""
    penalty = math.log(level.denominator) - math.log(level.numerator)

    def bound(log_argument: float) -> float:
        argument = math.exp(log_argument)
        return (log_mgf(argument) + penalty) / argument

    # Without noise the minimum is at √(8 users · penalty); noise only lowers it.
    highest = 0.5 * math.log(8 * users * max(penalty, 1e-3)) + 0.01
    point, value = highest, bound(highest)
    while (below := bound(point - 1)) < value or value == math.inf:
        point, value = point - 1, below
        if point < highest - 200:
            raise InputError("noise", "without a finite log-MGF", "a light-tailed law")
    low, high = point - 1, min(point + 1, highest)
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = bound(left), bound(right)
    while high - low > _LOG_TOLERANCE:
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = bound(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = bound(right)
    if at_left <= at_right:
        return at_left, math.exp(left)
    return at_right, math.exp(right)


def paper_radius(
    mechanism: Mechanism,
    *,
    survivors: int,
    honest_floor: int,
    batch: int,
    active_arms: int,
    failure_probability: Fraction,
) -> float:
    """β(b) of the paper's experiments, for one arm and the last batch only.

    β = √(ln(4|Φ|b²/p)/(2l)) + σ√(ln(2|Φ|b²/p))/l + h ln(2|Φ|b²/p)/l, where σ and h are
    the mechanism's own.
    """
    sigma, linear = mechanism.paper_tail(survivors, honest_floor)
    odds = active_arms * batch**2 / float(failure_probability)
    noise = math.log(2 * odds)
    return (
        math.sqrt(math.log(4 * odds) / (2 * survivors))
        + sigma * math.sqrt(noise) / survivors
        + linear * noise / survivors
    )
