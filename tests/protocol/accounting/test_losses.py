from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from wallflower.protocol.accounting.exact import (
    approximate,
    probabilistic,
    renyi_bound,
    returning_users,
    shifted_noise,
)
from wallflower.protocol.accounting.losses import composed_epsilon, randomized_response
from wallflower.protocol.accounting.shifted import ShiftedNoise, shifted
from wallflower.protocol.noise.gaussian import Skellam
from wallflower.protocol.noise.laplace import DiscreteLaplace
from wallflower.protocol.privacy.mechanism import CohortMechanism, mechanism_named

MILLIONTH = 1e-6
GAUSSIAN_LIKE = ["dist-rdp", "dist-cdp"]


def cohort(name: str, epsilon: str, size: int = 10_000) -> CohortMechanism:
    mechanism = mechanism_named(name, Fraction(epsilon))
    return mechanism.for_cohort(size, size * 4 // 5, Fraction(1, 10**6))


def noise_of(name: str, epsilon: str) -> ShiftedNoise:
    noise = shifted_noise(cohort(name, epsilon))
    assert isinstance(noise, ShiftedNoise)
    return noise


def gaussian_epsilon(ratio: float, privacy_delta: float) -> float:
    """ε of (ε, δ)-DP of Gaussian noise of Δ/σ = `ratio` (Balle and Wang 2018)."""

    def below(point: float) -> float:
        return math.erfc(-point / math.sqrt(2)) / 2

    low, high = 0.0, 100.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        here = below(ratio / 2 - middle / ratio)
        there = below(-ratio / 2 - middle / ratio)
        exceeded = here - math.exp(middle) * there > privacy_delta
        low, high = (middle, high) if exceeded else (low, middle)
    return high


# --- one cohort: the loss that is exceeded with probability δ


@pytest.mark.parametrize("name", GAUSSIAN_LIKE)
@pytest.mark.parametrize(("epsilon", "exceeded"), [("0.1", 0.480), ("0.5", 2.502)])
def test_the_loss_exceeded_once_in_a_million_agrees_with_the_oracle(
    name: str, epsilon: str, exceeded: float
) -> None:
    # Gaussian noise: ε²/2 + 4.7534·ε, to the digits printed.
    assert probabilistic(cohort(name, epsilon), MILLIONTH) == pytest.approx(
        exceeded, abs=1.1e-3
    )


@pytest.mark.parametrize("name", GAUSSIAN_LIKE)
def test_the_epsilon_of_epsilon_delta_is_exceeded_far_more_often_than_delta(
    name: str,
) -> None:
    one = cohort(name, "0.1")
    epsilon = approximate(one, MILLIONTH).epsilon
    assert probabilistic(one, 40 * MILLIONTH) > epsilon
    assert probabilistic(one, 50 * MILLIONTH) < epsilon


def test_the_loss_is_the_smallest_that_is_exceeded_rarely_enough() -> None:
    law, shift = Skellam(Fraction(9)), 3
    masses = law.pmf_range(-60, 60)
    losses = np.log(masses[shift:] / masses[:-shift])
    for privacy_delta in (0.3, 0.01, 1e-4):
        least = min(
            loss
            for loss in losses
            if masses[shift:][losses > loss].sum() <= privacy_delta
        )
        ours = shifted(law, shift).losses().probabilistic(privacy_delta)
        assert ours == pytest.approx(max(0.0, least), abs=1e-9)


def test_a_pure_loss_is_never_exceeded() -> None:
    assert probabilistic(cohort("dist-dp", "0.5"), 1e-12) == pytest.approx(0.5)


def test_where_losses_are_too_many_to_be_listed_the_trade_off_bounds_them() -> None:
    one = cohort("dist-cdp", "0.5", 10**9)
    noise = shifted_noise(one)
    assert noise is not None
    assert not noise.lists_losses()
    assert 2.501 < probabilistic(one, MILLIONTH) < 2.9


# --- many cohorts


@pytest.mark.parametrize("name", GAUSSIAN_LIKE)
def test_ten_cohorts_at_a_tenth_are_1_368_and_not_the_renyi_bound(name: str) -> None:
    best, *others = returning_users([cohort(name, "0.1")], 10, MILLIONTH)
    assert best.epsilon == pytest.approx(1.368, abs=6e-4)
    assert best.reason == "privacy losses composed"
    assert [bound.reason for bound in others] == ["Rényi divergences added up"]
    assert others[0].epsilon == pytest.approx(1.4716, abs=1e-3)


@pytest.mark.parametrize("times", [2, 10, 100])
@pytest.mark.parametrize("epsilon", ["0.1", "0.5"])
def test_discrete_gaussians_compose_as_one_of_the_summed_precision(
    times: int, epsilon: str
) -> None:
    known = gaussian_epsilon(float(epsilon) * math.sqrt(times), MILLIONTH)
    ours = composed_epsilon([noise_of("dist-cdp", epsilon).losses()], times, MILLIONTH)
    assert known * (1 - 1e-6) <= ours <= known * (1 + 1e-4)


@pytest.mark.parametrize("privacy_delta", [1e-2, 1e-4])
def test_two_cohorts_cost_at_least_the_trade_off_of_their_product(
    privacy_delta: float,
) -> None:
    law, shift = Skellam(Fraction(9)), 2
    one = law.pmf_range(-40 - shift, 40)
    here, there = one[shift:], one[:-shift]
    pair, shifted_pair = np.outer(here, here), np.outer(there, there)

    def exact(epsilon: float) -> float:
        return float(np.maximum(0, pair - math.exp(epsilon) * shifted_pair).sum())

    ours = composed_epsilon([shifted(law, shift).losses()], 2, privacy_delta)
    assert exact(ours) <= privacy_delta
    assert exact(ours * 0.999) > privacy_delta


def test_laplace_noise_composes_as_in_dp_accounting() -> None:
    from dp_accounting.pld import privacy_loss_distribution as pld

    theirs = pld.from_discrete_laplace_mechanism(0.1 / 20, sensitivity=20)
    known = theirs.self_compose(50).get_epsilon_for_delta(MILLIONTH)
    losses = shifted(DiscreteLaplace(Fraction(200)), 20).losses()
    ours = composed_epsilon([losses], 50, MILLIONTH)
    assert ours == pytest.approx(known, abs=5e-3)


def test_one_cohort_composed_is_its_exact_trade_off() -> None:
    noise = noise_of("dist-rdp", "0.5")
    ours = composed_epsilon([noise.losses()], 1, MILLIONTH)
    assert ours == pytest.approx(noise.approximate(MILLIONTH), rel=2e-5)
    assert ours >= noise.approximate(MILLIONTH) * (1 - 1e-6)


def test_any_mix_of_cohorts_costs_at_least_the_worst_of_them() -> None:
    laws = [noise_of("dist-rdp", epsilon).losses() for epsilon in ("0.1", "0.2")]
    mixed = composed_epsilon(laws, 5, MILLIONTH)
    alone = [composed_epsilon([law], 5, MILLIONTH) for law in laws]
    assert mixed >= max(alone) * (1 - 1e-6)
    assert composed_epsilon(laws[::-1], 5, MILLIONTH) == mixed


def test_randomized_response_covers_every_pure_noise() -> None:
    for times in (2, 20):
        worst = composed_epsilon([randomized_response(0.5)], times, MILLIONTH)
        real = composed_epsilon([noise_of("dist-dp", "0.5").losses()], times, MILLIONTH)
        assert real <= worst * (1 + 1e-6) <= times * 0.5 * (1 + 1e-6)


def test_a_smaller_delta_is_never_cheaper() -> None:
    law = noise_of("dist-cdp", "0.1").losses()
    bounds = [composed_epsilon([law], 10, 10.0**-power) for power in (3, 6, 9)]
    assert bounds == sorted(bounds)


def test_a_delta_below_what_rounding_allows_gets_no_bound() -> None:
    assert composed_epsilon([noise_of("dist-cdp", "0.1").losses()], 10, 1e-30) == (
        math.inf
    )


@pytest.mark.parametrize("first", [0, 1])
def test_renyi_divergences_of_a_mix_are_those_of_its_weakest_cohort(first: int) -> None:
    weak, strong = cohort("dist-cdp", "0.5"), cohort("dist-cdp", "0.1")
    order = [weak, strong] if first == 0 else [strong, weak]
    alone = renyi_bound([weak], 10, MILLIONTH).epsilon
    assert renyi_bound(order, 10, MILLIONTH).epsilon == pytest.approx(alone)
