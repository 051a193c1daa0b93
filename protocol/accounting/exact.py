"""Exact accounting: what a cohort's noise is worth, computed from its law.

Everything here is an upper bound that holds: divergences are summed on ℤ with proven
tails (`accounting_shift`), conversions are theorems, and whatever is shown to people is
rounded up (`protocol.numbers.round_up`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import wallflower.protocol.accounting.gaussian  # noqa: F401
from wallflower.protocol.accounting.laplace import ShiftedLaplaceParts
from wallflower.protocol.accounting.losses import (
    Losses,
    composed_epsilon,
    randomized_response,
)
from wallflower.protocol.accounting.shifted import Seen, ShiftedNoise, shifted
from wallflower.protocol.errors import InputError
from wallflower.protocol.noise.difference import NegativeBinomialDifference
from wallflower.protocol.numbers import positive, round_up, whole
from wallflower.protocol.privacy.guarantee import (
    approximate_epsilon,
    check_delta,
    epsilon_at,
)
from wallflower.protocol.privacy.mechanism import CohortMechanism

# Every order gives a valid bound; these surround the best one of the closed form.
_AROUND = (0.5, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.25, 1.5, 2.0)


@dataclass(frozen=True, slots=True)
class Bound:
    """An (ε, δ) promise and the argument it rests on."""

    epsilon: float
    privacy_delta: float
    reason: str


@functools.lru_cache(maxsize=256)
def shifted_noise(cohort: CohortMechanism) -> ShiftedNoise | Seen | None:
    """Return the noise a user counts on against its shift by g; None without noise."""
    noise = cohort.hiding_noise()
    if noise is None:
        return None
    of_sum = shifted(noise, cohort.precision)
    return Seen(of_sum, cohort.view_loss) if cohort.view_loss else of_sum


def exact_epsilon(cohort: CohortMechanism) -> float:
    """Return the largest log-ratio of the shifted masses; may be infinite.

    ε of (ε, 0)-DP, or of (ε, δ)-DP with the cohort's `view_delta`.
    """
    noise = shifted_noise(cohort)
    return math.inf if noise is None else noise.pure()


def renyi_divergence(cohort: CohortMechanism, order: float) -> float:
    """Upper bound on D_α of one cohort: exact sum or closed form, the smaller.

    The sum is not taken where it would be long (g in the thousands and a high order),
    where the closed form lies within 10⁻⁴ of a Gaussian's αε²/2 anyway, or where the
    promise has a δ of its own: then it is of the case that does not fail.
    """
    promise = cohort.guarantee()
    closed = promise.renyi(order)
    noise = shifted_noise(cohort)
    if noise is None or promise.epsilon is None:
        return closed
    gaussian = order * float(promise.epsilon) ** 2 / 2
    settled = promise.kind != "pure" and closed <= gaussian * (1 + 1e-4)
    if settled or cohort.view_delta or not noise.within_reach(order):
        return closed
    return min(closed, noise.renyi(order).upper)


@functools.lru_cache(maxsize=4096)
def approximate(cohort: CohortMechanism, privacy_delta: float) -> Bound:
    """Return the smallest ε of (ε, δ)-DP for one cohort, with its reason."""
    check_delta(privacy_delta)
    left = _subtract_failures([cohort], 1, privacy_delta)
    if left <= 0:
        return Bound(math.inf, privacy_delta, "the promise itself has a larger δ")
    noise = shifted_noise(cohort)
    if noise is None:
        return Bound(math.inf, privacy_delta, "no noise is added")
    candidates = []
    exact = noise.approximate(left) if noise.within_reach(1.0) else math.inf
    candidates.append(Bound(exact, privacy_delta, "exact trade-off of the noise"))
    if math.isinf(exact):
        candidates.append(renyi_bound([cohort], 1, privacy_delta))
    pure = noise.pure()
    if math.isfinite(pure):
        candidates.append(Bound(pure, float(cohort.view_delta), _pure_reason(cohort)))
    return min(candidates, key=lambda bound: bound.epsilon)


def renyi_bound(
    cohorts: Iterable[CohortMechanism], participations: int, privacy_delta: float
) -> Bound:
    """Add up Rényi divergences, then convert; valid for any mix of the cohorts."""
    possible = list(cohorts)
    left = _subtract_failures(possible, participations, privacy_delta)
    if left <= 0:
        return Bound(math.inf, privacy_delta, "the promises themselves have a larger δ")

    def find_divergence(order: float) -> float:
        return participations * max(c.guarantee().renyi(order) for c in possible)

    def best_order() -> float:
        grid = [1 + math.exp(-3 + 0.05 * k) for k in range(260)]
        return min(grid, key=lambda a: epsilon_at(find_divergence(a), a, left))

    centre = best_order()
    orders = {1 + (centre - 1) * factor for factor in _AROUND} | {round(centre) + 1.0}
    exact = approximate_epsilon(
        lambda a: participations * max(renyi_divergence(c, a) for c in possible),
        left,
        sorted(orders),
    )
    fallback = approximate_epsilon(find_divergence, left)
    return Bound(min(exact, fallback), privacy_delta, "Rényi divergences added up")


def _subtract_failures(
    cohorts: Iterable[CohortMechanism], participations: int, privacy_delta: float
) -> float:
    """Take from δ what the cohorts' promises fail with by themselves."""
    return privacy_delta - participations * max(float(c.view_delta) for c in cohorts)


def _pure_reason(cohort: CohortMechanism) -> str:
    return "pure differential privacy" + " but for δ" * bool(cohort.view_delta)


def returning_users(
    cohorts: Iterable[CohortMechanism], participations: int, privacy_delta: float
) -> tuple[Bound, ...]:
    """Bounds for a user who joins at most `participations` cohorts, best first.

    The candidates: adding up pure ε (no δ needed), adding up Rényi divergences and
    converting, and composing the laws of the privacy loss (`accounting_losses`). The
    order of cohorts may depend on earlier results: all three theorems allow it.
    """
    check_delta(privacy_delta)
    return _returning(tuple(dict.fromkeys(cohorts)), participations, privacy_delta)


@functools.lru_cache(maxsize=256)
def _returning(
    possible: tuple[CohortMechanism, ...], participations: int, privacy_delta: float
) -> tuple[Bound, ...]:
    if not possible or participations < 1:
        raise InputError("participations", participations, "at least 1 of some cohort")
    if participations == 1:
        worst = max(
            (approximate(cohort, privacy_delta) for cohort in possible),
            key=lambda bound: bound.epsilon,
        )
        return (worst,)
    bounds = [renyi_bound(possible, participations, privacy_delta)]
    added = _add_bounds(possible, participations)
    if math.isfinite(added.epsilon):
        bounds.append(added)
    composed = _compose_losses(possible, participations, privacy_delta)
    if composed is not None:
        bounds.append(composed)
    # Of bounds that read the same, the one without δ is worth more.
    return tuple(sorted(bounds, key=lambda b: (_round_bound(b), b.privacy_delta)))


def smallest_bound(
    cohorts: Iterable[CohortMechanism], participations: int, privacy_delta: float
) -> Bound:
    """Return the best of `returning_users` without looking at bounds that lose.

    Rényi divergences, which take longest, never beat exact composition.
    """
    possible = tuple(dict.fromkeys(cohorts))
    if participations > 1 and possible:
        composed = _compose_losses(possible, participations, check_delta(privacy_delta))
        if composed is not None and math.isfinite(composed.epsilon):
            added = _add_bounds(possible, participations)
            return min(composed, added, key=lambda b: b.epsilon)
    return returning_users(possible, participations, privacy_delta)[0]


def _add_bounds(cohorts: Sequence[CohortMechanism], participations: int) -> Bound:
    """Add up ε and δ as they are (basic composition)."""
    epsilon = max(exact_epsilon(cohort) for cohort in cohorts)
    delta = max(float(cohort.view_delta) for cohort in cohorts)
    return Bound(participations * epsilon, participations * delta, "pure ε added up")


def _round_bound(bound: Bound) -> float:
    return math.inf if math.isinf(bound.epsilon) else float(round_up(bound.epsilon))


def _compose_losses(
    cohorts: Sequence[CohortMechanism], participations: int, privacy_delta: float
) -> Bound | None:
    """Compose privacy losses on ℤ; None where some law is too long to be listed."""
    losses: list[Losses] = []
    left = _subtract_failures(cohorts, participations, privacy_delta)
    if left <= 0:
        return None
    for cohort in cohorts:
        noise = shifted_noise(cohort)
        if noise is None:
            return None
        if noise.lists_losses() and not cohort.view_delta:
            losses.append(noise.losses())
        elif math.isfinite(noise.pure()):
            losses.append(randomized_response(noise.pure()))
        else:
            return None
    epsilon = composed_epsilon(losses, participations, left)
    return Bound(epsilon, privacy_delta, "privacy losses composed")


def probabilistic(cohort: CohortMechanism, privacy_delta: float) -> float:
    """Return the smallest ε with P[privacy loss of one cohort > ε] ≤ δ; see `Losses`.

    Where the law of the loss is too long to be listed: at most the ε′ with
    δ(ε)/(1 − e^{ε−ε′}) = privacy_delta, for the ε of a tenth of it.
    """
    check_delta(privacy_delta)
    noise = shifted_noise(cohort)
    if noise is None:
        return math.inf
    if noise.lists_losses() and not cohort.view_delta:
        return noise.losses().probabilistic(privacy_delta)
    tenth = approximate(cohort, privacy_delta / 10).epsilon - math.log1p(-0.1)
    return tenth if cohort.view_delta else min(noise.pure(), tenth)


# --- What is left of a promise when fewer honest shares arrive than it counts on.


def effective_epsilon(
    epsilon: Fraction, precision: int, arriving_fraction: Fraction
) -> float:
    """ε of `dist-dp` when a fraction r of the counted-on shares arrives.

    The total is then a negative binomial difference of shape r, and with a = ε/g
    ε_eff = ε + ln[₂F₁(r,r;1;e^{−2a}) / ₂F₁(r,r+g;1+g;e^{−2a}) · Γ(g+1)Γ(r)/Γ(r+g)],
    which is ln f(0)/f(g), evaluated in ball arithmetic and rounded up. For r ≥ 1 it
    is ε: further shares are noise on top.

    Examples
    --------
    >>> round(effective_epsilon(Fraction(1, 10), 4, Fraction(1, 2)), 3)
    0.867
    """
    positive("epsilon", epsilon)
    whole("precision", precision, at_least=1)
    if arriving_fraction <= 0:
        return math.inf
    law = NegativeBinomialDifference(arriving_fraction, epsilon / precision)
    return ShiftedLaplaceParts(law, law.shape, law.rate, precision).pure()


def effective_epsilon_of(cohort: CohortMechanism, arriving: int) -> float:
    """The promise's ε when only `arriving` honest users answer and the sum is used.

    Pure promises by the formula above. The Rényi and concentrated ones are governed by
    g/σ, and σ² is proportional to the shares. Central and local noise does not depend
    on who answers. Wallflower releases no sum below the floor: this shows why.
    """
    promise = cohort.guarantee()
    if promise.epsilon is None:
        return math.inf
    whole("arriving", arriving, at_least=0, at_most=cohort.cohort_size)
    hidden_by_users = promise.trust in ("distributed", "shuffler")
    if not hidden_by_users or arriving >= cohort.honest_floor:
        return float(promise.epsilon)
    if arriving == 0:
        return math.inf
    fraction = Fraction(arriving, cohort.honest_floor)
    if promise.kind == "pure":
        of_noise = promise.epsilon - cohort.view_loss
        of_sum = effective_epsilon(of_noise, cohort.precision, fraction)
        return of_sum + float(cohort.view_loss)
    if promise.kind in ("renyi", "concentrated"):
        return float(promise.epsilon) / math.sqrt(fraction)
    raise InputError("guarantee", promise.kind, "pure, renyi or concentrated")
