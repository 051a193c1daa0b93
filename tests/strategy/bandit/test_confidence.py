"""How the failure probability is spent: never more than p in all."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import pytest

from wallflower.strategy.bandit.confidence import Confidence
from wallflower.strategy.bandit.failure_budget import Shares
from wallflower.strategy.bandit.radius import (
    Pool,
    cohort_noise,
    own_radius,
    pair_radius,
)
from wallflower.strategy.bandit.schedule import CohortFacts
from wallflower.strategy.bandit.spec import ELIMINATION, PolicySpec

P = Fraction(1, 10)
ARMS = 7
SPEC = PolicySpec(
    policy=ELIMINATION,
    arms=ARMS,
    horizon=10**6,
    mechanism="dist-dp",
    epsilon=Fraction(1, 2),
    failure_probability=P,
    radius="pair",
).resolved()
SHARES = Shares(P)
FACTS = tuple(CohortFacts(100 * batch, 80 * batch, 90) for batch in (1, 2, 3))
HISTORY = tuple(((facts, 1),) for facts in FACTS)  # each its own group
# Σ 1/b² over the first 5000 batches lies within 2·10⁻⁴ of π²/6.
BATCHES = range(1, 5001)


def pool(*history: CohortFacts) -> Pool:
    wrap = SHARES.wrap(3, ARMS)
    noises = tuple(
        cohort_noise(SPEC.calibrated(facts.size, facts.floor, wrap), facts.survivors)
        for facts in history
    )
    return Pool(sum(facts.survivors for facts in history), noises)


def test_both_sides_of_all_intervals_and_all_wraps_spend_p_and_no_more() -> None:
    spent = sum(
        float(2 * ARMS * SHARES.side(batch, ARMS) + ARMS * SHARES.wrap(batch, ARMS))
        for batch in BATCHES
    )
    assert 0.99 * float(P) < spent <= float(P)


def test_all_comparisons_with_the_best_and_all_wraps_spend_p_and_no_more() -> None:
    spent = sum(
        float((ARMS - 1) * SHARES.pair(batch, ARMS) + ARMS * SHARES.wrap(batch, ARMS))
        for batch in BATCHES
    )
    assert 0.99 * float(P) < spent <= float(P)


def test_an_interval_is_as_wide_as_its_part_of_p_demands() -> None:
    level = Fraction(99, 100) * Fraction(607, 1000) * P / 3**2 / (2 * ARMS)
    bound = Confidence(SPEC).own(HISTORY, 3)
    exact = own_radius(pool(*FACTS[-bound.pooled :]), level)
    assert bound.radius == pytest.approx(exact, rel=1e-4)


def test_pooled_sums_are_compared_with_all_rivals_whoever_is_still_active() -> None:
    confidence = Confidence(SPEC)
    everybody = confidence.pair(HISTORY, HISTORY, 3)
    assert confidence.pair(HISTORY, HISTORY, 3, active=2) == everybody
    used = pool(*FACTS[-everybody.pooled :])
    exact = pair_radius(used, used, SHARES.pair(3, ARMS))
    assert everybody.radius == pytest.approx(exact, rel=1e-4)


def test_a_fresh_batch_alone_is_compared_with_the_active_rivals_only() -> None:
    confidence = Confidence(dataclasses.replace(SPEC, pooling=False))
    few = confidence.pair(HISTORY, HISTORY, 3, active=2)
    assert few.radius < confidence.pair(HISTORY, HISTORY, 3).radius
    exact = pair_radius(pool(FACTS[-1]), pool(FACTS[-1]), SHARES.pair(3, 2))
    assert few.radius == pytest.approx(exact, rel=1e-4)
