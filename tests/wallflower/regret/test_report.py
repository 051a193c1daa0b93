"""Figures of a simulation's report."""

from __future__ import annotations

import numpy as np
import pytest

from wallflower.regret.report import quantiles


@pytest.mark.parametrize("count", [1, 2, 7, 100])
def test_quantiles_are_those_of_numpy(count: int) -> None:
    values = np.random.default_rng(3).exponential(size=count)
    parts = (0.5, 0.05, 0.95, 0.99)
    assert quantiles(values, *parts) == pytest.approx(np.quantile(values, parts))
