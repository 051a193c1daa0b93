from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from tests.support.laws import Poisson, mass_up_to
from wallflower.protocol.accounting.exact import (
    approximate,
    effective_epsilon,
    effective_epsilon_of,
    exact_epsilon,
    renyi_bound,
    renyi_divergence,
    returning_users,
    shifted_noise,
)
from wallflower.protocol.accounting.shifted import ShiftedNoise, shifted
from wallflower.protocol.errors import InputError
from wallflower.protocol.noise.difference import NegativeBinomialDifference
from wallflower.protocol.noise.gaussian import DiscreteGaussian, Skellam
from wallflower.protocol.noise.gaussian_sums import SumOfDiscreteGaussians
from wallflower.protocol.noise.laplace import DiscreteLaplace
from wallflower.protocol.noise.law import NoiseLaw
from wallflower.protocol.privacy.mechanism import CohortMechanism, mechanism_named

LEVEL = Fraction(1, 10_000)

# (law, shift): small enough for plain arithmetic on every mass a double can hold.
LAWS: list[tuple[NoiseLaw, int]] = [
    (DiscreteLaplace(Fraction(8)), 4),
    (DiscreteLaplace(Fraction(1, 2)), 1),
    (NegativeBinomialDifference(Fraction(5, 4), Fraction(1, 5)), 4),
    (Skellam(Fraction(25)), 5),
    (Skellam(Fraction(1)), 1),
    (DiscreteGaussian(Fraction(25)), 5),
    (SumOfDiscreteGaussians(7, Fraction(9, 4)), 4),
]


def cohort(name: str, epsilon: str, cohort_size: int, floor: int) -> CohortMechanism:
    mechanism = mechanism_named(name, Fraction(epsilon))
    return mechanism.for_cohort(cohort_size, floor, LEVEL)


def logarithms(law: NoiseLaw, shift: int) -> tuple[np.ndarray, np.ndarray]:
    """ln f(x) and ln f(x − shift) where masses exceed 2⁻¹²⁸."""
    reach = len(law.ladder(128, 192).masses) - 1 - shift
    pmf = law.pmf_range(-reach - shift, reach)
    return np.log(pmf[shift:]), np.log(pmf[:-shift])


# --- against plain arithmetic


@pytest.mark.parametrize("order", [1.25, 2, 2.5, 4])
@pytest.mark.parametrize(("law", "shift"), LAWS)
def test_the_divergence_lies_within_its_bounds(
    law: NoiseLaw, shift: int, order: float
) -> None:
    here, there = logarithms(law, shift)
    plain = math.log(np.exp(order * here - (order - 1) * there).sum()) / (order - 1)
    bounds = shifted(law, shift).renyi(order)
    assert bounds.lower - 1e-13 <= plain <= bounds.upper + 1e-13
    assert bounds.upper - bounds.lower < 1e-7


@pytest.mark.parametrize("epsilon", [0, 0.2, 1, 2])
@pytest.mark.parametrize(("law", "shift"), LAWS)
def test_the_trade_off_lies_within_its_bounds(
    law: NoiseLaw, shift: int, epsilon: float
) -> None:
    here, there = logarithms(law, shift)
    plain = float(np.maximum(np.exp(here) - np.exp(epsilon + there), 0).sum())
    bounds = shifted(law, shift).hockey_stick(epsilon)
    assert bounds.lower - 1e-14 <= plain <= bounds.upper + 1e-14
    assert bounds.upper - bounds.lower < 1e-7


@pytest.mark.parametrize(
    "law",
    [
        Skellam(Fraction(400)),
        NegativeBinomialDifference(Fraction(5, 4), Fraction(1, 10)),
    ],
)
def test_upper_bounds_hold_however_early_the_sum_is_cut(
    law: NoiseLaw, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact, cut = shifted(law, 10), shifted(law, 10)
    monkeypatch.setattr(cut, "reach", lambda order: int(20 * order) + 40)
    for order in (1.5, 3):
        assert cut.renyi(order).upper > exact.renyi(order).upper
        assert cut.renyi(order).lower < exact.renyi(order).lower
    assert cut.hockey_stick(0.3).upper > exact.hockey_stick(0.3).upper


@pytest.mark.parametrize("order", [1.5, 2, 5])
def test_bounds_cover_what_sets_a_sum_of_gaussians_apart(order: float) -> None:
    # Shares as narrow as σ = 3/4: their sum is visibly not a discrete Gaussian.
    law = SumOfDiscreteGaussians(8, Fraction(9, 16))
    here, there = logarithms(law, 3)
    plain = math.log(np.exp(order * here - (order - 1) * there).sum()) / (order - 1)
    bounds = shifted(law, 3).renyi(order)
    alone = shifted(law.single, 3).renyi(order)
    assert bounds.lower <= plain <= bounds.upper
    assert not alone.lower - 1e-9 <= plain <= alone.upper + 1e-9


@pytest.mark.parametrize(("law", "shift"), LAWS)
def test_the_largest_shift_is_the_worst(law: NoiseLaw, shift: int) -> None:
    divergences = [shifted(law, part).renyi(3).upper for part in range(1, shift + 1)]
    trade_offs = [
        shifted(law, part).hockey_stick(0.1).upper for part in range(1, shift + 1)
    ]
    assert divergences == sorted(divergences)
    assert trade_offs == sorted(trade_offs)


@pytest.mark.parametrize(
    "law", [Skellam(Fraction(400)), DiscreteGaussian(Fraction(400))]
)
def test_bounds_on_the_far_tail_hold(law: NoiseLaw) -> None:
    noise = shifted(law, 10)
    for beyond in (40, 80, 120):
        tail = math.log(mass_up_to(law, -beyond - 1))
        assert tail <= noise.log_far_mass(beyond) <= tail + 5
    masses = noise.masses(3000)
    for order in (1.5, 4.0, 20.0):
        beyond = noise.reach(order) // 2
        far = np.arange(beyond + 1, 2990)
        here, _ = masses.at(far)
        there, _ = masses.at(far + 10)
        total = np.logaddexp.reduce(order * here - (order - 1) * there)
        assert total <= noise.log_far_terms(order, beyond)


@pytest.mark.parametrize(
    ("law", "reach"),
    [
        (Skellam(Fraction(10_000)), 900),
        (NegativeBinomialDifference(Fraction(9, 10), Fraction(1, 40)), 900),
        (NegativeBinomialDifference(Fraction(6), Fraction(1, 40)), 900),
        (DiscreteGaussian(Fraction(10_000)), 900),
    ],
)
def test_log_masses_are_within_their_stated_error(law: NoiseLaw, reach: int) -> None:
    noise: ShiftedNoise = shifted(law, 3)
    masses = noise.masses(reach)
    exact = np.log(law.pmf_range(0, reach))
    off = np.abs(masses.values[: reach + 1] - exact)
    assert (off <= masses.error[: reach + 1] + 1e-12).all()
    assert masses.error[reach] < 1e-8


# --- closed forms and other people's accountants


def test_a_discrete_gaussian_diverges_like_a_gaussian_at_whole_orders() -> None:
    for order in (2, 3, 10):
        bounds = shifted(DiscreteGaussian(Fraction(100)), 5).renyi(order)
        assert bounds.upper == pytest.approx(order * 25 / 200, rel=1e-12)


def test_the_whole_laplace_noise_agrees_with_the_sum_over_its_parts() -> None:
    # Shape 1 + 10⁻⁹ takes the general path; shape 1 the closed forms.
    near = NegativeBinomialDifference(1 + Fraction(1, 10**9), Fraction(1, 10))
    whole = DiscreteLaplace(Fraction(10))
    for order in (1.5, 2, 7):
        one, other = (shifted(law, 5).renyi(order).upper for law in (near, whole))
        assert one == pytest.approx(other, abs=1e-7)
    for epsilon in (0.0, 0.2, 0.4):
        one, other = (
            shifted(law, 5).hockey_stick(epsilon).upper for law in (near, whole)
        )
        assert one == pytest.approx(other, abs=1e-7)


@pytest.mark.parametrize("privacy_delta", [1e-3, 1e-6, 1e-9])
def test_the_exact_trade_off_agrees_with_dp_accounting(privacy_delta: float) -> None:
    from dp_accounting.pld import privacy_loss_distribution as pld

    laplace = pld.from_discrete_laplace_mechanism(0.5 / 20, sensitivity=20)
    ours = shifted(DiscreteLaplace(Fraction(40)), 20).approximate(privacy_delta)
    theirs = laplace.get_epsilon_for_delta(privacy_delta)
    assert ours == pytest.approx(theirs, abs=2e-4)
    gaussian = pld.from_discrete_gaussian_mechanism(40, sensitivity=20)
    ours = shifted(DiscreteGaussian(Fraction(1600)), 20).approximate(privacy_delta)
    theirs = gaussian.get_epsilon_for_delta(privacy_delta)
    assert ours == pytest.approx(theirs, abs=2e-3)


# --- of a cohort


def test_the_exact_trade_off_is_tighter_than_the_converted_curve() -> None:
    one = cohort("dist-rdp", "1/2", 400, 400)
    exact = approximate(one, 1e-6)
    assert exact.reason == "exact trade-off of the noise"
    assert exact.epsilon < 2.26 < 2.42 < one.guarantee().approximate(1e-6) + 0.01
    assert renyi_bound([one], 1, 1e-6).epsilon > exact.epsilon


def test_pure_noise_keeps_its_epsilon_at_every_delta() -> None:
    one = cohort("dist-dp", "1/2", 400, 300)
    for privacy_delta in (0.1, 1e-6, 1e-12):
        assert approximate(one, privacy_delta).epsilon <= 0.5
    assert exact_epsilon(one) == 0.5


@pytest.mark.parametrize("name", ["dist-rdp", "dist-cdp"])
def test_gaussian_like_noise_is_never_pure(name: str) -> None:
    assert exact_epsilon(cohort(name, "1/2", 100, 100)) == math.inf


def test_no_noise_is_no_promise() -> None:
    one = cohort("non-private", "1/2", 100, 100)
    assert shifted_noise(one) is None
    assert approximate(one, 1e-6).epsilon == math.inf
    assert returning_users([one], 3, 1e-6)[0].epsilon == math.inf
    assert effective_epsilon_of(one, 50) == math.inf


@pytest.mark.parametrize("order", [2, 8, 40])
def test_the_reported_divergence_is_the_smaller_of_exact_and_closed(order: int) -> None:
    one = cohort("dist-rdp", "1", 4, 4)
    noise = shifted_noise(one)
    assert noise is not None
    value = renyi_divergence(one, order)
    assert value <= one.guarantee().renyi(order)
    assert value >= noise.renyi(order).lower


def test_a_law_that_is_not_accounted_for_is_refused() -> None:
    with pytest.raises(InputError, match="Poisson"):
        shifted(Poisson(Fraction(3)), 1)


# --- returning users


def test_ten_returns_cost_ten_times_a_tenth_and_less_than_of_gaussian_noise() -> None:
    # Oracle: 1.0 by adding up against 1.368 by exact composition of a Gaussian.
    pure = cohort("dist-dp", "1/10", 1600, 1600)
    bounds = returning_users([pure], 10, 1e-6)
    added = {bound.reason: bound.epsilon for bound in bounds}
    assert added["pure ε added up"] == pytest.approx(1.0)
    assert bounds[0].epsilon <= 1.0
    gaussian = cohort("dist-cdp", "1/10", 1600, 1600)
    assert 1.367 < returning_users([gaussian], 10, 1e-6)[0].epsilon < 1.369


def test_many_returns_are_cheaper_by_composition_than_by_adding_up() -> None:
    one = cohort("dist-dp", "1/10", 1600, 1600)
    best, *_, worst = returning_users([one], 400, 1e-6)
    assert worst.reason == "pure ε added up"
    assert worst.epsilon == pytest.approx(40.0)
    assert best.reason == "privacy losses composed"
    assert best.epsilon < 13


def test_a_mix_of_cohorts_is_covered_by_the_worst_of_them() -> None:
    small, large = (cohort("dist-dp", "1/10", n, n) for n in (100, 10_000))
    mixed = returning_users([small, large], 100, 1e-6)[0].epsilon
    for one in (small, large):
        assert mixed >= returning_users([one], 100, 1e-6)[0].epsilon - 1e-3


@pytest.mark.parametrize("first", [0, 1])
def test_pure_epsilons_of_a_mix_are_those_of_its_weakest_cohort(first: int) -> None:
    mix = [cohort("dist-dp", epsilon, 100, 100) for epsilon in ("1/10", "1")]
    bounds = returning_users([mix[first], mix[1 - first]], 3, 1e-6)
    (pure,) = [bound for bound in bounds if not bound.privacy_delta]
    assert pure.epsilon == pytest.approx(3)


def test_the_bound_without_delta_wins_when_both_read_the_same() -> None:
    one = cohort("dist-dp", "1/2", 400, 400)
    best = returning_users([one], 2, 1e-9)[0]
    assert (best.reason, best.privacy_delta) == ("pure ε added up", 0.0)


def test_one_participation_needs_no_composition() -> None:
    one = cohort("dist-cdp", "1/2", 100, 80)
    assert returning_users([one], 1, 1e-6) == (approximate(one, 1e-6),)


# --- missing shares


@pytest.mark.parametrize(
    ("epsilon", "precision", "fraction", "printed"),
    [
        ("0.1", 4, "0.99", "0.1045"),
        ("0.1", 4, "0.9", "0.156"),
        ("0.1", 4, "0.75", "0.304"),
        ("0.1", 4, "0.5", "0.867"),
        ("1", 16, "0.99", "1.016"),
        ("1", 16, "0.9", "1.18"),
        ("1", 16, "0.5", "2.44"),
    ],
)
def test_effective_epsilon_agrees_with_the_oracle_to_its_digits(
    epsilon: str, precision: int, fraction: str, printed: str
) -> None:
    value = effective_epsilon(Fraction(epsilon), precision, Fraction(fraction))
    digits = len(printed.split(".")[1])
    assert f"{value:.{digits}f}" == printed


@pytest.mark.parametrize(
    "fraction", [Fraction(99, 100), Fraction(1, 2), Fraction(1, 9)]
)
@pytest.mark.parametrize(
    ("epsilon", "precision"), [(Fraction(1, 10), 4), (Fraction(1), 16)]
)
def test_effective_epsilon_is_the_largest_log_ratio_over_all_shifts(
    epsilon: Fraction, precision: int, fraction: Fraction
) -> None:
    law = NegativeBinomialDifference(fraction, epsilon / precision)
    masses = np.log(law.pmf_range(-1000, 1000))
    largest = max(
        float(np.abs(masses[shift:] - masses[:-shift]).max())
        for shift in range(1, precision + 1)
    )
    value = effective_epsilon(epsilon, precision, fraction)
    assert value == pytest.approx(largest, rel=1e-12)


def test_more_shares_than_counted_on_leave_epsilon_as_it_is() -> None:
    assert effective_epsilon(Fraction(1, 10), 4, Fraction(5, 4)) == 0.1


def test_missing_shares_widen_gaussian_promises_by_a_root() -> None:
    one = cohort("dist-rdp", "1/2", 100, 80)
    assert effective_epsilon_of(one, 80) == 0.5
    assert effective_epsilon_of(one, 20) == pytest.approx(1.0)
    assert effective_epsilon_of(one, 0) == math.inf


def test_nobody_else_matters_in_the_local_model() -> None:
    assert effective_epsilon_of(cohort("local-dp", "1/2", 100, 80), 1) == 0.5


def test_the_trade_off_of_too_few_parts_is_refused() -> None:
    law = NegativeBinomialDifference(Fraction(1, 2), Fraction(1, 10))
    with pytest.raises(InputError, match="shape is 1/2"):
        shifted(law, 4).hockey_stick(0.1)
