"""Reward models: what a pull of an arm gives, and the exact law of it once rounded.

The client's synthetic source draws single rewards; the simulator draws the sum of a
whole cohort's rounded rewards at once, in time O(g), because x̂ = ⌊xg⌋ + Ber(xg − ⌊xg⌋)
takes only the values 0..g and its law is known (docs/simulation.md, simulating without
users). Laws are exact up to double rounding; they drive simulations, never privacy.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Sequence
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from wallflower.protocol.errors import InputError, nearest

Doubles = NDArray[np.float64]
Indices = NDArray[np.intp]

# Cells of a table of laws held at once (8 bytes each).
_CHUNK_CELLS = 4_000_000
_FEW = 50_000
_ERFC = np.frompyfunc(math.erfc, 1, 1)


class RewardModel(abc.ABC):
    """Independent rewards in [0, 1] for a row of arms."""

    @property
    @abc.abstractmethod
    def means(self) -> Doubles:
        """True mean of every arm's reward."""

    @abc.abstractmethod
    def sample(self, arm: int, count: int, generator: np.random.Generator) -> Doubles:
        """Draw `count` rewards of one arm."""

    @abc.abstractmethod
    def rounded_laws(self, arms: Indices, precision: int) -> Doubles:
        """Row i: P(x̂ = 0..g) for a reward of arm `arms[i]` at precision g."""

    def rounded_sums(
        self,
        arms: Indices,
        cohort_size: int,
        precision: int,
        generator: np.random.Generator,
    ) -> NDArray[np.int64]:
        """Draw Σx̂ over a cohort for each arm of `arms`, in O(g) each."""
        sums = np.empty(len(arms), dtype=np.int64)
        values = np.arange(precision + 1, dtype=np.int64)
        step = max(1, _CHUNK_CELLS // (precision + 1))
        for start in range(0, len(arms), step):
            laws = self.rounded_laws(arms[start : start + step], precision)
            counts = generator.multinomial(cohort_size, laws)
            sums[start : start + step] = counts @ values
        return sums


class BernoulliRewards(RewardModel):
    """1 with the arm's mean as probability, else 0."""

    def __init__(self, means: Sequence[float] | Doubles) -> None:
        self._means = checked_means(means)

    @property
    def means(self) -> Doubles:
        """True mean of every arm's reward."""
        return self._means

    def sample(self, arm: int, count: int, generator: np.random.Generator) -> Doubles:
        """Draw `count` rewards of one arm."""
        return np.asarray(generator.random(count) < self._means[arm], dtype=np.float64)

    def rounded_laws(self, arms: Indices, precision: int) -> Doubles:
        """Row i: P(x̂ = 0..g); only 0 and g have mass."""
        laws = np.zeros((len(arms), precision + 1))
        laws[:, 0] = 1 - self._means[arms]
        laws[:, precision] = self._means[arms]
        return laws

    def rounded_sums(
        self,
        arms: Indices,
        cohort_size: int,
        precision: int,
        generator: np.random.Generator,
    ) -> NDArray[np.int64]:
        """Draw Σx̂ as one binomial times g."""
        ones = generator.binomial(cohort_size, self._means[arms])
        return np.asarray(ones, dtype=np.int64) * precision


class _ContinuousRewards(RewardModel):
    """A law given by its distribution function and first partial moment on [0, 1]."""

    @abc.abstractmethod
    def _below(self, arms: Indices, points: Doubles) -> Doubles:
        """P(X ≤ point), a row per arm."""

    @abc.abstractmethod
    def _moment_below(self, arms: Indices, points: Doubles) -> Doubles:
        """E[X; 0 < X ≤ point], a row per arm."""

    def rounded_laws(self, arms: Indices, precision: int) -> Doubles:
        """Row i: P(x̂ = 0..g), cell by cell.

        With A_k = P(k < Xg ≤ k+1) and B_k = E[Xg − k; that cell], rounding sends B_k up
        and A_k − B_k down. 0 ≤ B_k ≤ A_k holds in exact arithmetic; clipping to it
        keeps double rounding (≈ g·1e-16) from ever making a negative probability.
        """
        cells = np.arange(precision, dtype=np.float64)
        points = np.arange(precision + 1) / precision
        below = self._below(arms, points)
        # Mass above 1 is projected onto 1 and never appears in a cell.
        mass = np.maximum(np.diff(below, axis=1), 0.0)
        moment = np.diff(self._moment_below(arms, points), axis=1)
        upward = np.clip(precision * moment - cells * mass, 0.0, mass)
        laws = np.zeros((len(arms), precision + 1))
        laws[:, :-1] = mass - upward
        laws[:, 1:] += upward
        laws[:, 0] += below[:, 0]
        laws[:, -1] += 1 - below[:, -1]
        return np.asarray(laws / laws.sum(axis=1, keepdims=True))


class GaussianRewards(_ContinuousRewards):
    """Gaussian around the arm's centre, projected onto [0, 1]."""

    def __init__(self, centres: Sequence[float] | Doubles, deviation: float) -> None:
        self._centres = checked_means(centres)
        self._deviation = _checked_deviation(deviation)
        low, high = (
            (edge - self._centres) / self._deviation for edge in (np.float64(0), 1.0)
        )
        self._means: Doubles = (
            self._centres * (_normal_below(high) - _normal_below(low))
            + self._deviation * (_density(low) - _density(high))
            + _normal_below(-high)
        )

    @property
    def means(self) -> Doubles:
        """True means after projection (not the centres)."""
        return self._means

    def sample(self, arm: int, count: int, generator: np.random.Generator) -> Doubles:
        """Draw `count` rewards of one arm."""
        draws = generator.normal(self._centres[arm], self._deviation, count)
        return np.clip(draws, 0.0, 1.0)

    def _standard(self, arms: Indices, points: Doubles) -> Doubles:
        return np.asarray((points - self._centres[arms, None]) / self._deviation)

    def _below(self, arms: Indices, points: Doubles) -> Doubles:
        return _normal_below(self._standard(arms, points))

    def _moment_below(self, arms: Indices, points: Doubles) -> Doubles:
        standard = self._standard(arms, points)
        density = _density(standard)
        return np.asarray(
            self._centres[arms, None] * _normal_below(standard)
            - self._deviation * density
        )


class BetaRewards(_ContinuousRewards):
    """Beta law with the arm's mean and the given standard deviation."""

    def __init__(self, means: Sequence[float] | Doubles, deviation: float) -> None:
        self._means = checked_means(means)
        self._deviation = _checked_deviation(deviation)
        concentration = self._means * (1 - self._means) / self._deviation**2 - 1
        if np.any(concentration <= 0):
            raise InputError(
                "reward-sd", deviation, "less than √(mean · (1 − mean)) of every arm"
            )
        self._first = self._means * concentration
        self._second = (1 - self._means) * concentration

    @property
    def means(self) -> Doubles:
        """True mean of every arm's reward."""
        return self._means

    def sample(self, arm: int, count: int, generator: np.random.Generator) -> Doubles:
        """Draw `count` rewards of one arm."""
        return generator.beta(self._first[arm], self._second[arm], count)

    def _below(self, arms: Indices, points: Doubles) -> Doubles:
        first, second = self._first[arms, None], self._second[arms, None]
        return np.asarray(_special().betainc(first, second, points))

    def _moment_below(self, arms: Indices, points: Doubles) -> Doubles:
        first, second = self._first[arms, None], self._second[arms, None]
        partial = _special().betainc(first + 1, second, points)
        return np.asarray(self._means[arms, None] * partial)


class ReplayRewards(RewardModel):
    """Logged rewards: a pull draws one of the arm's rows uniformly, with replacement.

    Drawing with replacement keeps users independent, which the confidence bounds need;
    the log is taken as the population. `copies` repeats the row of arms: arm a of the
    log is also arm a + K, a + 2K, …
    """

    def __init__(self, logged: Sequence[Doubles], copies: int = 1) -> None:
        for values in logged:
            if values.size == 0 or not np.all((values >= 0) & (values <= 1)):
                raise InputError("rewards", "a log", "numbers in [0, 1] for every arm")
        self._logged = tuple(np.sort(values) for values in logged)
        means = np.array([values.mean() for values in self._logged])
        self._means = np.tile(means, copies)

    @property
    def means(self) -> Doubles:
        """Mean of each arm's log."""
        return self._means

    def sample(self, arm: int, count: int, generator: np.random.Generator) -> Doubles:
        """Draw `count` rewards of one arm."""
        return generator.choice(self._logged[arm % len(self._logged)], count)

    def rounded_laws(self, arms: Indices, precision: int) -> Doubles:
        """Row i: P(x̂ = 0..g), averaged over the arm's rows."""
        laws = np.empty((len(arms), precision + 1))
        known: dict[int, Doubles] = {}
        for row, arm in enumerate(arms % len(self._logged)):
            if arm not in known:
                known[arm] = _rounded_values(self._logged[arm], precision)
            laws[row] = known[arm]
        return laws


def _rounded_values(values: Doubles, precision: int) -> Doubles:
    scaled = values * precision
    floor = np.minimum(np.floor(scaled), precision - 1).astype(np.intp)
    upward = scaled - floor
    law = np.bincount(floor, weights=1 - upward, minlength=precision + 1)
    law += np.bincount(floor + 1, weights=upward, minlength=precision + 1)
    return np.asarray(law / law.sum())


def _special() -> ModuleType:
    # Nodes with real rewards need none of it, and importing it takes 0.2 s of CPU.
    from scipy import special

    return special


def _normal_below(standard: Doubles) -> Doubles:
    """Φ, one by one where that takes less time than the import would."""
    if standard.size <= _FEW:
        doubled = _ERFC(standard * -math.sqrt(0.5))
        return np.asarray(doubled, dtype=np.float64) / 2
    return np.asarray(_special().ndtr(standard))


def _density(standard: Doubles) -> Doubles:
    # scipy.stats has it too, and takes two seconds to import.
    return np.asarray(np.exp(-(standard**2) / 2) / np.sqrt(2 * np.pi))


def checked_means(means: Sequence[float] | Doubles) -> Doubles:
    """Refuse means outside [0, 1] or not a number."""
    array = np.asarray(means, dtype=np.float64)
    if array.ndim != 1 or array.size == 0:
        raise InputError("means", "not a list of numbers", "one mean per arm")
    for mean in array:
        if not 0 <= mean <= 1:
            raise InputError("means", f"{mean:g} in the list", "numbers in [0, 1]")
    return array


def _checked_deviation(deviation: float) -> float:
    if not 0 < deviation <= 10:
        raise InputError("reward-sd", deviation, "greater than 0 and at most 10")
    return float(deviation)


SYNTHETIC: dict[str, Callable[[Doubles, float], RewardModel]] = {
    "bernoulli": lambda means, deviation: BernoulliRewards(means),
    "gaussian": GaussianRewards,
    "beta": BetaRewards,
}


def synthetic_rewards(
    name: str, means: Sequence[float] | Doubles, deviation: float = 0.1
) -> RewardModel:
    """Build a synthetic model by name; `deviation` is ignored by Bernoulli."""
    if name not in SYNTHETIC:
        raise InputError(
            "rewards",
            f'"{name}"{nearest(name, SYNTHETIC)}',
            f"one of {', '.join(SYNTHETIC)}, or a CSV or Parquet file",
        )
    return SYNTHETIC[name](np.asarray(means, dtype=np.float64), deviation)
