from __future__ import annotations

import dataclasses
import json
import math
from fractions import Fraction
from typing import Any

import pytest

from tests.support.play import Field
from wallflower.protocol.errors import InputError
from wallflower.strategy.bandit.confidence import confidence_for
from wallflower.strategy.bandit.elimination import Elimination
from wallflower.strategy.bandit.policies import policy_from_state
from wallflower.strategy.bandit.policy import CohortRequest, CohortSum
from wallflower.strategy.bandit.schedule import CohortFacts
from wallflower.strategy.bandit.sequential_test import (
    SequentialTest,
    Verdict,
    evidence_for,
)
from wallflower.strategy.bandit.spec import PolicySpec

SPEC = PolicySpec(
    policy="elimination",
    arms=4,
    horizon=100_000,
    mechanism="dist-dp",
    epsilon=Fraction(1),
    failure_probability=Fraction(1, 10),
)
MEANS = (0.2, 0.9, 0.5, 0.4)


def answer(
    cohort_request: CohortRequest,
    mean: float,
    *,
    missing: int = 0,
    floor: int | None = None,
) -> CohortSum:
    """A noiseless cohort with the given mean: what matters here are decisions."""
    survivors = cohort_request.size - missing
    precision = 1000
    total = round(mean * survivors * precision)
    floor = cohort_request.size if floor is None else floor
    return CohortSum(
        cohort_request.batch,
        cohort_request.arm,
        cohort_request.size,
        floor,
        survivors,
        precision,
        total,
    )


def test_every_active_arm_gets_one_cohort_of_the_same_size() -> None:
    next_cohorts = Elimination(SPEC).next_cohorts()
    assert [cohort_request.arm for cohort_request in next_cohorts] == [0, 1, 2, 3]
    assert len({cohort_request.size for cohort_request in next_cohorts}) == 1
    assert {cohort_request.batch for cohort_request in next_cohorts} == {1}


@pytest.mark.parametrize(("radius", "part"), [("paper", 1 / 4), ("tight", 6 / 7)])
def test_the_wrap_probability_shrinks_with_the_batch_number(
    radius: str, part: float
) -> None:
    policy = Elimination(dataclasses.replace(SPEC, radius=radius))
    first = policy.next_cohorts()[0].wrap_probability
    policy.observe([])
    second = policy.next_cohorts()[0].wrap_probability
    assert float(second / first) == pytest.approx(part, rel=1e-3)


def test_the_first_batch_is_eight_of_the_smallest_that_could_separate_arms() -> None:
    # Smallest n with radius ≤ 1: 90, found by hand for K = 10, p = 0.1.
    spec = dataclasses.replace(
        SPEC, arms=10, epsilon=Fraction(1, 10), horizon=1_000_000
    )
    assert Elimination(spec).spec.first_batch == 8 * 90


def test_the_best_arm_wins_and_the_reasons_say_why() -> None:
    policy = Elimination(SPEC)
    Field(policy.spec, MEANS).play(policy)
    assert policy.finished == "winner"
    views = policy.arms()
    assert [view.active for view in views] == [False, True, False, False]
    assert views[0].reason is not None
    assert views[0].reason.rival == 1
    assert views[0].eliminated_in is not None
    assert views[1].reason is None
    for view, mean in zip(views, MEANS, strict=True):
        assert view.lower <= mean <= view.upper


def test_the_chance_of_such_sums_counts_the_choice_of_the_leader_and_is_rounded_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy = Elimination(SPEC)
    verdicts: list[Verdict] = []
    compare = SequentialTest.compare

    def noted(*asked: Any) -> Verdict:
        verdicts.append(compare(*asked))
        return verdicts[-1]

    monkeypatch.setattr(SequentialTest, "compare", noted)
    while not policy.finished:
        next_cohorts = policy.next_cohorts()
        policy.observe(
            [
                answer(cohort_request, MEANS[cohort_request.arm])
                for cohort_request in next_cohorts
            ]
        )
    reasons = [view.reason for view in policy.arms() if view.reason]
    found = [
        float(evidence)
        for verdict in verdicts
        for evidence in verdict.evidence[verdict.falls]
    ]
    assert len(reasons) == len(found) == 3
    printed = sorted(reason.chance for reason in reasons if reason.chance)
    bounds = sorted(3 * math.exp(-evidence) for evidence in found)
    for shown, bound in zip(printed, bounds, strict=True):
        assert bound <= shown <= 1.1 * bound


@pytest.mark.parametrize(
    ("radius", "share", "falls"),
    [
        ("tight", 0.95, False),  # tilts and a mean below ½ save 3 %
        ("tight", 1.01, True),
        ("paper", 0.99, False),
        ("paper", 1.01, True),
    ],
)
def test_an_arm_falls_when_it_trails_by_more_than_the_radius_and_not_before(
    radius: str, share: float, falls: bool
) -> None:
    policy = Elimination(
        dataclasses.replace(SPEC, arms=2, radius=radius, first_batch=400)
    )
    next_cohorts = policy.next_cohorts()
    facts = CohortFacts(
        next_cohorts[0].size, next_cohorts[0].size, next_cohorts[0].size
    )
    confidence = confidence_for(policy.spec)
    allowed = (
        evidence_for(policy.spec).lead_needed(1, 0.5)
        if radius == "tight"
        else 2 * confidence.paper(facts, 1, 2)
    )
    assert 0.02 < allowed < 0.5
    policy.observe(
        [answer(next_cohorts[0], 0.5), answer(next_cohorts[1], 0.5 - share * allowed)]
    )
    assert policy.arms()[1].active is not falls


def test_the_paper_radius_needs_more_users_than_the_tight_one() -> None:
    tight = Elimination(SPEC)
    paper = Elimination(dataclasses.replace(SPEC, radius="paper"))
    for policy in (tight, paper):
        Field(policy.spec, MEANS).play(policy)
        assert policy.finished == "winner"
    assert tight.users < paper.users


def test_the_paper_schedule_is_powers_of_two() -> None:
    policy = Elimination(dataclasses.replace(SPEC, radius="paper"))
    sizes = []
    for _ in range(5):
        sizes.append(policy.next_cohorts()[0].size)
        policy.observe([])
    assert sizes == [2, 4, 8, 16, 32]


def test_a_batch_that_does_not_fit_the_horizon_is_never_requested() -> None:
    policy = Elimination(dataclasses.replace(SPEC, horizon=200))
    while next_cohorts := policy.next_cohorts():
        assert (
            policy.users + sum(cohort_request.size for cohort_request in next_cohorts)
            <= 200
        )
        policy.observe([answer(cohort_request, 0.5) for cohort_request in next_cohorts])
    assert policy.finished == "horizon"


def test_a_horizon_too_short_for_one_batch_ends_before_it_begins() -> None:
    policy = Elimination(dataclasses.replace(SPEC, horizon=8))
    assert policy.finished == "horizon"
    assert policy.next_cohorts() == ()


def test_stop_ends_it_from_outside_and_keeps_the_first_reason() -> None:
    policy = Elimination(SPEC)
    policy.stop("no users left")
    policy.stop("winner")
    assert policy.finished == "no users left"
    assert policy.next_cohorts() == ()


def test_a_void_cohort_leaves_its_arm_active_and_its_users_used() -> None:
    policy = Elimination(SPEC)
    next_cohorts = policy.next_cohorts()
    policy.observe([answer(w, MEANS[w.arm]) for w in next_cohorts if w.arm != 0])
    view = policy.arms()[0]
    assert view.active
    assert view.estimate is None
    assert (view.lower, view.upper) == (0.0, 1.0)
    assert (view.users, view.asked) == (0, next_cohorts[0].size)


def test_an_arm_once_void_is_compared_by_the_cohorts_it_has() -> None:
    policy = Elimination(SPEC)
    policy.observe([answer(w, 0.5) for w in policy.next_cohorts() if w.arm != 0])
    while next_cohorts := policy.next_cohorts():
        policy.observe([answer(w, (0.1, 0.9, 0.1, 0.1)[w.arm]) for w in next_cohorts])
    assert [view.active for view in policy.arms()] == [False, True, False, False]


def test_fewer_survivors_make_an_arm_harder_to_drop() -> None:
    full, thin = Elimination(SPEC), Elimination(SPEC)
    for policy, missing in ((full, 0.0), (thin, 0.9)):
        while next_cohorts := policy.next_cohorts():
            outcomes = [
                answer(
                    cohort_request,
                    0.9 if cohort_request.arm == 1 else 0.5,
                    missing=int(cohort_request.size * missing)
                    if cohort_request.arm
                    else 0,
                    floor=1 + cohort_request.size // 20,
                )
                for cohort_request in next_cohorts
            ]
            policy.observe(outcomes)
    dropped = [policy.arms()[2].eliminated_in for policy in (full, thin)]
    assert dropped[0] is not None
    assert dropped[1] is not None
    assert dropped[0] < dropped[1]


def test_a_lower_floor_means_more_noise_and_wider_intervals() -> None:
    spec = dataclasses.replace(SPEC, first_batch=1000)
    narrow, wide = Elimination(spec), Elimination(spec)
    for policy, floor in ((narrow, None), (wide, 100)):
        policy.observe([answer(w, 0.5, floor=floor) for w in policy.next_cohorts()])
    width = [p.arms()[0].upper - p.arms()[0].lower for p in (narrow, wide)]
    assert width[0] < width[1]


def test_leftover_users_get_the_leader() -> None:
    policy = Elimination(dataclasses.replace(SPEC, horizon=200))
    while next_cohorts := policy.next_cohorts():
        policy.observe([answer(w, 0.5 + 0.01 * (w.arm == 2)) for w in next_cohorts])
    assert policy.assignment(17) == {2: 17}


def test_leftover_users_of_the_paper_go_through_the_arms_in_blocks() -> None:
    spec = dataclasses.replace(SPEC, radius="paper", horizon=70)
    policy = Elimination(spec)
    while next_cohorts := policy.next_cohorts():
        policy.observe([answer(w, 0.5) for w in next_cohorts])
    left = 70 - policy.users
    assert policy.assignment(left) == {0: left, 1: 0, 2: 0, 3: 0}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch": 2}, "batch of an outcome is 2"),
        ({"arm": 9}, "arm of an outcome is 9"),
        ({"cohort_size": 1}, "cohort size of an outcome"),
        ({"survivors": 0}, "survivors of an outcome"),
        ({"honest_floor": 0}, "survivors of an outcome"),
    ],
)
def test_an_outcome_nobody_asked_for_is_refused(
    change: dict[str, int], message: str
) -> None:
    policy = Elimination(SPEC)
    outcome = answer(policy.next_cohorts()[0], 0.5)
    with pytest.raises(InputError, match=message):
        policy.observe([dataclasses.replace(outcome, **change)])


def test_users_invited_beyond_the_request_are_counted() -> None:
    policy = Elimination(SPEC)
    cohort_request = policy.next_cohorts()[0]
    more = dataclasses.replace(cohort_request, size=cohort_request.size + 5)
    policy.observe([answer(more, 0.5)])
    assert [view.asked for view in policy.arms()] == [cohort_request.size + 5] + 3 * [
        cohort_request.size
    ]


def test_an_arm_answered_twice_is_refused() -> None:
    policy = Elimination(SPEC)
    outcome = answer(policy.next_cohorts()[0], 0.5)
    with pytest.raises(InputError, match="at most once"):
        policy.observe([outcome, outcome])


def test_the_last_batch_takes_who_is_left() -> None:
    policy = Elimination(dataclasses.replace(SPEC, horizon=20_000))
    field = Field(policy.spec, [0.5] * SPEC.arms)
    sizes = []
    while next_cohorts := policy.next_cohorts():
        sizes.append(next_cohorts[0].size)
        policy.observe(
            [field.outcome(cohort_request) for cohort_request in next_cohorts]
        )
    assert policy.finished == "horizon"
    assert sizes[-1] < 1.5 * sizes[-2] - 1
    # Six bits of a size lose 3 % of the last batch, which is at most half of all.
    assert 0.98 * 20_000 < policy.users <= 20_000


def test_the_paper_radius_knows_no_smaller_last_batch() -> None:
    policy = Elimination(dataclasses.replace(SPEC, horizon=20_000, radius="paper"))
    field = Field(policy.spec, [0.5] * SPEC.arms)
    sizes = []
    while next_cohorts := policy.next_cohorts():
        sizes.append(next_cohorts[0].size)
        policy.observe(
            [field.outcome(cohort_request) for cohort_request in next_cohorts]
        )
    assert sizes == sorted(sizes)


def test_a_limit_shrinks_the_next_batch_and_no_other() -> None:
    policy = Elimination(SPEC)
    least = policy.spec.first_batch
    policy.observe(
        [answer(cohort_request, 0.5) for cohort_request in policy.next_cohorts()]
    )
    policy.limit(policy.spec.arms * (least + 1) + 2)
    assert {cohort_request.size for cohort_request in policy.next_cohorts()} <= {
        least,
        least + 1,
    }
    policy.observe(
        [answer(cohort_request, 0.5) for cohort_request in policy.next_cohorts()]
    )
    assert policy.finished is None
    assert policy.spec.ratio is not None
    assert {cohort_request.size for cohort_request in policy.next_cohorts()} == {
        math.ceil(least * policy.spec.ratio**2)
    }


def test_a_limit_may_be_set_anew() -> None:
    policy = Elimination(SPEC)
    policy.observe(
        [answer(cohort_request, 0.5) for cohort_request in policy.next_cohorts()]
    )
    planned = policy.next_cohorts()
    policy.limit(policy.spec.arms * policy.spec.first_batch)
    assert policy.next_cohorts()[0].size < planned[0].size
    policy.limit(SPEC.horizon)
    assert policy.next_cohorts() == planned


def test_a_limit_below_the_first_size_ends_it_at_once() -> None:
    for users in (0, SPEC.arms * Elimination(SPEC).spec.first_batch - 1):
        policy = Elimination(SPEC)
        policy.limit(users)
        assert policy.finished == "users-exhausted"
        assert not policy.next_cohorts()


def test_a_limit_survives_the_journal() -> None:
    policy = Elimination(SPEC)
    policy.observe(
        [answer(cohort_request, 0.5) for cohort_request in policy.next_cohorts()]
    )
    policy.limit(policy.spec.arms * policy.spec.first_batch)
    restored = policy_from_state(json.loads(json.dumps(policy.state())))
    assert restored.next_cohorts() == policy.next_cohorts()
