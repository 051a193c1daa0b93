"""Statistics here use fixed seeds; each check has a false-alarm rate below 1e-4."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

from wallflower.protocol.errors import InputError
from wallflower.protocol.rewards.models import (
    BernoulliRewards,
    BetaRewards,
    GaussianRewards,
    ReplayRewards,
    RewardModel,
    synthetic_rewards,
)

ARMS = np.arange(3)
MODELS: dict[str, RewardModel] = {
    "bernoulli": BernoulliRewards([0.2, 0.5, 0.97]),
    "gaussian": GaussianRewards([0.05, 0.5, 0.97], 0.1),
    "beta": BetaRewards([0.2, 0.5, 0.9], 0.2),
    "replay": ReplayRewards(
        [np.array([0.0, 1.0, 0.3]), np.array([0.5]), np.array([0.11, 0.97])]
    ),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("precision", [1, 2, 7, 100, 5000])
def test_the_rounded_law_is_a_law_with_the_true_mean(name: str, precision: int) -> None:
    laws = MODELS[name].rounded_laws(ARMS, precision)
    assert laws.min() >= 0
    assert laws.sum(axis=1) == pytest.approx(1, abs=1e-12)
    means = laws @ np.arange(precision + 1) / precision
    assert means == pytest.approx(MODELS[name].means, abs=1e-10)


def test_the_rounded_gaussian_law_is_the_integral_of_the_hat_function() -> None:
    precision, centre, deviation = 20, 0.3, 0.1
    law = GaussianRewards([centre], deviation).rounded_laws(np.array([0]), precision)[0]
    for value in (3, 6, 7, 12):
        mass, _ = integrate.quad(
            lambda x, k=value: (
                max(0.0, 1 - abs(x * precision - k))
                * stats.norm.pdf(x, centre, deviation)
            ),
            (value - 1) / precision,
            (value + 1) / precision,
            points=[value / precision],
        )
        assert law[value] == pytest.approx(mass, rel=1e-7)


@pytest.mark.parametrize("name", MODELS)
def test_single_rewards_follow_the_rounded_law(name: str) -> None:
    generator, precision = np.random.default_rng(5), 6
    model = MODELS[name]
    laws = model.rounded_laws(ARMS, precision)
    for arm in ARMS:
        scaled = model.sample(int(arm), 40_000, generator) * precision
        floor = np.floor(scaled)
        rounded = floor + (generator.random(scaled.size) < scaled - floor)
        counts = np.bincount(rounded.astype(int), minlength=precision + 1)
        used = laws[arm] > 1e-12
        assert counts[~used].sum() == 0
        if used.sum() > 1:
            expected = laws[arm][used] * 40_000
            assert stats.chisquare(counts[used], expected).pvalue > 1e-5


@pytest.mark.parametrize("name", MODELS)
def test_cohort_sums_have_the_mean_and_variance_of_the_law(name: str) -> None:
    generator, precision, size, runs = np.random.default_rng(6), 9, 500, 2000
    model = MODELS[name]
    for arm in ARMS:
        law = model.rounded_laws(np.array([arm]), precision)[0]
        values = np.arange(precision + 1)
        mean = float(law @ values)
        variance = float(law @ values**2) - mean**2
        sums = model.rounded_sums(np.full(runs, arm), size, precision, generator)
        error = np.sqrt(size * variance / runs)
        assert abs(sums.mean() - size * mean) <= 4.5 * error + 1e-9
        assert sums.var() == pytest.approx(size * variance, rel=0.2, abs=1e-9)


def test_the_mean_of_a_projected_gaussian_is_not_its_centre() -> None:
    model = GaussianRewards([0.0], 0.1)
    assert model.means[0] == pytest.approx(0.1 / np.sqrt(2 * np.pi), rel=1e-9)


@pytest.mark.parametrize("means", [[0.5, 1.01], [-0.1, 0.5], [float("nan"), 0.5]])
def test_means_outside_the_unit_interval_are_refused(means: list[float]) -> None:
    with pytest.raises(InputError, match=r"means is .*\[0, 1\]"):
        BernoulliRewards(means)


def test_an_impossible_beta_deviation_is_refused() -> None:
    with pytest.raises(InputError, match="reward-sd"):
        BetaRewards([0.5, 0.99], 0.2)


def test_an_unknown_model_is_refused_with_a_suggestion() -> None:
    with pytest.raises(InputError, match='did you mean "bernoulli"'):
        synthetic_rewards("bernouli", [0.1, 0.2])
