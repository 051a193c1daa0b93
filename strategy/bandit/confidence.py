"""Radii of a policy, remembered by the public facts they depend on.

Nothing here depends on a sum: which batches are pooled and how wide an interval is
follow from cohort sizes, floors and survivors alone, so that the choice of the best
pooling needs no share of the failure probability.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from wallflower.strategy.bandit.radius import (
    LogMgf,
    Pool,
    chernoff,
    chernoff_at,
    cohort_noise,
    pair_log_mgf,
    paper_radius,
)
from wallflower.strategy.bandit.spec import PolicySpec

# Every older batch adds as much noise as the newest but fewer users; once three more
# did not help, none will.
_PATIENCE = 3
_STEPS = (0.85, 1.0, 1.18, 1.4)


@dataclass(frozen=True, slots=True)
class CohortFacts:
    """The public side of one delivered cohort of an arm.

    `level_batch` is the batch number its shares of the failure probability carry.
    """

    level_batch: int
    size: int
    floor: int
    survivors: int


History = tuple[CohortFacts, ...]


@dataclass(frozen=True, slots=True)
class Bound:
    """A radius and how many of the newest cohorts it pools."""

    radius: float
    pooled: int


class Confidence:
    """The radii of one policy; shared by every experiment with the same settings."""

    def __init__(self, spec: PolicySpec) -> None:
        self._spec = spec
        self._shares = spec.shares
        self._noises: dict[CohortFacts, LogMgf] = {}
        self._pairs: dict[tuple[History, History, int, int], Bound] = {}
        self._own: dict[tuple[History, int], Bound] = {}

    def wrap(self, level_batch: int) -> Fraction:
        """Give the wrap probability of a cohort's modulus."""
        return self._shares.wrap(level_batch, self._spec.arms)

    def pair(
        self, one: History, other: History, batch: int, active: int | None = None
    ) -> Bound:
        """Bound the difference of two arms after batch `batch` (`pair` radius).

        Pooled sums also decided who is still active, so the share of a batch is split
        over all K − 1 rivals. A fresh batch alone is independent of that choice:
        without pooling only the `active` arms count.
        """
        arms = self._spec.arms
        if active is not None and not self._spec.pooling:
            arms = active
        key = (one, other, batch, arms)
        if key not in self._pairs:
            level = self._shares.pair(batch, arms)

            def pooling(pooled: int) -> tuple[LogMgf, float]:
                first = self._pool(one[-pooled:])
                second = first if one == other else self._pool(other[-pooled:])
                harmonic = 1 / (1 / first.users + 1 / second.users)
                return pair_log_mgf(first, second), harmonic

            longest = min(len(one), len(other))
            self._pairs[key] = self._best(pooling, longest, level)
        return self._pairs[key]

    def own(self, history: History, batch: int) -> Bound:
        """Bound one arm's own mean after batch `batch`, each side."""
        key = (history, batch)
        if key not in self._own:
            level = self._shares.side(batch, self._spec.arms)

            def pooling(pooled: int) -> tuple[LogMgf, float]:
                pool = self._pool(history[-pooled:])
                return pool.log_mgf, pool.users

            self._own[key] = self._best(pooling, len(history), level)
        return self._own[key]

    def paper(self, facts: CohortFacts, batch: int, active_arms: int) -> float:
        """Give the paper's β for an arm's newest cohort."""
        spec = self._spec
        return paper_radius(
            spec.built,
            survivors=facts.survivors,
            honest_floor=facts.floor,
            batch=batch,
            active_arms=active_arms,
            failure_probability=spec.failure_probability,
        )

    def _best(
        self,
        pooling: Callable[[int], tuple[LogMgf, float]],
        longest: int,
        level: Fraction,
    ) -> Bound:
        """Give the pooling with the smallest radius.

        The best λ moves little from one pooling to the next, so a few points near the
        last one choose; only the chosen pooling is minimised to the end.
        """
        log_mgf, users = pooling(1)
        radius, argument = chernoff(log_mgf, users, level)
        best = Bound(radius, 1)
        if not self._spec.pooling or longest == 1:
            return best
        for pooled in range(2, longest + 1):
            if pooled - best.pooled > _PATIENCE:
                break
            log_mgf, users = pooling(pooled)
            radius, argument = min(
                (chernoff_at(log_mgf, argument * step, level), argument * step)
                for step in _STEPS
            )
            if radius < best.radius:
                best = Bound(radius, pooled)
        log_mgf, users = pooling(best.pooled)
        radius, _ = chernoff(log_mgf, users, level)
        return Bound(min(radius, best.radius), best.pooled)

    def _pool(self, history: History) -> Pool:
        return Pool(
            sum(facts.survivors for facts in history),
            tuple(self._noise(facts) for facts in history),
        )

    def _noise(self, facts: CohortFacts) -> LogMgf:
        if facts not in self._noises:
            cohort = self._spec.calibrated(
                facts.size, facts.floor, self.wrap(facts.level_batch)
            )
            self._noises[facts] = cohort_noise(cohort, facts.survivors)
        return self._noises[facts]


@lru_cache(maxsize=64)
def confidence_for(spec: PolicySpec) -> Confidence:
    """Give the radii of a resolved spec, the same object for the same spec."""
    return Confidence(spec)
