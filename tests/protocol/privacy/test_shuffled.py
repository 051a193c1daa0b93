"""`shuffle-dp`: what the noise gives and what the shuffled batch tells add up to ε."""

from __future__ import annotations

from fractions import Fraction

import pytest

from wallflower.protocol.accounting.exact import (
    approximate,
    effective_epsilon_of,
    exact_epsilon,
    renyi_divergence,
    returning_users,
)
from wallflower.protocol.noise.radix import certified_tables, certify
from wallflower.protocol.privacy.mechanism import mechanism_named
from wallflower.protocol.privacy.pure import _ShuffledCohort

LEVEL = Fraction(1, 10**6)


def shuffled(epsilon: str, size: int = 1000, floor: int = 800) -> _ShuffledCohort:
    cohort = mechanism_named("shuffle-dp", Fraction(epsilon)).for_cohort(
        size, floor, LEVEL
    )
    assert isinstance(cohort, _ShuffledCohort)
    return cohort


@pytest.mark.parametrize("epsilon", ["0.1", "0.5", "1"])
def test_the_promise_is_the_noise_and_the_shuffled_batch_together(epsilon: str) -> None:
    cohort = shuffled(epsilon)
    assert cohort.epsilon == Fraction(99, 100) * Fraction(epsilon)
    assert cohort.radix.budget == Fraction(epsilon) / 100
    assert cohort.guarantee().epsilon == Fraction(epsilon)
    assert exact_epsilon(cohort) == pytest.approx(float(epsilon), rel=1e-9)


def test_the_promise_says_whom_it_trusts() -> None:
    assert shuffled("1").guarantee().trust == "shuffler"


@pytest.mark.parametrize("epsilon", ["0.1", "0.5", "1"])
@pytest.mark.parametrize("exponent", [6, 8, 10, 12, 14, 16])
def test_every_table_that_would_be_used_is_certified(
    exponent: int, epsilon: str
) -> None:
    radix = shuffled(epsilon, 2**exponent, 2**exponent * 4 // 5).radix
    tables = certified_tables(radix)
    excess = certify(tables, radix.pair_budget, radix.levels)
    assert excess * radix.levels * (radix.parties - 1) <= radix.budget


def test_the_modulus_is_a_power_of_two_with_room_for_the_sum() -> None:
    cohort = shuffled("0.5")
    span = 1000 * cohort.precision + 2 * cohort.noise_bound + 1
    assert span <= cohort.modulus < 2 * span
    assert cohort.modulus == 2**cohort.radix.levels


def test_wrapping_and_junk_share_the_probability_of_a_wrong_sum() -> None:
    cohort = shuffled("0.5")
    laplace = mechanism_named("dist-dp", cohort.epsilon)
    assert cohort.radix.wrong == LEVEL / 2
    assert cohort.noise_bound == laplace.for_cohort(1000, 800, LEVEL / 2).noise_bound


def test_what_the_shuffled_batch_tells_is_paid_for_in_every_conversion() -> None:
    cohort = shuffled("1")
    of_noise = mechanism_named("dist-dp", cohort.epsilon).for_cohort(1000, 800, LEVEL)
    more = float(cohort.view_loss)
    for privacy_delta in (1e-6, 1e-2):
        bound = approximate(of_noise, privacy_delta).epsilon + more
        assert approximate(cohort, privacy_delta).epsilon == pytest.approx(bound)
    for order in (2.0, 8.0, 64.0):
        # P ≤ e^η Q and P′ ≥ Q′ cost αη/(α−1); (ε, 0)-DP bounds it too.
        most = renyi_divergence(of_noise, order) + order * more / (order - 1)
        assert renyi_divergence(of_noise, order) < renyi_divergence(cohort, order)
        assert renyi_divergence(cohort, order) <= most + 1e-9


def test_returning_users_pay_for_every_shuffled_batch() -> None:
    bounds = returning_users([shuffled("1")], 5, 1e-6)
    assert max(bound.epsilon for bound in bounds if not bound.privacy_delta) == 5


def test_missing_users_cost_noise_and_not_the_shuffled_batch() -> None:
    cohort = shuffled("1")
    of_noise = mechanism_named("dist-dp", cohort.epsilon).for_cohort(1000, 800, LEVEL)
    less = effective_epsilon_of(of_noise, 400)
    assert effective_epsilon_of(cohort, 400) == pytest.approx(less + 0.01)
