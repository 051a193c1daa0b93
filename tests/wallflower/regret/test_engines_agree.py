"""The fast engine equals the user-by-user engine in law.

Two-sample chi-square tests on decoded sums and on final regret, seeds fixed, each with
a false-alarm rate of 1e-4. The same tests go red when one engine's noise is halved.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from wallflower.protocol.noise.gaussian import Skellam
from wallflower.protocol.noise.laplace import DiscreteLaplace
from wallflower.protocol.noise.law import NoiseLaw
from wallflower.protocol.rewards.models import (
    BernoulliRewards,
    BetaRewards,
    GaussianRewards,
    ReplayRewards,
    RewardModel,
)
from wallflower.regret.draws import CohortDraws, total_noise
from wallflower.regret.elimination import FastElimination
from wallflower.regret.index import FastIndex
from wallflower.regret.simulation import Simulation, run
from wallflower.regret.users import UsersEngine
from wallflower.strategy.bandit.policy import CohortRequest
from wallflower.strategy.bandit.spec import PolicySpec

FALSE_ALARM = 1e-4
FAST_NOISE = "wallflower.regret.draws.total_noise"
MODELS: dict[str, RewardModel] = {
    "bernoulli": BernoulliRewards([0.3, 0.6]),
    "gaussian": GaussianRewards([0.3, 0.97], 0.1),
    "beta": BetaRewards([0.3, 0.6], 0.2),
    "replay": ReplayRewards([np.array([0.1, 0.8]), np.array([0.0, 0.33, 1.0])]),
}
SPEC = PolicySpec(
    policy="elimination",
    arms=2,
    horizon=4000,
    mechanism="dist-dp",
    epsilon=Fraction(1, 2),
    failure_probability=Fraction(1, 10),
)
Sample = NDArray[np.float64]


def two_sample_pvalue(one: Sample, other: Sample, bins: int = 12) -> float:
    """Chi-square test of homogeneity on bins of equal joint frequency."""
    both = np.concatenate([one, other])
    edges = np.unique(np.quantile(both, np.linspace(0, 1, bins + 1)[1:-1]))
    table = np.array(
        [
            np.bincount(np.searchsorted(edges, x), minlength=len(edges) + 1)
            for x in (one, other)
        ]
    )
    table = table[:, table.sum(axis=0) > 0]
    return float(stats.chi2_contingency(table).pvalue)


def sums(mechanism: str, model: RewardModel, runs: int = 1500) -> tuple[Sample, Sample]:
    """Decoded sums of cohorts of 30 users, by both engines."""
    spec = dataclasses.replace(SPEC, mechanism=mechanism)
    cohort_request = CohortRequest(1, 1, 30, Fraction(1, 1000))
    cohort = spec.calibrated(30, 30, cohort_request.wrap_probability)
    fast = CohortDraws(model, 17).totals(np.ones(runs, dtype=np.intp), cohort)
    engine = UsersEngine(Simulation(spec, model, 1, 18))
    slow = []
    for _ in range(runs):
        *_, outcome = engine._cohort(0, cohort_request)
        assert outcome is not None
        slow.append(outcome.total)
    return fast.astype(np.float64), np.array(slow, dtype=np.float64)


@pytest.mark.parametrize("mechanism", ["dist-dp", "dist-rdp", "dist-cdp"])
@pytest.mark.parametrize("rewards", MODELS)
def test_sums_have_the_same_law(mechanism: str, rewards: str) -> None:
    assert two_sample_pvalue(*sums(mechanism, MODELS[rewards])) > FALSE_ALARM


@pytest.mark.parametrize("mechanism", ["central-dp", "local-dp", "non-private"])
def test_sums_have_the_same_law_in_the_other_trust_models(mechanism: str) -> None:
    pvalue = two_sample_pvalue(*sums(mechanism, MODELS["gaussian"]))
    assert pvalue > FALSE_ALARM


@pytest.mark.parametrize("mechanism", ["dist-dp", "local-dp"])
def test_sums_that_wrap_below_zero_have_the_same_law(mechanism: str) -> None:
    fast, slow = sums(mechanism, BernoulliRewards([0.5, 0.02]))
    assert min((fast < 0).mean(), (slow < 0).mean()) > 0.1
    assert two_sample_pvalue(fast, slow) > FALSE_ALARM


def halved(draw: Callable[..., object]) -> Callable[..., object]:
    def too_little(law: NoiseLaw | None, *rest: object) -> object:
        if isinstance(law, DiscreteLaplace):
            law = DiscreteLaplace(law.scale / 2)
        if isinstance(law, Skellam):
            law = Skellam(law.variance_parameter / 4)
        return draw(law, *rest)

    return too_little


@pytest.mark.parametrize("mechanism", ["dist-dp", "dist-rdp", "central-dp"])
def test_halved_noise_in_one_engine_turns_the_test_on_sums_red(
    mechanism: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FAST_NOISE, halved(total_noise))
    assert two_sample_pvalue(*sums(mechanism, MODELS["gaussian"])) < 1e-9


def regrets(
    changes: dict[str, object], model: Callable[[int], RewardModel], runs: int = 150
) -> tuple[Sample, Sample]:
    """Final pseudo-regret of many experiments, by both engines."""
    spec = dataclasses.replace(SPEC, **changes)  # type: ignore[arg-type]
    fast = FastIndex if spec.policy != "elimination" else FastElimination
    one = run(fast(Simulation(spec, model(4 * runs), 4 * runs, 5)))
    other = run(UsersEngine(Simulation(spec, model(runs), runs, 6)))
    assert other.complete.all()
    return one.regret, other.regret


def bernoulli(runs: int) -> RewardModel:
    return BernoulliRewards(np.tile([0.4, 0.6], runs))


def gaussian(runs: int) -> RewardModel:
    return GaussianRewards(np.tile([0.45, 0.55], runs), 0.2)


@pytest.mark.parametrize(
    ("changes", "model"),
    [
        ({}, bernoulli),
        ({"mechanism": "dist-rdp", "horizon": 2000}, gaussian),
        ({"policy": "dp-imed", "epsilon": Fraction(1, 10)}, bernoulli),
        ({"mechanism": "central-dp", "radius": "paper"}, gaussian),
    ],
    ids=["dist-dp", "dist-rdp", "dp-imed", "central-dp paper"],
)
def test_final_regret_has_the_same_law(
    changes: dict[str, object], model: Callable[[int], RewardModel]
) -> None:
    assert two_sample_pvalue(*regrets(changes, model), bins=8) > FALSE_ALARM


def test_halved_noise_in_one_engine_turns_the_test_on_regret_red(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FAST_NOISE, halved(total_noise))
    changes = {"policy": "dp-imed", "epsilon": Fraction(1, 10)}
    assert two_sample_pvalue(*regrets(changes, bernoulli), bins=8) < FALSE_ALARM
