"""Privacy computed from the laws themselves, not sampled."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.laws import Polya, mass_up_to
from wallflower.protocol.accounting.exact import exact_epsilon, renyi_divergence
from wallflower.protocol.noise.difference import NegativeBinomialDifference
from wallflower.protocol.noise.gaussian_sums import SumOfDiscreteGaussians
from wallflower.protocol.noise.law import NoiseLaw
from wallflower.protocol.privacy.mechanism import CohortMechanism, mechanism_named
from wallflower.strategy.run.analyzer import decode

LEVEL = Fraction(1, 10_000)
GRID = [
    (epsilon, cohort_size)
    for epsilon in (Fraction(1, 10), Fraction(1, 2), Fraction(1), Fraction(5, 2))
    for cohort_size in (1, 2, 10, 99, 1000)
]


def cohort(
    name: str,
    epsilon: Fraction,
    cohort_size: int,
    floor: int | None = None,
    scale: Fraction = Fraction(10),
) -> CohortMechanism:
    mechanism = mechanism_named(name, epsilon, scale)
    return mechanism.for_cohort(cohort_size, floor or cohort_size, LEVEL)


def masses(law: NoiseLaw | None, reach: int) -> NDArray[np.float64]:
    assert isinstance(law, NoiseLaw)
    return law.pmf_range(-reach, reach)


def largest_log_ratio(pmf: NDArray[np.float64], shift: int) -> float:
    logarithms = np.log(pmf)
    return float(np.abs(logarithms[shift:] - logarithms[:-shift]).max())


# --- pure differential privacy


@pytest.mark.parametrize("name", ["dist-dp", "central-dp", "local-dp"])
@pytest.mark.parametrize(("epsilon", "cohort_size"), GRID)
def test_largest_log_ratio_of_shifted_masses_is_epsilon(
    name: str, epsilon: Fraction, cohort_size: int
) -> None:
    one = cohort(name, epsilon, cohort_size)
    # Masses down to e^{-100}, far beyond every place where a ratio could peak.
    reach = int(100 * one.precision / epsilon)
    pmf = masses(one.hiding_noise(), reach)
    assert largest_log_ratio(pmf, one.precision) == pytest.approx(
        float(epsilon), rel=1e-12
    )
    assert exact_epsilon(one) == float(epsilon)


@pytest.mark.parametrize("name", ["dist-dp", "central-dp", "local-dp"])
def test_a_smaller_change_of_one_reward_costs_less(name: str) -> None:
    one = cohort(name, Fraction(1), 99)
    pmf = masses(one.hiding_noise(), 500)
    for shift in range(1, one.precision):
        expected = shift / one.precision
        assert largest_log_ratio(pmf, shift) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("survivors", [81, 90, 100])
def test_survivors_above_the_floor_never_raise_epsilon(survivors: int) -> None:
    one = cohort("dist-dp", Fraction(1), 100, floor=80)
    pmf = masses(one.total_noise(survivors), 600)
    assert largest_log_ratio(pmf, one.precision) <= 1 + 1e-12


@pytest.mark.parametrize("survivors", [79, 40])
def test_survivors_below_the_floor_break_epsilon(survivors: int) -> None:
    one = cohort("dist-dp", Fraction(1), 100, floor=80)
    pmf = masses(one.total_noise(survivors), 600)
    assert largest_log_ratio(pmf, one.precision) > 1.001


def test_the_papers_shares_break_epsilon_when_one_user_is_missing() -> None:
    # Shares of 1/n and 99 of 100 answer: ε = 0.1 becomes 0.1045.
    epsilon = Fraction(1, 10)
    assert cohort("dist-dp", epsilon, 1600).precision == 4
    law = NegativeBinomialDifference(Fraction(99, 100), epsilon / 4)
    ratio = largest_log_ratio(law.pmf_range(-2000, 2000), 4)
    assert ratio == pytest.approx(0.1045, abs=5e-5)


# --- Rényi differential privacy


@pytest.mark.parametrize("order", [2, 3, 5, 16, 64])
@pytest.mark.parametrize("scale", [1, 10])
@pytest.mark.parametrize(
    ("epsilon", "cohort_size"),
    [
        (Fraction(1, 10), 4),
        (Fraction(1, 10), 400),
        (Fraction(1, 2), 50),
        (Fraction(1), 2),
        (Fraction(1), 100),
        (Fraction(2), 9),
    ],
)
def test_exact_divergence_of_skellam_noise_is_below_the_reported_curve(
    epsilon: Fraction, cohort_size: int, scale: int, order: int
) -> None:
    one = cohort("dist-rdp", epsilon, cohort_size, scale=Fraction(scale))
    exact = brute_force_renyi(one, order)
    assert exact <= one.guarantee().renyi(order) * (1 + 1e-9)
    assert exact <= renyi_divergence(one, order) * (1 + 1e-9)
    # Also below a Gaussian's: what the exact accountant gains over the closed form.
    assert exact <= order * float(epsilon) ** 2 / 2 * (1 + 1e-9)


def test_the_printed_curve_would_be_too_small() -> None:
    # The paper's second term 3ε²/(2s) at n = 1 lies below the lemma's 3ε²/(2g) as soon
    # as g < s; the divergence itself is what decides, so the curve must carry g.
    one = cohort("dist-rdp", Fraction(1, 10), 1)
    assert one.precision == 1
    printed = 64 * 0.01 / 2 + min(127 * 0.01 / 400 + 0.3 / 2000, 0.03 / 20)
    assert one.guarantee().renyi(64) > printed


def brute_force_renyi(one: CohortMechanism, order: int) -> float:
    """Σ p^α q^{1−α} over every place a double can hold, in plain arithmetic."""
    shift, epsilon = one.precision, float(one.guarantee().epsilon or 0)
    deviation = shift / epsilon
    reach = int((order - 1) * shift + 10 * deviation + 60)
    law = one.hiding_noise()
    assert isinstance(law, NoiseLaw)
    pmf = law.pmf_range(-reach - shift, reach)
    seen = pmf > 0
    logarithms = np.full(len(pmf), -math.inf)
    logarithms[seen] = np.log(pmf[seen])
    here, there = logarithms[shift:], logarithms[:-shift]
    both = np.isfinite(here) & np.isfinite(there)
    exponents = order * here[both] - (order - 1) * there[both]
    top = exponents.max()
    return float((top + np.log(np.exp(exponents - top).sum())) / (order - 1))


# --- the sum of the users' shares is the total


@pytest.mark.parametrize("cohort_size", [1, 2, 3, 7, 32, 64])
@pytest.mark.parametrize(
    ("name", "scale"),
    [("dist-dp", 10), ("dist-rdp", 10), ("dist-cdp", 10), ("dist-cdp", Fraction(3, 2))],
)
def test_shares_of_all_users_add_up_to_the_total_law(
    name: str, scale: Fraction, cohort_size: int
) -> None:
    one = cohort(name, Fraction(1, 2), cohort_size, scale=Fraction(scale))
    reach = 45 * math.ceil(one.precision * 2)
    total = masses(one.total_noise(), reach)
    summed = self_convolution(masses(one.user_noise(), reach), cohort_size)
    assert np.abs(summed - total).max() < 1e-12


@pytest.mark.parametrize("name", ["dist-dp", "dist-rdp", "dist-cdp"])
def test_shares_of_survivors_above_the_floor_add_up_too(name: str) -> None:
    one = cohort(name, Fraction(1, 2), 40, floor=32)
    reach = 45 * one.precision * 2
    total = masses(one.total_noise(37), reach)
    summed = self_convolution(masses(one.user_noise(), reach), 37)
    assert np.abs(summed - total).max() < 1e-12


def test_a_share_is_a_difference_of_two_polya_variables() -> None:
    one = cohort("dist-dp", Fraction(1, 2), 32)
    positive = Polya(Fraction(1, 32), Fraction(1, 2) / one.precision)
    part = positive.pmf_range(0, 400)
    share = np.convolve(part, part[::-1])
    assert np.abs(share - masses(one.user_noise(), 400)).max() < 1e-12


def test_the_comparison_of_sums_notices_a_share_of_one_user_more() -> None:
    one, other = (cohort("dist-dp", Fraction(1, 2), 64, floor=h) for h in (64, 63))
    reach = 45 * one.precision * 2
    summed = self_convolution(masses(other.user_noise(), reach), 64)
    assert np.abs(summed - masses(one.total_noise(), reach)).max() > 1e-6


def self_convolution(pmf: NDArray[np.float64], times: int) -> NDArray[np.float64]:
    """Convolve with itself; what leaves the window weighs less than 10⁻¹⁵."""
    reach = len(pmf) // 2
    result = np.zeros_like(pmf)
    result[reach] = 1.0
    for _ in range(times):
        result = np.convolve(result, pmf)[reach:-reach]
    return result


# --- wrap-around


@pytest.mark.parametrize(
    "name", ["dist-dp", "dist-rdp", "dist-cdp", "central-dp", "local-dp"]
)
def test_extreme_arms_wrap_with_at_most_the_stated_probability(name: str) -> None:
    one = cohort(name, Fraction(1, 2), 40, floor=32)
    reach = 4 * one.noise_bound
    pmf = masses(one.total_noise(), reach)

    def decodes(noisy: int) -> bool:
        value = decode(
            noisy % one.modulus,
            cohort_size=40,
            precision=one.precision,
            noise_bound=one.noise_bound,
            modulus=one.modulus,
        )
        return value == noisy

    for rewards in (0, 40 * one.precision):  # all zero, all one
        noises = range(-reach, reach + 1)
        wrong = sum(pmf[k] for k, z in enumerate(noises) if not decodes(rewards + z))
        assert 0 < wrong <= float(LEVEL)


def test_the_papers_level_would_wrap_an_extreme_arm_often() -> None:
    # τ = ⌈(g/ε) ln(2/p)⌉ at p = 0.1, rewards all zero: about 2.5 % of batches wrap.
    one = cohort("dist-dp", Fraction(1, 2), 400)
    printed = math.ceil(one.precision * 2 * math.log(20))
    total = one.total_noise()
    assert total is not None
    assert 0.02 < mass_up_to(total, -printed - 1) < 0.03


# --- concentrated differential privacy


def test_a_sum_of_discrete_gaussians_is_not_a_discrete_gaussian() -> None:
    law = SumOfDiscreteGaussians(8, Fraction(9, 16))
    apart = np.abs(
        np.log(law.pmf_range(-10, 10)) - np.log(law.single.pmf_range(-10, 10))
    ).max()
    assert 1e-6 < apart <= law.closeness()


def test_a_scale_of_one_would_turn_a_tenth_into_more_than_two_tenths() -> None:
    # The errata's figure: T = 10⁷ users, s = 1, ε = 0.1 gives ε̂ = 0.234.
    steps = np.arange(1, 5 * 10**6)
    excess = 10 * float(np.exp(-2 * math.pi**2 * steps / (steps + 1)).sum())
    weaker = min(math.sqrt(0.01 + excess / 2), 0.1 + excess)
    assert weaker == pytest.approx(0.234, abs=0.0005)
