"""The private lower bound, and the peer that is built on its costs."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.dp_tt import DpTopTwo
from benchmarks.private_bound import fewest_users, private_divergence, transport_cost


# The figures of the bound that were computed independently, p = 0.01, ε = 1.
@pytest.mark.parametrize(
    ("means", "expected"),
    [
        ((0.75, 0.625, 0.5, 0.375, 0.25), 558),
        ((0.95, 0.9, 0.9, 0.9, 0.5), 1_786),
        ((0.012, 0.010, 0.010, 0.008), 149_742),
    ],
)
def test_the_bound_has_the_known_figures(
    means: tuple[float, ...], expected: int
) -> None:
    assert fewest_users(means, 1.0, 0.01) == pytest.approx(expected, rel=1e-3)


def test_the_divergence_is_the_smallest_over_all_ways() -> None:
    for low, high, epsilon in ((0.2, 0.7, 0.3), (0.01, 0.02, 1.0), (0.4, 0.41, 0.1)):
        ways = np.linspace(low, high, 20_001)
        entropy = ways * np.log(ways / high)
        entropy += (1 - ways) * np.log((1 - ways) / (1 - high))
        smallest = (epsilon * (ways - low) + entropy).min()
        found = private_divergence(np.array(low), np.array(high), epsilon)
        assert float(found) == pytest.approx(smallest, rel=1e-6)


def test_without_privacy_two_arms_cost_their_relative_entropies() -> None:
    ways = np.linspace(0.3, 0.6, 20_001)[1:-1]

    def entropy(mean: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        rest = (1 - mean) * np.log((1 - mean) / (1 - ways))
        return np.asarray(mean * np.log(mean / ways) + rest)

    smallest = (100 * entropy(0.6) + 50 * entropy(0.3)).min()
    users = np.array(100.0), np.array(50.0)
    large = transport_cost(np.array(0.6), np.array(0.3), *users, epsilon=50.0)
    assert float(large) == pytest.approx(smallest, rel=1e-6)


def test_an_arm_that_is_not_ahead_costs_nothing_to_overtake() -> None:
    users = np.array(10.0), np.array(10.0)
    assert transport_cost(np.array(0.3), np.array(0.6), *users, epsilon=1.0) == 0


def test_the_peer_decides_rightly_and_above_the_bound() -> None:
    """20 runs; its threshold lets about one run of a hundred err."""
    means = (0.8, 0.5, 0.4)
    stopped = DpTopTwo(means, 1.0, 0.01, 20, seed=3).run(10**6)
    assert stopped.decided.all()
    assert stopped.wrong.sum() <= 2
    assert stopped.users.mean() > fewest_users(means, 1.0, 0.01)
