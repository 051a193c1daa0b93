"""Algorithm 3: the wrap-around is undone at the stated failure rate."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from tests.support.laws import mass_up_to
from tests.support.statistics import FALSE_ALARM_RATE
from wallflower.protocol.errors import InputError
from wallflower.protocol.noise.bits import SeededBits
from wallflower.protocol.privacy.mechanism import CohortMechanism, mechanism_named
from wallflower.strategy.run.analyzer import analyze, decode

NOISY = ["dist-dp", "dist-rdp", "dist-cdp", "local-dp"]
WRAP = Fraction(1, 50)  # large, so that a sample sees it


def cohort(name: str, users: int = 64, wrap: Fraction = WRAP) -> CohortMechanism:
    return mechanism_named(name, Fraction(1, 2)).for_cohort(users, users, wrap)


@pytest.mark.parametrize("name", [*NOISY, "central-dp"])
@pytest.mark.parametrize("all_ones", [False, True])
def test_every_noise_within_the_bound_is_decoded(name: str, all_ones: bool) -> None:
    mechanism = cohort(name)
    truth = mechanism.cohort_size * mechanism.precision * all_ones
    for noise in range(-mechanism.noise_bound, mechanism.noise_bound + 1):
        total = (truth + noise) % mechanism.modulus
        assert plain(mechanism, total) == truth + noise


@pytest.mark.parametrize("name", NOISY)
@pytest.mark.parametrize("all_ones", [False, True])
def test_wrong_decodings_are_exactly_as_rare_as_promised(
    name: str, all_ones: bool
) -> None:
    """P(wrong) summed over the exact law of the total, all-zero and all-one arms."""
    mechanism = cohort(name)
    noise = mechanism.total_noise()
    assert noise is not None
    truth = mechanism.cohort_size * mechanism.precision * all_ones
    reach = noise.two_sided_bound(Fraction(1, 10**12))
    wrong = sum(
        mass_up_to(noise, x) - mass_up_to(noise, x - 1)
        for x in range(-reach, reach + 1)
        if plain(mechanism, (truth + x) % mechanism.modulus) != truth + x
    )
    # Too large by more than τ on one side, or past the whole range on the other.
    limit = mechanism.noise_bound + mechanism.cohort_size * mechanism.precision
    expected = mass_up_to(noise, -mechanism.noise_bound - 1) + mass_up_to(
        noise, -limit - 1
    )
    assert wrong == pytest.approx(expected, rel=1e-6)
    assert 0 < wrong <= WRAP


@pytest.mark.parametrize("name", NOISY)
@pytest.mark.parametrize("all_ones", [False, True])
def test_sampled_sums_wrap_at_the_stated_rate(name: str, all_ones: bool) -> None:
    mechanism = cohort(name)
    noise = mechanism.total_noise()
    assert noise is not None
    draws = 20_000
    values = noise.sample(draws, SeededBits.derived(8, name, int(all_ones)))
    truth = mechanism.cohort_size * mechanism.precision * all_ones
    wrong = sum(
        plain(mechanism, (truth + int(x)) % mechanism.modulus) != truth + x
        for x in values
    )
    limit = mechanism.noise_bound + mechanism.cohort_size * mechanism.precision
    rate = mass_up_to(noise, -mechanism.noise_bound - 1) + mass_up_to(noise, -limit - 1)
    assert stats.binomtest(wrong, draws, rate).pvalue > FALSE_ALARM_RATE


def plain(mechanism: CohortMechanism, total: int) -> int:
    return decode(
        total,
        cohort_size=mechanism.cohort_size,
        precision=mechanism.precision,
        noise_bound=mechanism.noise_bound,
        modulus=mechanism.modulus,
    )


def test_a_larger_modulus_is_undone_too() -> None:
    mechanism = cohort("dist-dp")
    assert analyze(mechanism, 2**40 - 3, 2**40) == -3
    assert analyze(mechanism, 5, 2**40) == 5


def test_the_trusted_server_adds_its_noise() -> None:
    mechanism = cohort("central-dp")
    noise = mechanism.server_noise()
    assert noise is not None
    values = np.array(
        [analyze(mechanism, 100, bits=SeededBits.derived(1, i)) for i in range(3000)]
    )
    # The variance of 3000 discrete Laplace draws is within 35 % but once in 10⁶.
    assert np.var(values) == pytest.approx(noise.variance(), rel=0.35)
    assert np.mean(values) == pytest.approx(100, abs=5 * noise.variance() ** 0.5 / 50)


@pytest.mark.parametrize("total", [-1, 10**9])
def test_a_total_outside_the_ring_is_refused(total: int) -> None:
    with pytest.raises(InputError, match="total"):
        analyze(cohort("dist-dp"), total)


def test_a_modulus_that_cannot_hold_the_sum_is_refused() -> None:
    mechanism = cohort("dist-dp")
    with pytest.raises(InputError, match="modulus"):
        analyze(mechanism, 0, mechanism.modulus - 1)
