from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from wallflower.protocol.noise.balls import Ball, ball, precision
from wallflower.protocol.noise.difference import NegativeBinomialDifference
from wallflower.protocol.noise.laplace import DiscreteLaplace
from wallflower.protocol.privacy.mechanism import LARGEST_COHORT
from wallflower.strategy.bandit.cells import ROUNDING, Delivered, NoiseBound
from wallflower.strategy.bandit.radius import cohort_noise
from wallflower.strategy.bandit.spec import build_mechanism

MECHANISMS = ["dist-dp", "dist-rdp", "dist-cdp", "central-dp", "local-dp"]


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("epsilon", ["0.01", "1", "99"])
def test_chords_lie_above_the_log_mgf_and_close_to_it(
    mechanism: str, epsilon: str
) -> None:
    cohort = build_mechanism(mechanism, Fraction(epsilon), Fraction(10)).for_cohort(
        100, 80, Fraction(1, 10**6)
    )
    exact = cohort_noise(cohort, 90)
    bound = NoiseBound.of(exact)
    arguments = np.geomspace(1e-6, 0.999, 400) * bound.limit
    values = np.array([exact(float(argument)) for argument in arguments])
    found = bound(arguments)
    assert (found >= values * (1 - 1e-12) - 1e-9).all()
    middle = (arguments < 0.5 * bound.limit) & (values < 50)
    assert (found[middle] <= 1.01 * values[middle] + 1e-9).all()
    assert bound(-arguments) == pytest.approx(found)


def test_beyond_the_domain_it_is_infinite() -> None:
    bound = NoiseBound.of(lambda at: math.inf if abs(at) >= 0.5 else at * at)
    assert 0.45 < bound.limit < 0.5
    assert np.isinf(bound(np.array([0.5, -0.6]))).all()


def test_no_noise_costs_nothing() -> None:
    assert (NoiseBound.of(lambda at: 0.0)(np.array([0.0, 1.0, 60.0])) == 0).all()


def certified(shape: Fraction, rate: Fraction, argument: Fraction) -> Ball:
    """R ln[(1−q)² / ((1−q e^λ)(1−q e^{−λ}))], at the working precision."""
    ratios = (
        (-ball(rate)).expm1() / ball(at - rate).expm1() for at in (argument, -argument)
    )
    return ball(shape) * sum((ratio.log() for ratio in ratios), ball(0))


@pytest.mark.parametrize("mechanism", ["dist-dp", "central-dp", "local-dp"])
@pytest.mark.parametrize("users", [100, 10**7, LARGEST_COHORT])
def test_the_bound_holds_though_doubles_are_rounded(mechanism: str, users: int) -> None:
    # A cohort of local noises has one log-MGF of a Laplace law for every user.
    cohort = build_mechanism(mechanism, Fraction(1), Fraction(10)).for_cohort(
        users, users * 4 // 5, Fraction(1, 10**6)
    )
    law = cohort.server_noise() or cohort.total_noise(users)
    if isinstance(law, DiscreteLaplace):
        shape, rate = Fraction(1), 1 / law.scale
    else:
        assert isinstance(law, NegativeBinomialDifference)
        shape, rate = law.shape, law.rate
    bound = NoiseBound.of(cohort_noise(cohort, users))
    exponents = np.geomspace(1e-7, 0.97, 60) * bound.limit
    found = Delivered(np.array([float(users)]), (bound,)).noise(exponents[:, None])
    for exponent, price in zip(exponents.tolist(), found.tolist(), strict=True):
        with precision(300):
            exact = certified(shape, rate, Fraction(exponent) / cohort.precision)
            assert exact <= ball(Fraction(price) * (1 + Fraction(ROUNDING)))
