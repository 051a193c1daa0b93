from __future__ import annotations

import dataclasses
from fractions import Fraction

import pytest

from tests.support.play import Field
from wallflower.strategy.bandit.index import IndexPolicy
from wallflower.strategy.bandit.spec import PolicySpec

SPEC = PolicySpec(
    policy="dp-imed",
    arms=3,
    horizon=20_000,
    mechanism="dist-dp",
    epsilon=Fraction(1, 2),
)
BOTH = pytest.mark.parametrize("name", ["dp-klucb", "dp-imed"])


def policy_named(name: str, **changes: object) -> IndexPolicy:
    return IndexPolicy(dataclasses.replace(SPEC, policy=name, **changes))  # type: ignore[arg-type]


@BOTH
def test_every_arm_is_asked_once_before_any_choice(name: str) -> None:
    size = {"dp-klucb": 8, "dp-imed": 40}[name]  # 4/ε, 2 ln T / ε
    next_cohorts = policy_named(name).next_cohorts()
    assert [(w.arm, w.size) for w in next_cohorts] == [(0, size), (1, size), (2, size)]


@BOTH
def test_first_cohorts_leave_most_of_a_small_budget(name: str) -> None:
    next_cohorts = policy_named(name, user_budget=500).next_cohorts()
    assert sum(cohort_request.size for cohort_request in next_cohorts) <= 500 / 8


@BOTH
def test_a_cohort_of_who_is_left_is_the_last(name: str) -> None:
    # Two arms as good as each other: whoever was not asked last is due again.
    policy = policy_named(name, ratio=Fraction(2), first_batch=8)
    field = Field(policy.spec, (0.8, 0.8, 0.4))
    while (next_cohorts := policy.next_cohorts())[0].size in {
        8 * 2**k for k in range(20)
    }:
        policy.observe(
            [field.outcome(cohort_request) for cohort_request in next_cohorts]
        )
    policy.observe([field.outcome(cohort_request) for cohort_request in next_cohorts])
    assert policy.finished == "horizon"


@BOTH
def test_most_users_get_the_best_arm(name: str) -> None:
    policy = policy_named(name)
    Field(policy.spec, (0.2, 0.8, 0.4), seed=3).play(policy)
    users = [view.users for view in policy.arms()]
    assert policy.finished == "horizon"
    assert users[1] > 0.9 * sum(users)
    assert sum(users) <= SPEC.horizon
    assert policy.assignment(5) == {1: 5}


@BOTH
def test_an_arms_cohorts_double(name: str) -> None:
    policy = policy_named(name, ratio=Fraction(2), first_batch=8)
    field = Field(policy.spec, (0.2, 0.8, 0.4))
    sizes: dict[int, list[int]] = {0: [], 1: [], 2: []}
    while next_cohorts := policy.next_cohorts():
        for cohort_request in next_cohorts:
            sizes[cohort_request.arm].append(cohort_request.size)
        policy.observe(
            [field.outcome(cohort_request) for cohort_request in next_cohorts]
        )
    last = sizes[1].pop()  # who is left, rounded to six bits
    for row in sizes.values():
        assert row == [8 * 2**k for k in range(len(row))]
    assert last < 2 * sizes[1][-1]
    assert 0.96 * SPEC.horizon < policy.users <= SPEC.horizon


@BOTH
def test_cohorts_grow_by_the_configured_ratio(name: str) -> None:
    spec = dataclasses.replace(SPEC, policy=name, ratio=Fraction(3, 2), first_batch=10)
    policy = IndexPolicy(spec)
    field = Field(policy.spec, (0.2, 0.8, 0.4))
    sizes = []
    while next_cohorts := policy.next_cohorts():
        sizes += [
            cohort_request.size
            for cohort_request in next_cohorts
            if cohort_request.arm == 1
        ]
        policy.observe(
            [field.outcome(cohort_request) for cohort_request in next_cohorts]
        )
    assert sizes[:6] == [10, 15, 23, 34, 51, 76]


@BOTH
def test_a_void_cohort_is_wished_again_at_a_smaller_wrap_probability(
    name: str,
) -> None:
    policy = policy_named(name, first_batch=8)
    first = policy.next_cohorts()
    field = Field(policy.spec, (0.2, 0.8, 0.4))
    policy.observe(
        [
            field.outcome(cohort_request)
            for cohort_request in first
            if cohort_request.arm != 2
        ]
    )
    again = policy.next_cohorts()
    assert [(cohort_request.arm, cohort_request.size) for cohort_request in again] == [
        (2, 8)
    ]
    assert again[0].wrap_probability < first[2].wrap_probability
    assert policy.arms()[2].asked == 8


@BOTH
def test_a_void_cohort_leaves_its_arms_interval_as_it_was(name: str) -> None:
    # Whether a cohort is void may depend on earlier sums: it must choose no test.
    policy = policy_named(name, first_batch=200)
    field = Field(policy.spec, (0.2, 0.8, 0.4))
    policy.observe(
        [field.outcome(cohort_request) for cohort_request in policy.next_cohorts()]
    )
    before, (asked,) = policy.arms(), policy.next_cohorts()
    policy.observe([])
    after = policy.arms()[asked.arm]
    assert after.asked > before[asked.arm].asked
    assert (after.lower, after.upper) == (
        before[asked.arm].lower,
        before[asked.arm].upper,
    )


@BOTH
def test_intervals_contain_the_true_means(name: str) -> None:
    policy = policy_named(name)
    means = (0.3, 0.7, 0.5)
    Field(policy.spec, means, seed=1).play(policy)
    for view, mean in zip(policy.arms(), means, strict=True):
        assert view.lower <= mean <= view.upper


@BOTH
def test_the_budget_of_users_ends_the_experiment(name: str) -> None:
    policy = policy_named(name, user_budget=500)
    Field(policy.spec, (0.2, 0.8, 0.4)).play(policy)
    assert policy.finished == "budget"
    assert policy.users <= 500


def test_local_noise_makes_klucb_explore_more() -> None:
    users = {}
    for mechanism in ("central-dp", "local-dp"):
        policy = policy_named("dp-klucb", mechanism=mechanism)
        Field(policy.spec, (0.2, 0.8, 0.4), seed=2).play(policy)
        users[mechanism] = policy.arms()[0].users
    assert users["local-dp"] > users["central-dp"]
