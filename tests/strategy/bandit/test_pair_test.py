from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from wallflower.strategy.bandit.cells import (
    Delivered,
    Doubles,
    NoiseBound,
    sampling,
    unit_cells,
)
from wallflower.strategy.bandit.confidence import confidence_for
from wallflower.strategy.bandit.failure_budget import Shares
from wallflower.strategy.bandit.pair_test import ExponentPlan, PairDesign
from wallflower.strategy.bandit.sequential_test import SequentialTest
from wallflower.strategy.bandit.spec import PolicySpec

EPSILON = 1.0
NOISELESS = NoiseBound.of(lambda argument: 0.0)
GRID = (0.0, 0.03, 0.1, 0.3, 0.5, 0.7, 0.9, 0.97, 1.0)
PAIRS = [pair for pair in itertools.product(GRID, GRID) if pair[0] <= pair[1]]


def laplace(argument: float) -> float:
    """Log-MGF of the discrete Laplace law at g = 1."""
    decay = math.exp(-EPSILON)
    if decay * math.exp(argument) >= 1:
        return math.inf
    return 2 * math.log1p(-decay) - sum(
        math.log1p(-decay * math.exp(sign * argument)) for sign in (1, -1)
    )


LAPLACE = NoiseBound.of(laplace)


def noised_law(users: int, mean: float) -> tuple[Doubles, Doubles]:
    """Values and probabilities of a noised sum, to within 1e-12."""
    noise = np.arange(-28, 29)
    decay = math.exp(-EPSILON)
    mass = (1 - decay) / (1 + decay) * decay ** np.abs(noise)
    law = np.convolve(stats.binom.pmf(np.arange(users + 1), users, mean), mass)
    return np.arange(-28, users + 29).astype(float), law


def drop_rates(design: PairDesign, users: int, noise: NoiseBound | None) -> list[float]:
    """P(the better arm falls) for every pair of means, over the whole law."""
    side = Delivered(np.array([float(users)]), (noise,))
    values = np.arange(users + 1.0) if noise is None else noised_law(users, 0.5)[0]
    one, other = (part.ravel()[:, None] for part in np.meshgrid(values, values))
    falls = design.evidence(side, side, one, other) > design.threshold
    rates = []
    for worse, better in PAIRS:
        laws = [
            stats.binom.pmf(values, users, mean)
            if noise is None
            else noised_law(users, mean)[1]
            for mean in (worse, better)
        ]
        joint = np.outer(laws[1], laws[0]).ravel()  # meshgrid: columns lead
        rates.append(float(joint[falls].sum()))
    return rates


@pytest.mark.parametrize("threshold", [0.7, 2.0, 4.0])
@pytest.mark.parametrize("users", [1, 2, 7, 25])
@pytest.mark.parametrize("noise", [None, LAPLACE], ids=["exact", "noised"])
def test_a_better_arm_falls_with_at_most_the_stated_probability(
    users: int, threshold: float, noise: NoiseBound | None
) -> None:
    # Every outcome enumerated: no sampling error, so no false alarm.
    design = PairDesign.planned([users], [noise or NOISELESS], threshold)
    assert max(drop_rates(design, users, noise)) <= math.exp(-threshold)


def test_a_test_that_forgets_the_noise_breaks_the_promise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(NoiseBound, "__call__", lambda self, at: np.zeros(at.shape))
    design = PairDesign.planned([2], [NOISELESS], 2.0)
    assert max(drop_rates(design, 2, LAPLACE)) > math.exp(-2)


SMALL = PolicySpec(
    policy="elimination",
    arms=2,
    horizon=60,
    mechanism="non-private",
    epsilon=Fraction(1),
    failure_probability=Fraction(1, 2),
    ratio=Fraction(3, 2),
    first_batch=2,
).resolved()


def ever_falls(evidence: SequentialTest, batches: int) -> list[float]:
    """P(the better arm falls after some batch), for every pair of means, exactly."""
    heard = evidence.planned(batches)
    sizes = [facts.size for ((facts, _),) in heard]
    ranges = [np.arange(size + 1.0) for size in sizes]
    paths = np.array(list(itertools.product(*ranges, *ranges)))
    one, other = paths[:, :batches], paths[:, batches:]
    falls = np.zeros(len(paths), dtype=np.bool_)
    for batch in range(1, batches + 1):
        sides = ((heard[:batch], sums[:, :batch]) for sums in (one, other))
        falls |= evidence.compare(batch, *sides).falls
    rates = []
    for worse, better in PAIRS:
        chance = np.prod(stats.binom.pmf(one, sizes, worse), axis=1)
        chance *= np.prod(stats.binom.pmf(other, sizes, better), axis=1)
        rates.append(float(chance[falls].sum()))
    return rates


def test_a_better_arm_ever_falls_with_at_most_p() -> None:
    # Every path of three batches, each with a look at the sums.
    rates = ever_falls(SequentialTest(SMALL), 3)
    assert 0 < max(rates) <= float(SMALL.failure_probability)


def test_weights_that_sum_to_more_than_one_break_the_promise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Shares, "weight", lambda self, batch: Fraction(1))
    rates = ever_falls(SequentialTest(SMALL), 2)
    assert max(rates) > float(SMALL.failure_probability)


@pytest.mark.parametrize("epsilon", ["0.1", "10"])
@pytest.mark.parametrize("mean", [0.01, 0.5, 0.95])
def test_what_falls_by_the_aim_of_its_batch_alone_falls(
    epsilon: str, mean: float
) -> None:
    spec = PolicySpec("elimination", 4, 10**6, "dist-dp", Fraction(epsilon)).resolved()
    evidence, batch = SequentialTest(spec), 9
    heard = evidence.planned(batch)
    side = evidence.delivered(heard, batch)
    threshold = -math.log(spec.shares.pair(batch, spec.arms))
    alone = PairDesign.mixed({ExponentPlan.at(side, threshold): 0.0}, side, threshold)
    leads = np.geomspace(1e-3, 0.5, 400)[:, None]
    lower = mean - (leads if mean > 0.5 else 0 * leads)
    leading, trailing = (lower + leads) * side.users, lower * side.users
    by_itself = alone.evidence(side, side, leading, trailing) > threshold
    mixed = evidence.compare(batch, (heard, leading), (heard, trailing)).falls
    assert by_itself.any()
    assert mixed[by_itself].all()
    assert mixed.sum() > by_itself.sum()  # neighbouring aims add something


def test_aims_of_other_batches_add_what_a_union_over_batches_would_lose() -> None:
    spec = PolicySpec("elimination", 4, 10**7, "dist-dp", Fraction(1)).resolved()
    evidence, batch = SequentialTest(spec), 12
    heard = evidence.planned(batch)
    side = evidence.delivered(heard, batch)
    threshold = -math.log(spec.shares.pair(batch, spec.arms))
    alone = PairDesign.mixed({ExponentPlan.at(side, threshold): 0.0}, side, threshold)
    lead = evidence.lead_needed(batch, 0.5)
    leading, trailing = ((0.5 + sign * lead / 2) * side.users[None] for sign in (1, -1))
    assert alone.evidence(side, side, leading, trailing)[0] < threshold - 0.8


def test_a_second_cohort_may_be_sized_by_the_first_sums() -> None:
    # The leader's friend looks after the first cohorts, and chooses 1 or 9 users for
    # the second ones: exponents are those of the plan, so nothing is gained by it.
    threshold, first = 1.5, 4
    plans = [
        Delivered(np.array(sizes), (NOISELESS,) * len(sizes))
        for sizes in ([4.0], [4.0, 6.0])
    ]
    aims = {
        ExponentPlan.at(plan, threshold + math.log(2)): -math.log(2) for plan in plans
    }
    early, design = (PairDesign.mixed(aims, plan, threshold) for plan in plans)
    chances: dict[int, dict[tuple[int, int], list[float]]] = {}
    for second in (1, 9):
        side = Delivered(np.array([4.0, float(second)]), (None, None))
        sums = np.arange(second + 1.0)
        one, other = (part.ravel() for part in np.meshgrid(sums, sums))
        laws = [
            np.outer(
                stats.binom.pmf(sums, second, better),
                stats.binom.pmf(sums, second, worse),
            ).ravel()
            for worse, better in PAIRS
        ]
        chances[second] = {}
        for start in itertools.product(range(first + 1), range(first + 1)):
            falls = (
                design.evidence(
                    side,
                    side,
                    np.column_stack([np.full(one.shape, start[0]), one]),
                    np.column_stack([np.full(other.shape, start[1]), other]),
                )
                > threshold
            )
            at_once = np.array([start[0]]), np.array([start[1]])
            side_now = Delivered(np.array([4.0]), (None,))
            fell = early.evidence(side_now, side_now, *(s[None] for s in at_once))
            chances[second][start] = [
                1.0 if fell[0] > threshold else float(law[falls].sum()) for law in laws
            ]
    for place, (worse, better) in enumerate(PAIRS):
        total = sum(
            stats.binom.pmf(one, first, worse)
            * stats.binom.pmf(other, first, better)
            * max(chances[second][one, other][place] for second in (1, 9))
            for one, other in chances[1]
        )
        assert total <= math.exp(-threshold)


def test_a_cell_is_paid_for_at_its_most_expensive_mean() -> None:
    design = PairDesign.planned([30, 70], [LAPLACE, LAPLACE], 5.0)
    one = Delivered(np.array([30.0, 50.0]), (LAPLACE, LAPLACE))
    other = Delivered(np.array([0.0, 70.0]), (None, LAPLACE))
    psi = design.compensator(design.leader_price(one), design.rival_price(other))
    grid = unit_cells()
    for part in np.linspace(0, 1, 7):
        means = np.broadcast_to(grid.low + part * (grid.high - grid.low), psi.shape)
        exact = (
            sampling(one.users, design.leading, means)
            + sampling(other.users, design.trailing, means)
            + one.noise(design.leading)
            + other.noise(design.trailing)
        )
        assert (psi + design.log_weights[:, None] >= exact).all()


def test_leaders_have_exponents_above_zero_and_rivals_below() -> None:
    design = PairDesign.planned([3, 500], [LAPLACE, NOISELESS], 9.0)
    assert (design.leading >= 0).all()
    assert (design.trailing <= 0).all()
    assert np.exp(design.log_weights).sum() <= 1 + 1e-12


def test_cells_cover_every_mean() -> None:
    grid = unit_cells()
    assert (grid.low[0], grid.high[-1]) == (0.0, 1.0)
    assert (grid.low[1:] == grid.high[:-1]).all()
    assert ((grid.low <= grid.middle) & (grid.middle <= grid.high)).all()
    at = grid.containing(np.array([-1.0, 0.0, 0.3, 1.0, 2.0]))
    assert at.tolist() == [0, 0, at[2], len(grid.low) - 1, len(grid.low) - 1]


def test_sampling_is_exact_for_means_a_breath_below_one() -> None:
    # ln(1 − μ(1 − e⁻²⁰)) with 1 − μ = 2⁻³⁴: ln1p(−μ(1 − e⁻²⁰)) would lose half of the
    # digits. 2⁻³⁴ + (1 − 2⁻³⁴)e⁻²⁰ = e⁻²⁰(1 − 2⁻³⁴ + 2⁻³⁴e²⁰).
    exact = -20 + math.log1p(2.0**-34 * math.expm1(20))
    found = sampling(np.array([1.0]), np.array([-20.0]), np.array(1 - 2.0**-34))
    assert float(found) == pytest.approx(exact, rel=1e-15)


@pytest.mark.parametrize(
    ("mechanism", "epsilon"),
    [
        ("non-private", "1"),
        ("dist-dp", "99"),
        ("dist-dp", "1"),
        ("dist-dp", "0.1"),
        ("dist-cdp", "1"),
        ("local-dp", "1"),
    ],
)
@pytest.mark.parametrize("batch", [2, 8, 16])
def test_it_needs_at_most_the_lead_of_the_pair_radius_and_less_near_zero(
    mechanism: str, epsilon: str, batch: int
) -> None:
    spec = PolicySpec(
        policy="elimination",
        arms=4,
        horizon=10**7,
        mechanism=mechanism,
        epsilon=Fraction(epsilon),
        ratio=Fraction(3, 2),
        first_batch=20,
    ).resolved()
    evidence = SequentialTest(spec)
    heard = evidence.planned(batch)
    users = evidence.delivered(heard, batch).users
    radius = confidence_for(spec).pair(heard, batch).radius

    def falls(low: float, high: float) -> bool:
        sides = ((heard, (users * mean)[None]) for mean in (high, low))
        return bool(evidence.compare(batch, *sides).falls[0])

    lead = 1.05 * radius
    assert falls(0.5 - lead / 2, 0.5 + lead / 2)
    if batch == 16 and mechanism != "local-dp" and epsilon != "0.1":
        assert falls(0.01, 0.01 + 0.25 * radius)


def test_a_batch_that_convinces_nobody_is_judged_in_its_likeliest_cells_alone() -> None:
    spec = PolicySpec("elimination", 4, 10**6, "dist-dp", Fraction(1)).resolved()
    evidence = SequentialTest(spec)
    heard = evidence.planned(6)
    users = evidence.delivered(heard, 6).users
    leaders, rivals = (np.outer(means, users) for means in ((0.3, 0.5), (0.29, 0.5)))
    found = evidence.compare(6, (heard, leaders), (heard, rivals))
    assert not found.falls.any()
    assert not evidence._pairs  # which would have taken exponents for 2,000 cells
    leaders[0] += 0.6 * users
    assert evidence.compare(6, (heard, leaders), (heard, rivals)).falls.tolist() == [
        True,
        False,
    ]
    assert evidence._pairs


def test_numbers_stay_finite_at_the_largest_cohorts() -> None:
    sizes = [7]
    while sizes[-1] < 10**10:
        sizes.append(math.ceil(1.5 * sizes[-1]))
    design = PairDesign.planned(sizes, [NOISELESS] * len(sizes), 20.0)
    users = np.array(sizes, dtype=float)
    side = Delivered(users, (None,) * len(sizes))
    for mean in (0.0, 1e-12, 1e-9, 0.5, 1 - 1e-9, 1.0):
        sums = (users * mean)[None]
        found = design.evidence(side, side, sums, sums)
        assert np.isfinite(found).all()
        assert found[0] <= 1e-3


def test_arms_that_were_never_heard_show_nothing() -> None:
    design = PairDesign.planned([20, 30], [LAPLACE, LAPLACE], 3.0)
    nothing = Delivered(np.zeros(2), (None, None))
    found = design.evidence(nothing, nothing, np.zeros((1, 2)), np.zeros((1, 2)))
    assert found[0] <= 0


def test_a_noise_outside_its_domain_shows_nothing() -> None:
    narrow = NoiseBound.of(lambda at: math.inf if abs(at) > 1e-3 else at * at)
    design = PairDesign.planned([20], [LAPLACE], 3.0)
    side = Delivered(np.array([20.0]), (narrow,))
    found = design.evidence(side, side, np.array([[20.0]]), np.array([[0.0]]))
    assert not (found > 3.0).any()
