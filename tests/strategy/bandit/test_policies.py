"""Every policy, driven by a machine that makes cohorts fail, shrink and restart."""

from __future__ import annotations

import dataclasses
import json
from fractions import Fraction
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from wallflower.protocol.errors import InputError, JournalError
from wallflower.protocol.privacy.mechanism import CohortMechanism
from wallflower.strategy.bandit.policies import build_policy, policy_from_state
from wallflower.strategy.bandit.policy import ArmView, CohortRequest, CohortSum, Policy
from wallflower.strategy.bandit.spec import PolicySpec
from wallflower.strategy.policy_names import POLICIES, RADII


def assert_same(view: ArmView, other: ArmView) -> None:
    """Compare two views of an arm; the ends of intervals to their last digits.

    A restored policy computes the intervals of all arms together. A product of matrices
    rounds differently there than for one arm alone.
    """
    heard = other.estimate is not None
    names = ("estimate", "lower", "upper") if heard else ("lower", "upper")
    ends = {name: getattr(other, name) for name in names}
    found = {name: getattr(view, name) for name in names}
    assert found == pytest.approx(ends, rel=1e-10, abs=1e-12)
    assert dataclasses.replace(view, **ends) == other


class PolicyMachine(RuleBasedStateMachine):
    """Whatever comes back, the books balance and the state round-trips exactly."""

    policy: Policy
    spec: PolicySpec

    @initialize(
        name=st.sampled_from(POLICIES),
        radius=st.sampled_from(RADII),
        mechanism=st.sampled_from(("dist-dp", "dist-rdp", "central-dp", "local-dp")),
        arms=st.integers(2, 5),
        horizon=st.integers(10, 20_000),
        honest=st.fractions(Fraction(1, 2), 1, max_denominator=10),
        # Batches of their own, or many that are planned alike.
        sizes=st.sampled_from(((None, 0), (Fraction(1001, 1000), 8))),
    )
    def start(self, **drawn: Any) -> None:
        self.spec = PolicySpec(
            policy=drawn["name"],
            arms=drawn["arms"],
            horizon=drawn["horizon"],
            mechanism=drawn["mechanism"],
            epsilon=Fraction(1, 2),
            radius=drawn["radius"],
            honest_fraction=drawn["honest"],
            ratio=drawn["sizes"][0],
            first_batch=drawn["sizes"][1],
        )
        self.policy = build_policy(self.spec)
        self.asked = 0
        self.eliminated: dict[int, ArmView] = {}

    @precondition(lambda self: self.policy.finished is None)
    @rule(data=st.data())
    def batch(self, data: st.DataObject) -> None:
        next_cohorts = self.policy.next_cohorts()
        assert next_cohorts
        outcomes = []
        for cohort_request in next_cohorts:
            kind = data.draw(st.sampled_from(("whole", "thin", "void")))
            if kind != "void":
                outcomes.append(self.outcome(cohort_request, kind, data))
        self.asked += sum(cohort_request.size for cohort_request in next_cohorts)
        self.policy.observe(outcomes)

    def outcome(
        self, cohort_request: CohortRequest, kind: str, data: st.DataObject
    ) -> CohortSum:
        floor = self.spec.floor(cohort_request.size)
        survivors = (
            cohort_request.size
            if kind == "whole"
            else data.draw(st.integers(floor, cohort_request.size))
        )
        cohort = self.spec.calibrated(
            cohort_request.size, floor, cohort_request.wrap_probability
        )
        reach = cohort.noise_bound
        total = data.draw(st.integers(-reach, survivors * cohort.precision + reach))
        return CohortSum(
            cohort_request.batch,
            cohort_request.arm,
            cohort_request.size,
            floor,
            survivors,
            cohort.precision,
            total,
        )

    @rule()
    def restart(self) -> None:
        text = json.dumps(self.policy.state())
        restored = policy_from_state(json.loads(text))
        assert json.dumps(restored.state()) == text
        assert restored.next_cohorts() == self.policy.next_cohorts()
        for view, former in zip(restored.arms(), self.policy.arms(), strict=True):
            assert_same(view, former)
        self.policy = restored

    @precondition(lambda self: self.policy.finished is None)
    @rule(data=st.data())
    def retire(self, data: st.DataObject) -> None:
        racing = [view.arm for view in self.policy.arms() if view.active]
        arm = data.draw(st.sampled_from(racing))
        self.policy.retire(arm, "it harms people")
        view = self.policy.arms()[arm]
        assert not view.active
        assert (view.retired, view.note) == (True, "it harms people")
        if len(racing) == 2:
            assert self.policy.finished == "winner"

    @precondition(lambda self: self.policy.finished is not None)
    @rule()
    def after_the_end(self) -> None:
        assert self.policy.next_cohorts() == ()
        with pytest.raises(InputError):
            self.policy.observe([])
        with pytest.raises(InputError):
            self.policy.retire(0, "too late")

    @invariant()
    def users_are_counted_and_never_exceed_the_horizon(self) -> None:
        if hasattr(self, "policy"):
            assert sum(view.asked for view in self.policy.arms()) == self.asked
            assert self.asked <= self.spec.horizon

    @invariant()
    def an_arm_remains_and_intervals_are_intervals(self) -> None:
        if hasattr(self, "policy"):
            views = self.policy.arms()
            assert any(view.active for view in views)
            assert all(0 <= view.lower <= view.upper <= 1 for view in views)

    @invariant()
    def an_eliminated_arm_never_changes_again(self) -> None:
        if hasattr(self, "policy"):
            for view in self.policy.arms():
                if not view.active:
                    assert_same(view, self.eliminated.setdefault(view.arm, view))
                    assert all(w.arm != view.arm for w in self.policy.next_cohorts())

    @invariant()
    def the_rest_of_the_horizon_goes_to_active_arms(self) -> None:
        if hasattr(self, "policy") and self.policy.finished:
            left = self.spec.horizon - self.asked
            assigned = self.policy.assignment(left)
            assert sum(assigned.values()) == left
            active = {view.arm for view in self.policy.arms() if view.active}
            assert set(assigned) <= active


PolicyMachine.TestCase.settings = settings(
    max_examples=40, stateful_step_count=15, deadline=None
)
# Not traced: the same lines again and again, which the tests below run too.
TestPolicyMachine = pytest.mark.no_cover(PolicyMachine.TestCase)


@pytest.mark.parametrize("name", POLICIES)
def test_an_arm_retired_by_hand_is_never_requested_again(name: str) -> None:
    policy = build_policy(PolicySpec(name, 3, 10_000, "dist-dp", Fraction(1)))
    policy.retire(1, "it harms people")
    for _ in range(3):
        next_cohorts = policy.next_cohorts()
        assert 1 not in {cohort_request.arm for cohort_request in next_cohorts}
        policy.observe([])
    with pytest.raises(InputError, match=r"one in the race: \[0, 2\]"):
        policy.retire(1, "again")
    with pytest.raises(InputError, match="one in the race"):
        policy.retire(3, "there is no such arm")
    assert [view.retired for view in policy.arms()] == [False, True, False]


def test_an_unknown_policy_is_named_with_a_suggestion() -> None:
    with pytest.raises(InputError, match='did you mean "dp-imed"'):
        PolicySpec("dp-imd", 2, 100, "dist-dp", Fraction(1))


def test_an_unknown_mechanism_is_named_with_a_suggestion() -> None:
    with pytest.raises(InputError, match='did you mean "dist-dp"'):
        PolicySpec("elimination", 2, 100, "dist-d", Fraction(1))


@pytest.mark.parametrize(
    ("arms", "horizon", "message"),
    [(1, 100, "arms is 1"), (10, 19, "horizon is 19; allowed: at least two users")],
)
def test_too_few_arms_or_users_are_refused(
    arms: int, horizon: int, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        PolicySpec("elimination", arms, horizon, "dist-dp", Fraction(1))


def test_a_state_of_another_version_is_refused() -> None:
    state = dict(
        build_policy(PolicySpec("elimination", 2, 100, "dist-dp", Fraction(1))).state()
    )
    with pytest.raises(JournalError, match="schema 2"):
        policy_from_state({**state, "schema_version": 2})


def test_a_damaged_state_is_refused() -> None:
    policy = build_policy(PolicySpec("dp-imed", 2, 100, "dist-dp", Fraction(1)))
    state = dict(policy.state())
    del state["attempts"]
    with pytest.raises(JournalError, match="damaged"):
        policy_from_state(state)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize(("noised", "shown"), [(1.075, 1.0), (-0.075, 0.0)])
def test_a_mean_is_shown_inside_its_interval_whatever_the_noise_made_of_it(
    name: str, noised: float, shown: float
) -> None:
    spec = PolicySpec(name, 2, 10_000, "dist-dp", Fraction(1), first_batch=40)
    policy = build_policy(spec)
    outcomes = []
    for cohort_request in policy.next_cohorts():
        cohort = policy_cohort(spec, cohort_request)
        total = round(noised * cohort_request.size * cohort.precision)
        outcomes.append(
            CohortSum(
                *(
                    cohort_request.batch,
                    cohort_request.arm,
                    cohort_request.size,
                    cohort_request.size,
                    cohort_request.size,
                ),
                *(cohort.precision, total),
            )
        )
    policy.observe(outcomes)
    for view in policy.arms():
        assert view.estimate == shown
        assert 0 <= view.lower <= view.estimate <= view.upper <= 1


def policy_cohort(spec: PolicySpec, cohort_request: CohortRequest) -> CohortMechanism:
    return spec.calibrated(
        cohort_request.size, cohort_request.size, cohort_request.wrap_probability
    )
