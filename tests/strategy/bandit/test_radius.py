from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from wallflower.protocol.errors import InputError
from wallflower.protocol.privacy.mechanism import mechanism_named
from wallflower.strategy.bandit.radius import (
    Pool,
    pair_bound,
    paper_radius,
)

LEVEL = Fraction(1, 1000)


def laplace(epsilon: float, precision: int) -> Pool:
    """One cohort of 10,000 users with total noise Lap_ℤ(g/ε), in units of reward."""
    decay = math.exp(-epsilon / precision)

    def log_mgf(argument: float) -> float:
        step = argument / precision
        if decay * math.exp(step) >= 1:
            return math.inf
        return (
            2 * math.log1p(-decay)
            - math.log1p(-decay * math.exp(step))
            - math.log1p(-decay * math.exp(-step))
        )

    return Pool(10_000, (log_mgf,))


def grid_minimum(pool: Pool, copies: int) -> float:
    arguments = np.exp(np.linspace(-12, 12, 200_001))
    penalty = math.log(1 / LEVEL)
    return min(
        (copies * pool.log_mgf(float(x)) + penalty) / float(x) for x in arguments
    )


def test_without_noise_two_arms_differ_by_root_two_more() -> None:
    pool = Pool(500, ())
    exact = math.sqrt(math.log(1000) / 500)
    assert pair_bound(pool, LEVEL)[0] == pytest.approx(exact, rel=1e-5)


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0])
def test_the_search_finds_the_minimum_over_a_fine_grid(epsilon: float) -> None:
    pool = laplace(epsilon, 10)
    assert pair_bound(pool, LEVEL)[0] == pytest.approx(grid_minimum(pool, 2), rel=1e-5)


def test_a_law_without_mgf_is_refused() -> None:
    with pytest.raises(InputError, match="light-tailed"):
        pair_bound(Pool(10, (lambda argument: math.inf,)), LEVEL)


def radius(mechanism: str, survivors: int = 1024, floor: int = 1024) -> float:
    return paper_radius(
        mechanism_named(mechanism, Fraction(1, 10)),
        survivors=survivors,
        honest_floor=floor,
        batch=10,
        active_arms=10,
        failure_probability=Fraction(1, 10),
    )


def test_the_paper_radius_is_its_printed_formula() -> None:
    odds = 10 * 100 / 0.1
    expected = (
        math.sqrt(math.log(4 * odds) / 2048)
        + math.sqrt(2) / 0.1 * math.sqrt(math.log(2 * odds)) / 1024
        + math.log(2 * odds) / 0.1 / 1024
    )
    assert radius("dist-dp") == pytest.approx(expected, rel=1e-12)


def test_trust_models_are_ordered_as_in_the_paper() -> None:
    assert radius("dist-cdp") < radius("dist-rdp") < radius("dist-dp")
    assert radius("dist-dp") == radius("central-dp") < radius("local-dp")


def test_more_survivors_than_the_floor_widen_the_paper_radius() -> None:
    assert radius("dist-dp", floor=512) > radius("dist-dp")


def test_an_unknown_mechanism_is_named_with_a_suggestion() -> None:
    with pytest.raises(InputError, match='did you mean "dist-dp"'):
        radius("dist-pd")
