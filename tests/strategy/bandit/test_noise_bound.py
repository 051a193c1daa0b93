from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from wallflower.strategy.bandit.noise_bound import NoiseBound
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
