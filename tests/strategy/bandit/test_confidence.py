"""How the failure probability is spent: never more than p in all."""

from __future__ import annotations

from fractions import Fraction

import pytest

from wallflower.strategy.bandit.confidence import Confidence
from wallflower.strategy.bandit.failure_budget import Shares
from wallflower.strategy.bandit.radius import (
    Pool,
    cohort_noise,
    pair_bound,
)
from wallflower.strategy.bandit.schedule import CohortFacts
from wallflower.strategy.bandit.spec import PolicySpec
from wallflower.strategy.policy_names import ELIMINATION

P = Fraction(1, 10)
ARMS = 7
SPEC = PolicySpec(
    policy=ELIMINATION,
    arms=ARMS,
    horizon=10**6,
    mechanism="dist-dp",
    epsilon=Fraction(1, 2),
    failure_probability=P,
    radius="paper",
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


def test_pooled_sums_are_compared_with_all_rivals() -> None:
    bound = Confidence(SPEC).pair(HISTORY, 3)
    exact, _ = pair_bound(pool(*FACTS[-bound.pooled :]), SHARES.pair(3, ARMS))
    assert bound.radius == pytest.approx(exact, rel=1e-4)
