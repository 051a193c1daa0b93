"""The plain rule of `dp-imed`, which locks onto a wrong arm in one run of 500."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from unittest import mock

import numpy as np

from wallflower.strategy.bandit.index_choice import CHOICES, Arms, ArmTotals, Divergence


def plain_choice(standing: ArmTotals, divergence: Divergence, horizon: int) -> Arms:
    """Arm with the smallest n·d(mean, best mean) + ln n (Honda and Takemura 2015)."""
    means = np.clip(standing.means, 0, 1)
    best = means.max(axis=-1, keepdims=True)
    distance = divergence.between(means, best, divergence.epsilon)
    users = standing.users
    return np.asarray(np.argmin(users * distance + np.log(users), axis=-1))


def plain_schedule(epsilon: Fraction) -> dict[str, object]:
    """Cohorts of the plain rule: 4/ε users first, doubling."""
    return {"ratio": Fraction(2), "first_batch": math.ceil(4 / epsilon)}


@contextmanager
def plain_imed() -> Iterator[None]:
    """Play `dp-imed` by the plain rule for a while."""
    with mock.patch.dict(CHOICES, {"dp-imed": plain_choice}):
        yield
