"""Differences and ratios of two arms: on small cases every outcome is enumerated."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from wallflower.strategy.bandit.cells import (
    Cells,
    Delivered,
    Doubles,
    NoiseBound,
    unit_cells,
)
from wallflower.strategy.bandit.differences import (
    EVERYTHING,
    Ends,
    PairRegion,
    find_region,
)
from wallflower.strategy.bandit.pair_test import PairDesign
from wallflower.strategy.bandit.sequential_test import (
    SequentialTest,
    allowed_places,
    evidence_for,
)
from wallflower.strategy.bandit.spec import PolicySpec

GRID = (0.0, 0.03, 0.1, 0.3, 0.5, 0.7, 0.9, 0.97, 1.0)
NOISELESS = NoiseBound.of(lambda argument: 0.0)
SMALL = PolicySpec(
    policy="elimination",
    arms=2,
    horizon=60,
    mechanism="non-private",
    epsilon=Fraction(1),
    failure_probability=Fraction(1, 2),
    ratio=Fraction(3, 2),
    first_batch=8,
).resolved()
PRIVATE = PolicySpec("elimination", 4, 10**5, "dist-dp", Fraction(1)).resolved()


def rejection_rates(users: int, threshold: float, shift: float) -> list[float]:
    """P(μ_i ≤ μ_j + shift is ruled out) for every pair of means of which it is true."""
    side = Delivered(np.array([float(users)]), (None,))
    design = PairDesign.planned([users], [NOISELESS], threshold)
    design = design.within(allowed_places(shift)).shifted(shift)
    values = np.arange(users + 1.0)
    one, other = (part.ravel()[:, None] for part in np.meshgrid(values, values))
    ruled = (design.everywhere(side, side, one, other) > threshold).all(axis=1)
    return [
        float(
            np.outer(
                stats.binom.pmf(values, users, trailing),
                stats.binom.pmf(values, users, leading),
            )
            .ravel()[ruled]
            .sum()
        )
        for leading, trailing in itertools.product(GRID, GRID)
        if leading <= trailing + shift + 1e-12
    ]


@pytest.mark.parametrize("shift", [-0.4, -0.07, 0.0, 0.2, 0.6])
@pytest.mark.parametrize("users", [2, 25])
def test_a_true_bound_of_a_difference_is_ruled_out_with_at_most_its_level(
    users: int, shift: float
) -> None:
    # Every outcome enumerated: no sampling error, so no false alarm.
    assert max(rejection_rates(users, 2.0, shift)) <= math.exp(-2)


def test_a_shift_with_the_wrong_sign_breaks_the_level(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = PairDesign.means
    monkeypatch.setattr(PairDesign, "means", lambda self, sign: right(self, -sign))
    assert max(rejection_rates(25, 2.0, 0.6)) > 2 * math.exp(-2)


def regions(test: SequentialTest, users: int) -> dict[tuple[int, int], PairRegion]:
    """Compute the region of every outcome of one cohort of each of two arms."""
    heard = test.planned(1)
    found = {}
    for one, other in itertools.product(range(users + 1), repeat=2):
        rows = np.array([[float(one)]]), np.array([[float(other)]])
        found[one, other] = find_region(test, 1, (heard, heard), rows, rows)
    return found


def miss_rates(found: dict[tuple[int, int], PairRegion], users: int) -> list[float]:
    """P(difference or ratio is missed), for every pair of means."""
    rates = []
    for one, other in itertools.product(GRID, GRID):
        missed = 0.0
        for (first, second), region in found.items():
            chance = stats.binom.pmf(first, users, one)
            chance *= stats.binom.pmf(second, users, other)
            holds = within(region.difference(), one - other)
            if other:
                holds &= within(region.ratio(), one / other)
            missed += 0.0 if holds else float(chance)
        rates.append(missed)
    return rates


def within(ends: Ends, value: float) -> bool:
    lower = -math.inf if ends.lower is None else ends.lower
    upper = math.inf if ends.upper is None else ends.upper
    return lower - 1e-12 <= value <= upper + 1e-12


def test_differences_and_ratios_are_missed_with_at_most_their_levels() -> None:
    test, users = evidence_for(SMALL), 8
    rates = miss_rates(regions(test, users), users)
    assert 0 < max(rates) <= 2 * math.exp(-test.difference_threshold)


def test_the_search_finds_what_every_cell_rules_out() -> None:
    # A scan of all differences in steps of 0.01, over sums drawn once.
    test, batch = evidence_for(PRIVATE), 5
    heard = test.planned(batch)
    users = test.delivered(heard, batch).users
    generator = np.random.default_rng(26)
    for base, lead in ((0.5, 0.3), (0.1, 0.1), (0.02, 0.0)):
        one, other = (
            generator.binomial(users.astype(int), mean)[None].astype(float)
            for mean in (base + lead, base)
        )
        rows = one, other
        region = find_region(test, batch, (heard, heard), rows, rows)
        lower = region.difference().lower
        assert lower is not None
        first = next(
            shift
            for shift in np.arange(-0.995, 1, 0.01)
            if not everywhere_ruled_out(test, batch, rows, shift)
        )
        assert first - 0.01 <= lower <= first


def everywhere_ruled_out(
    test: SequentialTest, batch: int, rows: tuple[Doubles, Doubles], shift: float
) -> bool:
    """Test one difference in all cells at once, with the cells that either end leaves.

    A pair below a difference may still be above it for the other arm: both tests count.
    """
    side = test.delivered(test.planned(batch), batch)
    places = allowed_places(shift)
    design = test.design(batch, test.mixed(batch), places)
    up = design.shifted(shift).everywhere(side, side, rows[0], rows[1])[0]
    down = design.shifted(-shift).everywhere(side, side, rows[1], rows[0])[0]
    ruled = (up > test.difference_threshold) | (down > test.difference_threshold)
    return bool(ruled.all())


def test_what_is_ruled_out_stays_ruled_out_for_smaller_differences() -> None:
    test = evidence_for(PRIVATE)
    heard = test.planned(8)
    users = test.delivered(heard, 8).users
    one, other = (heard, 0.5 * users[None]), (heard, 0.4 * users[None])
    found = [
        float(test.compare(8, one, other, shift=shift).evidence[0])
        for shift in (-0.5, -0.2, -0.1, 0.0)
    ]
    assert found == sorted(found, reverse=True)


def test_an_arm_that_falls_at_the_level_of_differences_has_one_above_zero() -> None:
    test = evidence_for(PRIVATE)
    heard = test.planned(9)
    users = test.delivered(heard, 9).users
    rows = 0.62 * users[None], 0.4 * users[None]
    verdict = test.compare(9, (heard, rows[0]), (heard, rows[1]))
    assert verdict.evidence[0] > test.difference_threshold
    lower = find_region(test, 9, (heard, heard), rows, rows).difference().lower
    assert lower is not None
    assert lower > 0


def test_a_difference_is_known_better_than_two_intervals_say() -> None:
    test, batch = evidence_for(PRIVATE), 9
    heard = test.planned(batch)
    users = test.delivered(heard, batch).users
    rows = 0.5 * users[None], 0.4 * users[None]
    ends = find_region(test, batch, (heard, heard), rows, rows).difference()
    one, other = (test.interval(batch, heard, row) for row in rows)
    assert ends.lower is not None
    assert ends.upper is not None
    apart = float(one[2][0] - other[1][0]) - float(one[1][0] - other[2][0])
    assert ends.upper - ends.lower < 0.8 * apart


def test_a_ratio_has_no_upper_end_where_control_may_be_zero() -> None:
    test = evidence_for(PRIVATE)
    heard = test.planned(5)
    users = test.delivered(heard, 5).users
    rows = 0.3 * users[None], 0 * users[None]
    ratio = find_region(test, 5, (heard, heard), rows, rows).ratio()
    assert ratio.upper is None
    assert ratio.lower is not None
    assert ratio.lower > 1


def test_a_ratio_in_a_range_below_zero_is_not_bounded() -> None:
    assert EVERYTHING.ratio(-0.5) == Ends(None, None)
    assert EVERYTHING.ratio() == Ends(0.0, None)


def test_a_ratio_counts_from_the_zero_of_its_unit() -> None:
    # Means of 10 and 20 in a range from 5 to 25: parts 0.25 and 0.75, offset 0.25.
    one = np.array([0.5])
    region = PairRegion(Cells(one, one), np.array([0.5]), np.array([0.5]))
    assert region.ratio(0.25) == Ends(2.0, 2.0)


def test_the_range_of_ratios_holds_every_pair_of_a_region() -> None:
    generator = np.random.default_rng(27)
    for _ in range(50):
        low, width = generator.uniform(0, 0.9), generator.uniform(0, 0.1)
        cells = Cells(np.array([low]), np.array([low + width]))
        ends = np.sort(generator.uniform(-1, 1, 2) * cells.widest)
        region = PairRegion(cells, ends[:1], ends[1:])
        middles = generator.uniform(low, low + width, 200)
        shifts = generator.uniform(ends[0], ends[1], 200)
        allowed = np.abs(shifts) <= 2 * np.minimum(middles, 1 - middles)
        one, other = middles + shifts / 2, middles - shifts / 2
        for offset in (0.0, 0.3):
            ratios = (one + offset)[allowed] / (other + offset)[allowed]
            assert all(within(region.ratio(offset), float(each)) for each in ratios)


def test_the_levels_of_all_differences_sum_to_less_than_p() -> None:
    arms = PRIVATE.arms
    level = PRIVATE.shares.difference(arms)
    assert arms * (arms - 1) * level < PRIVATE.failure_probability


def test_cells_without_room_for_a_shift_are_left_out() -> None:
    shift = 0.5
    cells = unit_cells().at(allowed_places(shift)).allowing(shift)
    assert cells.low[0] == shift / 2
    assert cells.high[-1] == 1 - shift / 2
    assert replace(cells).middle.min() >= shift / 2
