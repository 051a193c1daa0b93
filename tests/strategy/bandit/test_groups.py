"""Cohorts planned alike are one group: same decisions, same promise, less work."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

from wallflower.protocol.privacy.mechanism import load_mechanisms, mechanism_named
from wallflower.strategy.bandit.cells import Delivered, Doubles, NoiseBound
from wallflower.strategy.bandit.pair_test import PairDesign
from wallflower.strategy.bandit.policies import build_policy, policy_from_state
from wallflower.strategy.bandit.policy import CohortSum, Policy
from wallflower.strategy.bandit.schedule import (
    APART,
    CohortFacts,
    Grouping,
    Schedule,
    count_cohorts,
    heard_from,
)
from wallflower.strategy.bandit.sequential_test import SequentialTest
from wallflower.strategy.bandit.spec import PolicySpec
from wallflower.strategy.policy_names import POLICIES, RADII

NEARLY_ONE = Fraction(1001, 1000)
SPEC = PolicySpec(
    "elimination",
    arms=4,
    horizon=10**5,
    mechanism="dist-dp",
    epsilon=Fraction(1),
    ratio=NEARLY_ONE,
    first_batch=20,
    honest_fraction=Fraction(4, 5),
).resolved()


def apart(evidence: SequentialTest, design: PairDesign, batch: int) -> PairDesign:
    """The same exponents with a column for every cohort, as if none were grouped."""
    columns = [evidence.group_of(place) for place in range(1, batch + 1)]
    return dataclasses.replace(
        design,
        leading=design.leading[..., columns],
        trailing=design.trailing[..., columns],
    )


def side_of(evidence: SequentialTest, came: list[CohortFacts]) -> Delivered:
    """Every cohort by itself."""
    noises = tuple(
        evidence.delivered(heard_from({0: {facts: 1}}), 1).noises[0] for facts in came
    )
    users = np.array([float(facts.survivors) for facts in came])
    return Delivered(users, noises)


def grouped(evidence: SequentialTest, rows: Doubles) -> Doubles:
    groups = evidence.group_of(rows.shape[1]) + 1
    found = np.zeros((len(rows), groups))
    for place in range(rows.shape[1]):
        found[:, evidence.group_of(place + 1)] += rows[:, place]
    return found


@pytest.mark.parametrize("ratio", [NEARLY_ONE, Fraction(21, 20)])
def test_sums_of_groups_decide_what_all_cohorts_one_by_one_decide(
    ratio: Fraction,
) -> None:
    # Brute force: every cell, every cohort with its own column, several arms at once.
    spec = dataclasses.replace(SPEC, ratio=ratio)
    evidence, batch, random = SequentialTest(spec), 16, np.random.default_rng(7)
    schedule = Schedule(ratio, spec.first_batch)
    sides = []
    for lost in (0, 1):
        came = [
            CohortFacts(size, spec.floor(size), size - lost * (place % 3))
            for place in range(1, batch + 1)
            for size in (schedule.size(place),)
        ]
        sides.append(came)
    heard = [
        heard_from(
            count_cohorts(
                (), ((evidence.group_of(n), one) for n, one in enumerate(came, 1))
            )
        )
        for came in sides
    ]
    assert len(heard[0]) < batch / 2
    rows = [
        random.normal(0.3 + lead, 0.05, (12, batch))
        * [facts.survivors for facts in came]
        for lead, came in zip((0.25, 0.0), sides, strict=True)
    ]
    pairs = (
        (one, grouped(evidence, row)) for one, row in zip(heard, rows, strict=True)
    )
    found = evidence.compare(batch, *pairs)
    design = apart(evidence, evidence.design(batch, evidence.mixed(batch)), batch)
    one, other = (side_of(evidence, came) for came in sides)
    expected = design.everywhere(one, other, rows[0], rows[1]).min(axis=1)
    surely = expected > found.threshold
    assert surely.any()
    assert found.falls.tolist() == surely.tolist()
    assert found.evidence[surely] == pytest.approx(expected[surely], rel=1e-7)


def test_an_exponent_stays_what_it_is_while_its_group_fills() -> None:
    # Ville's inequality needs it: each cohort multiplies an aim's part once.
    evidence = SequentialTest(dataclasses.replace(SPEC, ratio=Fraction(21, 20)))
    late = evidence.design(40, [38])
    for batch in (1, 2, 3, 17, 39):
        early = evidence.design(batch, [38])
        seen = evidence.group_of(batch) + 1
        assert np.array_equal(early.leading, late.leading[..., :seen])
        assert np.array_equal(early.trailing, late.trailing[..., :seen])


def test_a_better_arm_ever_falls_with_at_most_p_where_batches_are_one_group() -> None:
    # Every path of four batches of 1, 2, 2 and 2 people, each with a look.
    spec = PolicySpec(
        "elimination",
        arms=2,
        horizon=60,
        mechanism="non-private",
        epsilon=Fraction(1),
        failure_probability=Fraction(1, 2),
        ratio=NEARLY_ONE,
        first_batch=1,
    ).resolved()
    evidence = SequentialTest(spec)
    sizes = [1, 2, 2, 2]
    assert [evidence.group_of(place) for place in (1, 2, 3, 4)] == [0, 1, 1, 1]
    ranges = [np.arange(size + 1.0) for size in sizes]
    paths = np.array(list(itertools.product(*ranges, *ranges)))
    one, other = paths[:, :4], paths[:, 4:]
    falls = np.zeros(len(paths), dtype=np.bool_)
    for batch in range(1, 5):
        heard = evidence.planned(batch)
        sums = (grouped(evidence, row[:, :batch]) for row in (one, other))
        falls |= evidence.compare(batch, *((heard, row) for row in sums)).falls
    rates = []
    for worse, better in ((0.0, 0.0), (0.3, 0.3), (0.5, 0.6), (0.9, 0.9), (0.1, 0.9)):
        chance = np.prod(stats.binom.pmf(one, sizes, worse), axis=1)
        chance *= np.prod(stats.binom.pmf(other, sizes, better), axis=1)
        rates.append(float(chance[falls].sum()))
    assert 0 < max(rates) <= float(spec.failure_probability)


@pytest.mark.parametrize("name", sorted(load_mechanisms()))
def test_no_level_of_the_modulus_changes_a_noise(name: str) -> None:
    # One calibration of a kind of cohort therefore serves all rounds.
    mechanism = mechanism_named(name, Fraction(1), Fraction(10))
    rare, often = (
        mechanism.for_cohort(64, 50, Fraction(1, many)).noise_log_mgf(60)
        for many in (10**9, 100)
    )
    assert [rare(x) for x in (0.001, 0.01, 0.05)] == [
        often(x) for x in (0.001, 0.01, 0.05)
    ]


@pytest.mark.parametrize("ratio", ["1.2", "1.5", "2", "4"])
def test_usual_sizes_are_each_a_group_of_their_own(ratio: str) -> None:
    grouping = Grouping(Schedule(Fraction(ratio), 28))
    assert [grouping.group_of(place) for place in range(1, 31)] == list(range(30))


def test_the_sizes_of_a_group_are_less_than_a_tenth_apart() -> None:
    schedule = Schedule(Fraction(101, 100), 3)
    grouping, sizes = Grouping(schedule), dict[int, list[int]]()
    for place in range(1, 400):
        sizes.setdefault(grouping.group_of(place), []).append(schedule.size(place))
    for number, group in sizes.items():
        assert max(group) < APART * min(group)
        assert schedule.size(grouping.first_place(number)) == min(group)
    assert len(sizes) < 50


def test_a_sum_of_noises_is_bounded_by_its_parts() -> None:
    narrow = NoiseBound.of(lambda x: x**2 if x < 0.5 else float("inf"))
    wide = NoiseBound.of(lambda x: x**2 / 2)
    both = NoiseBound.of_sum([(wide, 3), (narrow, 2)])
    exponents = np.linspace(0, 0.45, 200)
    exact = 3 * exponents**2 / 2 + 2 * exponents**2
    found = both(exponents)
    assert (found >= exact).all()
    assert found == pytest.approx(exact, rel=0.01, abs=1e-9)
    assert both.limit == narrow.limit
    assert np.isfinite(both(np.array([both.limit]))).all()
    assert np.isinf(both(np.array([0.6]))).all()
    assert both.noises == 5


# --- work that does not grow -----------------------------------------------------


def after(rounds: int, policy: str, radius: str = "tight") -> Policy:
    """A policy in the middle of a run of very many rounds alike, all arms equal."""
    spec = dataclasses.replace(
        SPEC,
        policy=policy,
        radius=radius,
        ratio=Fraction(10**6 + 1, 10**6),
        horizon=4 * 20 * 1100,
    )
    found = build_policy(spec)
    for _ in range(3):
        play(found)
    state: dict[str, Any] = json.loads(json.dumps(found.state()))
    state["batch"] = rounds
    for record in state["arms"].values():
        (kinds,) = record["groups"].values()
        for kind, (count, total) in kinds.items():
            kinds[kind] = [count * rounds // 3, str(int(total) * rounds // 3)]
        record["users"] = record["users"] * rounds // 3
        record["last"] = record["last"] * rounds // 3
    return policy_from_state(state)


def play(policy: Policy) -> None:
    """One round in which every arm gets half of the rewards."""
    policy.observe(
        [
            CohortSum(
                batch=cohort_request.batch,
                arm=cohort_request.arm,
                cohort_size=cohort_request.size,
                honest_floor=cohort_request.size * 4 // 5,
                survivors=cohort_request.size,
                precision=5,
                total=cohort_request.size * 5 // 2,
            )
            for cohort_request in policy.next_cohorts()
        ]
    )
    policy.arms()


@pytest.mark.parametrize(
    ("policy", "radius"),
    [
        *itertools.product(POLICIES[:1], RADII),
        *((name, "tight") for name in POLICIES[1:]),
    ],
)
def test_a_round_looks_at_as_much_after_a_thousand_as_after_fifty(
    policy: str, radius: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: Counter[str] = Counter()
    bound = NoiseBound.__call__

    def counted(self: NoiseBound, arguments: Doubles) -> Doubles:
        looked_at["exponents"] += arguments.size
        return bound(self, arguments)

    monkeypatch.setattr(NoiseBound, "__call__", counted)
    work = []
    for rounds in (51, 999):
        found = after(rounds, policy, radius)
        play(found)  # what is computed once is computed
        looked_at.clear()
        play(found)
        work.append((looked_at["exponents"], len(json.dumps(found.state()))))
    (early, short), (late, long) = work
    assert early > 0
    assert late <= 1.05 * early
    assert long <= 1.2 * short  # longer numbers, no more of them


def test_arms_that_were_heard_alike_are_looked_at_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[int] = []
    interval = SequentialTest.interval

    def counted(self: SequentialTest, last: int, heard: Any, sums: Doubles) -> Any:
        calls.append(len(sums))
        return interval(self, last, heard, sums)

    monkeypatch.setattr(SequentialTest, "interval", counted)
    policy = build_policy(dataclasses.replace(SPEC, arms=300, horizon=10**6))
    play(policy)
    assert calls == [256, 44]
    policy.arms()
    assert calls == [256, 44]  # nothing new came, so nothing is computed again
