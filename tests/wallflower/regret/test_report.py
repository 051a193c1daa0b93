"""Figures of a simulation's report."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from wallflower.protocol.accounting.exact import smallest_bound
from wallflower.protocol.privacy.sentences import SENTENCE_DELTA
from wallflower.regret.report import guarantee_of, quantiles
from wallflower.strategy.bandit.spec import PolicySpec


@pytest.mark.parametrize("count", [1, 2, 7, 100])
def test_quantiles_are_those_of_numpy(count: int) -> None:
    values = np.random.default_rng(3).exponential(size=count)
    parts = (0.5, 0.05, 0.95, 0.99)
    assert quantiles(values, *parts) == pytest.approx(np.quantile(values, parts))


@pytest.mark.parametrize("mechanism", ["dist-rdp", "dist-cdp"])
def test_the_promise_holds_in_the_cohort_that_is_worst_not_the_smallest(
    mechanism: str,
) -> None:
    # Gaussian-like noise of a large cohort is a little worse than that of a small one.
    spec = PolicySpec("elimination", 10, 10**6, mechanism, Fraction(1, 2)).resolved()
    large = spec.calibrated(10_000, spec.floor(10_000), Fraction(1, 1000))
    bound = smallest_bound([large], 1, SENTENCE_DELTA).epsilon
    assert float(guarantee_of(spec)["approximate_epsilon"]) >= bound
