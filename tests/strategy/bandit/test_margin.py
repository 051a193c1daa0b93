"""Runs that end by the margin, and a control that is kept: decisions round by round."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from fractions import Fraction

import numpy as np
import pytest

from wallflower.protocol.errors import InputError
from wallflower.protocol.rewards.models import BernoulliRewards
from wallflower.regret.elimination import FastElimination
from wallflower.regret.simulation import Simulation, run
from wallflower.strategy.bandit.elimination import Elimination
from wallflower.strategy.bandit.margin import find_ending
from wallflower.strategy.bandit.policy import CohortRequest, CohortSum, Ending
from wallflower.strategy.bandit.sequential_test import SequentialTest, Verdict
from wallflower.strategy.bandit.spec import PolicySpec

SPEC = PolicySpec(
    policy="elimination",
    arms=3,
    horizon=100_000,
    mechanism="non-private",
    epsilon=Fraction(1),
    failure_probability=Fraction(1, 10),
    first_batch=50,
)


def answer(request: CohortRequest, mean: float) -> CohortSum:
    size = request.size
    return CohortSum(
        request.batch, request.arm, size, size, size, 1, round(mean * size)
    )


def play(
    spec: PolicySpec,
    means: Mapping[int, float],
    each_round: Callable[[Elimination], None] = lambda policy: None,
) -> Elimination:
    """Play sums that are exactly as the means have them."""
    policy = Elimination(spec)
    while requests := policy.next_cohorts():
        policy.observe([answer(one, means[one.arm]) for one in requests])
        each_round(policy)
    return policy


def test_arms_that_differ_by_less_than_the_margin_end_as_equal() -> None:
    spec = dataclasses.replace(SPEC, margin=Fraction(1, 10))
    policy = play(spec, {0: 0.5, 1: 0.51, 2: 0.2})
    assert policy.finished == Ending.EQUAL
    assert [view.active for view in policy.arms()] == [True, True, False]


def test_without_a_margin_equal_arms_go_on_to_the_horizon() -> None:
    assert play(SPEC, {0: 0.5, 1: 0.5, 2: 0.2}).finished == Ending.HORIZON


def test_arms_that_differ_by_more_than_the_margin_end_with_a_winner() -> None:
    spec = dataclasses.replace(SPEC, margin=Fraction(1, 100), control=0)
    assert play(spec, {0: 0.4, 1: 0.5, 2: 0.3}).finished == Ending.WINNER


def test_a_run_ends_when_no_arm_can_beat_control_by_the_margin() -> None:
    spec = dataclasses.replace(SPEC, margin=Fraction(1, 10), control=0)
    # Arm 2 is close enough to control, but control is not to arm 2.
    policy = play(spec, {0: 0.5, 1: 0.45, 2: 0.41})
    assert policy.finished == Ending.FUTILE


def test_a_control_that_is_kept_gets_people_until_the_end() -> None:
    spec = dataclasses.replace(SPEC, control=0, keep_control=True)
    asked: list[int] = []

    def note(policy: Elimination) -> None:
        asked.append(policy.arms()[0].users)

    policy = play(spec, {0: 0.2, 1: 0.5, 2: 0.48}, note)
    control = policy.arms()[0]
    assert control.eliminated_in is not None
    assert control.eliminated_in < len(asked)
    assert control.users == policy.arms()[1].users
    assert asked == sorted(set(asked))


def test_a_control_that_is_not_kept_gets_nobody_after_it_fell() -> None:
    policy = play(dataclasses.replace(SPEC, control=0), {0: 0.2, 1: 0.5, 2: 0.48})
    assert policy.arms()[0].users < policy.arms()[1].users


def test_a_control_that_is_kept_does_not_put_off_the_winner() -> None:
    spec = dataclasses.replace(SPEC, control=0, keep_control=True)
    policy = play(spec, {0: 0.2, 1: 0.8, 2: 0.5})
    assert policy.finished == Ending.WINNER
    assert [view.active for view in policy.arms()] == [False, True, False]


def test_a_control_that_was_retired_is_not_kept() -> None:
    policy = Elimination(dataclasses.replace(SPEC, control=0, keep_control=True))
    policy.retire(0, "harm")
    assert [one.arm for one in policy.next_cohorts()] == [1, 2]


def test_a_control_that_is_kept_counts_towards_the_horizon() -> None:
    spec = dataclasses.replace(SPEC, control=0, keep_control=True, horizon=3_000)
    policy = play(spec, {0: 0.1, 1: 0.5, 2: 0.5})
    assert policy.finished == Ending.HORIZON
    assert policy.users <= 3_000


def test_a_written_state_goes_on_with_control_and_margin() -> None:
    spec = dataclasses.replace(
        SPEC, control=0, keep_control=True, margin=Fraction(1, 10)
    )
    states: list[Mapping[str, object]] = []
    policy = play(
        spec, {0: 0.5, 1: 0.45, 2: 0.41}, lambda one: states.append(one.state())
    )
    restored = Elimination(PolicySpec.from_json(states[0]["spec"]), states[0])  # type: ignore[arg-type]
    assert restored.spec == spec.resolved()
    while requests := restored.next_cohorts():
        means = (0.5, 0.45, 0.41)
        restored.observe([answer(one, means[one.arm]) for one in requests])
    assert restored.state() == policy.state()


def test_equal_needs_every_pair_and_futile_every_pair_with_control() -> None:
    spec = dataclasses.replace(SPEC, margin=Fraction(1, 10), control=1).resolved()
    estimates = {0: 0.3, 1: 0.5, 2: 0.4}

    def ending(*apart: tuple[int, int]) -> Ending | None:
        return find_ending(
            spec, [0, 1, 2], [0, 1, 2], estimates, lambda *pair: pair not in apart
        )

    assert ending() == Ending.EQUAL
    assert ending((0, 2)) == Ending.FUTILE
    assert ending((0, 2), (1, 0)) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"margin": Fraction(0)},
        {"margin": Fraction(1)},
        {"control": 3},
        {"margin": Fraction(1, 10), "radius": "paper"},
        {"control": 0, "policy": "dp-imed"},
    ],
    ids=str,
)
def test_settings_that_cannot_be_meant_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(InputError):
        dataclasses.replace(SPEC, **changes)  # type: ignore[arg-type]


RUNS = 200
# Chosen before the first run.
SEED = 2611


def wrong_ends(spec: PolicySpec, lead: float) -> int:
    """Count experiments that end by the margin although one arm leads by more."""
    means = np.full((RUNS, spec.arms), 0.3)
    means[:, -1] += lead
    simulation = Simulation(spec, BernoulliRewards(means.ravel()), RUNS, SEED)
    result = run(FastElimination(simulation))
    return sum(why in (Ending.EQUAL, Ending.FUTILE) for why in result.finished)


FIELDS = [(Ending.EQUAL, None), (Ending.FUTILE, 0)]


def margin_spec(control: int | None) -> PolicySpec:
    return PolicySpec(
        policy="elimination",
        arms=2,
        horizon=20_000,
        mechanism="dist-dp",
        epsilon=Fraction(1),
        failure_probability=Fraction(1, 10),
        control=control,
        margin=Fraction(1, 20),
    )


@pytest.mark.parametrize(("ending", "control"), FIELDS)
def test_a_run_rarely_ends_by_the_margin_where_one_arm_leads_by_it(
    ending: Ending, control: int | None
) -> None:
    # 200 runs, p = 1/10: more than 34 have a chance of 0.9 %  were p reached.
    assert wrong_ends(margin_spec(control), lead=0.05) <= 34


@pytest.mark.parametrize(("ending", "control"), FIELDS)
def test_a_margin_that_counts_twice_ends_runs_wrongly(
    ending: Ending, control: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = SequentialTest.compare

    def doubled(self: SequentialTest, *sides: object, shift: float = 0.0) -> Verdict:
        return right(self, *sides, shift=2 * shift)  # type: ignore[arg-type]

    monkeypatch.setattr(SequentialTest, "compare", doubled)
    assert wrong_ends(margin_spec(control), lead=0.05) > 34
