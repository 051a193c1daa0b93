"""The cut of the noise is computed, costs at most 2⁻⁴⁰, and bounds a liar's weight."""

from __future__ import annotations

import inspect
import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from wallflower.protocol.accounting.truncation import (
    PRIVACY_DELTA,
    added_delta,
    truncation,
)
from wallflower.protocol.errors import InputError
from wallflower.protocol.privacy.mechanism import CohortMechanism, mechanism_named


def cohort(name: str, size: int, floor: int, epsilon: int = 1) -> CohortMechanism:
    return mechanism_named(name, Fraction(epsilon)).for_cohort(
        size, floor, Fraction(1, 10**6)
    )


def polya(shape: float, rate: float, longest: int) -> NDArray[np.float64]:
    """Masses of Pólya(shape, e^−rate), by a formula of its own."""
    return np.asarray(
        stats.nbinom.pmf(np.arange(longest), shape, -math.expm1(-rate)), np.float64
    )


def two_sided_tail(shape: float, rate: float, bound: int) -> float:
    """P[|γ⁺ − γ⁻| > bound] of two such draws; sums of positive terms only."""
    masses = polya(shape, rate, bound + int(80 / rate))
    above = np.cumsum(masses[::-1])[::-1]
    reach = len(masses) - bound - 1
    return 2 * float(masses[:reach] @ above[bound + 1 :])


@pytest.mark.parametrize(("size", "floor"), [(40, 36), (1024, 921), (65536, 58982)])
@pytest.mark.parametrize("epsilon", [1, 3])
def test_the_cut_of_pure_shares_adds_at_most_2_to_the_minus_40(
    size: int, floor: int, epsilon: int
) -> None:
    described = cohort("dist-dp", size, floor, epsilon)
    cut = truncation(described)
    rate = epsilon / described.precision
    tail = two_sided_tail(1 / floor, rate, cut.bound)
    allowed = float(PRIVACY_DELTA)
    assert (1 + math.exp(epsilon)) * size * tail <= allowed
    assert 0 < cut.privacy_delta <= PRIVACY_DELTA
    # A cut by a tenth of a noise scale less would add too much.
    closer = two_sided_tail(1 / floor, rate, cut.bound - math.ceil(0.1 / rate) - 1)
    assert math.ceil(1 + math.exp(epsilon)) * size * closer > allowed


def test_the_cut_of_skellam_shares_adds_at_most_2_to_the_minus_40() -> None:
    described = cohort("dist-rdp", 1024, 921)
    cut = truncation(described)
    mean = described.precision**2 / 921 / 2
    tail = 2 * float(stats.skellam.sf(cut.bound, mean, mean))
    assert 2 * 1024 * tail <= float(PRIVACY_DELTA)


def test_a_phone_at_epsilon_1_counts_as_at_most_55_people() -> None:
    described = cohort("dist-dp", 1024, 921)
    cut = truncation(described)
    assert 54 < cut.weight < 55
    assert cut.allowed(1)[0] == -cut.bound
    assert cut.allowed(3)[1] == 3 * (described.precision + cut.bound)


@pytest.mark.parametrize("name", ["central-dp", "non-private"])
def test_where_users_add_no_noise_nothing_is_cut(name: str) -> None:
    cut = truncation(cohort(name, 100, 90))
    assert cut.bound == cut.privacy_delta == 0
    assert cut.weight == 1


def test_a_promise_without_meaning_cannot_be_proved() -> None:
    with pytest.raises(InputError, match="epsilon"):
        truncation(cohort("dist-rdp", 100, 90, epsilon=100))


@pytest.mark.parametrize("users", [1, 2, 7, 60])
def test_a_nodes_one_draw_leaves_its_range_no_more_often_than_its_users_would(
    users: int,
) -> None:
    described = cohort("dist-dp", 100, 90)
    cut, rate = truncation(described), 1 / described.precision
    together = two_sided_tail(users / 90, rate, users * cut.bound)
    assert together <= users * two_sided_tail(1 / 90, rate, cut.bound)


def test_the_truncated_cohort_is_private_as_printed() -> None:
    """Exact hockey-stick divergence of five users' truncated sum.

    The shares are cut where δ is large enough for doubles to see.
    """
    users = 5
    precision = cohort("dist-dp", users, users).precision
    rate, bound = 1 / precision, 6 * precision
    half = polya(1 / users, rate, 200 * precision)
    lags = np.array([half[x:] @ half[: len(half) - x] for x in range(bound + 1)])
    masses = np.concatenate([lags[:0:-1], lags])
    summed = masses
    for _ in range(users - 1):
        summed = np.convolve(summed, masses)
    padding = np.zeros(precision)
    here, there = np.append(summed, padding), np.append(padding, summed)
    seen = float(np.maximum(here - math.exp(1) * there, 0).sum())
    promised = (1 + math.exp(1)) * users * two_sided_tail(1 / users, rate, bound)
    assert 0 < seen <= promised


def test_whether_a_draw_beyond_the_cut_is_refused_depends_on_the_reward() -> None:
    # So no text may call the refusal independent of rewards; δ covers it, as above.
    cut = truncation(cohort("dist-dp", 400, 320))
    least, most = cut.allowed(1)
    noise = cut.bound + 1
    assert least <= 0 + noise <= most
    assert cut.precision + noise > most
    assert "whatever its rewards" not in str(inspect.getmodule(truncation).__doc__)


def test_cuts_of_pure_promises_add_up() -> None:
    asked = cohort("dist-dp", 400, 320)
    assert added_delta([asked], 3, 3.0) == 3 * truncation(asked).privacy_delta


@pytest.mark.parametrize("name", ["dist-rdp", "dist-cdp"])
def test_cuts_of_curves_cost_what_the_total_makes_of_them(name: str) -> None:
    asked = cohort(name, 400, 320)
    alone = asked.guarantee().approximate(1e-6)
    once = truncation(asked).privacy_delta
    assert added_delta([asked], 1, alone) == pytest.approx(float(once), rel=1e-2)
    p = float(once) / (1 + math.exp(alone))
    together = (1 + math.exp(alone + 4)) * 3 * p
    assert added_delta([asked], 3, alone + 4) == pytest.approx(together, rel=1e-2)
