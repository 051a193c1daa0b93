from __future__ import annotations

import dataclasses
from fractions import Fraction

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


def policy_with(**changes: object) -> IndexPolicy:
    return IndexPolicy(dataclasses.replace(SPEC, **changes))  # type: ignore[arg-type]


def test_every_arm_is_asked_once_before_any_choice() -> None:
    size = 40  # 2 ln T / ε
    next_cohorts = policy_with().next_cohorts()
    assert [(w.arm, w.size) for w in next_cohorts] == [(0, size), (1, size), (2, size)]


def test_a_cohort_of_who_is_left_is_the_last() -> None:
    # Two arms as good as each other: whoever was not asked last is due again.
    policy = policy_with(ratio=Fraction(2), first_batch=8)
    field = Field(policy.spec, (0.8, 0.8, 0.4))
    while (next_cohorts := policy.next_cohorts())[0].size in {
        8 * 2**k for k in range(20)
    }:
        policy.observe(
            [field.outcome(cohort_request) for cohort_request in next_cohorts]
        )
    policy.observe([field.outcome(cohort_request) for cohort_request in next_cohorts])
    assert policy.finished == "horizon"


def test_most_users_get_the_best_arm() -> None:
    policy = policy_with()
    Field(policy.spec, (0.2, 0.8, 0.4), seed=3).play(policy)
    users = [view.users for view in policy.arms()]
    assert policy.finished == "horizon"
    assert users[1] > 0.9 * sum(users)
    assert sum(users) <= SPEC.horizon
    assert policy.assignment(5) == {1: 5}


def test_an_arms_cohorts_double() -> None:
    policy = policy_with(ratio=Fraction(2), first_batch=8)
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


def test_cohorts_grow_by_the_configured_ratio() -> None:
    spec = dataclasses.replace(SPEC, ratio=Fraction(3, 2), first_batch=10)
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


def test_a_void_cohort_is_requested_again_at_a_smaller_wrap_probability() -> None:
    policy = policy_with(first_batch=8)
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


def test_a_void_cohort_leaves_its_arms_interval_as_it_was() -> None:
    # Whether a cohort is void may depend on earlier sums: it must choose no test.
    policy = policy_with(first_batch=200)
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


def test_intervals_contain_the_true_means() -> None:
    policy = policy_with()
    means = (0.3, 0.7, 0.5)
    Field(policy.spec, means, seed=1).play(policy)
    for view, mean in zip(policy.arms(), means, strict=True):
        assert view.lower <= mean <= view.upper


def test_local_noise_makes_it_explore_more() -> None:
    users = {}
    for mechanism in ("central-dp", "local-dp"):
        policy = policy_with(mechanism=mechanism)
        Field(policy.spec, (0.2, 0.8, 0.4), seed=2).play(policy)
        users[mechanism] = policy.arms()[0].users
    assert users["local-dp"] > users["central-dp"]
