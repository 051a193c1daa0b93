"""The schedule that is chosen where nobody states one, and the aims of the test."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from wallflower.clients.consent import ClientPolicy
from wallflower.protocol.rewards.models import BernoulliRewards
from wallflower.regret.elimination import FastElimination
from wallflower.regret.simulation import Simulation
from wallflower.strategy.bandit.policies import policy_spec
from wallflower.strategy.bandit.schedule import Milestones, Schedule
from wallflower.strategy.bandit.sequential_test import SequentialTest
from wallflower.strategy.bandit.spec import PolicySpec, smallest_useful_batch
from wallflower.strategy.config import config_from_table

SPEC = PolicySpec("elimination", 4, 10**6, "dist-dp", Fraction(1))
FILE = {
    "experiment": {"name": "x", "arms": ["a", "b"], "horizon": 4000},
    "nodes": {"count": 10, "users": 400},
}
SYNTHETIC = {"source": "synthetic", "means": [0.5, 0.6]}


def chosen(**changes: object) -> PolicySpec:
    return dataclasses.replace(SPEC, **changes).resolved()  # type: ignore[arg-type]


@pytest.mark.parametrize("horizon", [100, 1_000, 10**9])
@pytest.mark.parametrize("few_rounds", [False, True])
@pytest.mark.parametrize("mechanism", ["non-private", "dist-dp", "dist-rdp"])
def test_no_planned_cohort_is_one_that_the_default_policy_refuses(
    horizon: int, few_rounds: bool, mechanism: str
) -> None:
    spec = chosen(horizon=horizon, few_rounds=few_rounds, mechanism=mechanism)
    assert spec.first_batch >= ClientPolicy().smallest_cohort


def test_a_first_round_leaves_most_of_the_horizon() -> None:
    for horizon in (10**4, 10**5, 10**6):
        spec = chosen(horizon=horizon, epsilon=Fraction(1, 10))
        least = smallest_useful_batch(dataclasses.replace(SPEC, epsilon=spec.epsilon))
        fair = max(horizon // (16 * spec.arms), least)
        assert spec.first_batch == min(8 * least, fair)


def test_cohorts_grow_more_slowly_the_less_noise_they_bring() -> None:
    levels = [Fraction(1, 10), Fraction(3, 10), Fraction(1), Fraction(10)]
    ratios = [chosen(epsilon=epsilon).ratio for epsilon in levels]
    assert ratios[0] == Fraction(3, 2)
    assert ratios[2] == ratios[3] == Fraction(11, 10)
    assert ratios == sorted(ratios, key=lambda ratio: ratio or 0, reverse=True)
    # Noise of each user: a smaller cohort adds none.
    local = chosen(mechanism="local-dp", epsilon=Fraction(1, 10))
    assert local.ratio == Fraction(11, 10)


def test_a_stated_ratio_and_a_stated_first_batch_are_kept() -> None:
    for few_rounds in (False, True):
        spec = chosen(ratio=Fraction(7, 5), first_batch=33, few_rounds=few_rounds)
        assert (spec.ratio, spec.first_batch) == (Fraction(7, 5), 33)


@pytest.mark.parametrize(
    ("more", "few"),
    [
        ({"rewards": SYNTHETIC}, False),
        ({"rewards": {**SYNTHETIC, "window-s": 3600, "if-unknown": 0}}, True),
        ({"visitors": {"admission": "open"}}, True),
    ],
    ids=["immediate", "window", "visitors"],
)
def test_rounds_that_take_time_are_few(more: dict[str, object], few: bool) -> None:
    config = config_from_table({**FILE, **more}, Path(), "experiment.toml")
    spec = policy_spec(config).resolved()
    assert spec.few_rounds == few
    assert (spec.ratio == 2) == few


def test_few_rounds_are_fewer_and_fewest_people_are_fewer_people() -> None:
    """40 runs each; over 200 the difference is 9 standard errors of 40."""
    means = np.tile([0.7, 0.6, 0.6, 0.5], 40)
    asked, rounds = [], []
    for few_rounds in (False, True):
        spec = dataclasses.replace(SPEC, few_rounds=few_rounds)
        engine = FastElimination(Simulation(spec, BernoulliRewards(means), 40, 7))
        for _ in engine.steps():
            pass
        asked.append(engine.result().asked.mean())
        rounds.append(engine.eliminated_in.max(axis=1).mean())
    assert asked[0] < asked[1]
    assert rounds[0] > 2 * rounds[1]


def test_milestones_are_a_quarter_of_the_users_apart_whatever_the_ratio() -> None:
    for ratio in (Fraction(101, 100), Fraction(11, 10), Fraction(2)):
        schedule = Schedule(ratio, 50)
        milestones = Milestones(schedule)
        sizes = [schedule.size(place) for place in range(1, 200)]
        users = np.cumsum(np.array(sizes, dtype=float))
        places = [milestones.place_of(number) for number in range(12)]
        grown = users[np.array(places[1:]) - 1] / users[np.array(places[:-1]) - 1]
        assert (grown >= 1.25).all()
        assert [milestones.reached_at(place) for place in places] == list(range(12))


def test_slower_growth_means_more_looks_and_no_more_aims() -> None:
    """All aims of a plan spend at most p, and their number barely depends on it."""
    numbers = []
    for ratio in (Fraction(21, 20), Fraction(11, 10), Fraction(5, 4)):
        spec = chosen(ratio=ratio, first_batch=100)
        evidence = SequentialTest(spec)
        last = evidence.mixed(spec.most_batches)
        assert evidence.part_of(last) <= spec.failure_probability
        numbers.append(last.stop)
    assert max(numbers) <= 1.3 * min(numbers)
