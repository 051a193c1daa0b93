"""Goodness-of-fit checks with a stated false-alarm rate."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from scipy import stats

from tests.support.laws import mass_up_to
from wallflower.protocol.noise.bits import Integers
from wallflower.protocol.noise.law import NoiseLaw

# Each χ² test of the suite raises a false alarm once in a million seeds; the seeds are
# fixed, so a test that passes once passes always.
FALSE_ALARM_RATE = 1e-6
_LEAST_EXPECTED = 20.0


def chi_square_p_value(values: Integers, law: NoiseLaw) -> float:
    """Compare draws with the exact law in cells of at least twenty expected draws."""
    count = len(values)
    edges = _cell_edges(law, count)
    shares = [mass_up_to(law, edges[0])]
    shares += [
        mass_up_to(law, high) - mass_up_to(law, low) for low, high in pairwise(edges)
    ]
    expected = np.array([*shares, 1 - mass_up_to(law, edges[-1])]) * count
    observed = np.bincount(np.searchsorted(edges, values), minlength=len(edges) + 1)
    statistic = float(np.sum((observed - expected) ** 2 / expected))
    return float(stats.chi2.sf(statistic, len(edges)))


def _cell_edges(law: NoiseLaw, count: int) -> list[int]:
    """Upper ends of all cells but the last, each cell and the rest heavy enough."""
    share = max(_LEAST_EXPECTED / count, 1 / 200)
    edges: list[int] = []
    below = 0.0
    start = -_reach(law, share)
    for x in range(start, -start + 1):
        at = mass_up_to(law, x)
        if at - below >= share and 1 - at >= share:
            edges.append(x)
            below = at
    return edges


def _reach(law: NoiseLaw, share: float) -> int:
    x = 1
    while mass_up_to(law, -x) > share or 1 - mass_up_to(law, x) > share:
        x *= 2
    return x
