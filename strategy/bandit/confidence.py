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
from typing import TypeVar

from wallflower.strategy.bandit.groups import CohortFacts, Grouping, History
from wallflower.strategy.bandit.radius import (
    LogMgf,
    Pool,
    chernoff,
    chernoff_at,
    cohort_noise,
    pair_log_mgf,
    paper_radius,
)
from wallflower.strategy.bandit.schedule import Schedule
from wallflower.strategy.bandit.spec import PolicySpec

# Every older group adds as much noise for each cohort as the newest but fewer users;
# once three more did not help, none will.
_PATIENCE = 3
_STEPS = (0.85, 1.0, 1.18, 1.4)
_MOST_BOUNDS, _MOST_NOISES = 1024, 4096  # remembered
Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Bound:
    """A radius and how many of the newest groups of cohorts it pools."""

    radius: float
    pooled: int


class Confidence:
    """The radii of one policy; shared by every experiment with the same settings."""

    def __init__(self, spec: PolicySpec) -> None:
        self._spec = spec
        self._shares = spec.shares
        assert spec.ratio is not None, "a resolved spec has a ratio"
        self._grouping = Grouping(Schedule(spec.ratio, spec.first_batch))
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
                first = self.pool(one, pooled)
                second = first if one == other else self.pool(other, pooled)
                harmonic = 1 / (1 / first.users + 1 / second.users)
                return pair_log_mgf(first, second), harmonic

            longest = min(map(_groups_heard, (one, other)))
            make_room(self._pairs, _MOST_BOUNDS)
            self._pairs[key] = self._best(pooling, longest, level)
        return self._pairs[key]

    def own(self, heard: History, batch: int) -> Bound:
        """Bound one arm's own mean after batch `batch`, each side."""
        key = (heard, batch)
        if key not in self._own:
            level = self._shares.side(batch, self._spec.arms)

            def pooling(pooled: int) -> tuple[LogMgf, float]:
                pool = self.pool(heard, pooled)
                return pool.log_mgf, pool.users

            make_room(self._own, _MOST_BOUNDS)
            self._own[key] = self._best(pooling, _groups_heard(heard), level)
        return self._own[key]

    def pool(self, heard: History, pooled: int) -> Pool:
        """Pool the newest groups in which something came.

        Many cohorts of one kind are as cheap as one.
        """
        groups = [one for one in enumerate(heard) if one[1]][-pooled:]
        kinds = [(number, *kind) for number, group in groups for kind in group]
        return Pool(
            sum(count * facts.survivors for _, facts, count in kinds),
            tuple(
                _repeated(self.noise(facts, number), count)
                for number, facts, count in kinds
            ),
        )

    def noise(self, facts: CohortFacts, group: int) -> LogMgf:
        """Return the log-MGF of a cohort's noise in units of reward.

        No level changes it (a test). That of the group's first cohort is taken, since
        most cohorts are calibrated with it anyway.
        """
        if facts not in self._noises:
            wrap = self.wrap(self._grouping.first_place(group))
            cohort = self._spec.calibrated(facts.size, facts.floor, wrap)
            make_room(self._noises, _MOST_NOISES)
            self._noises[facts] = cohort_noise(cohort, facts.survivors)
        return self._noises[facts]

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


def _groups_heard(heard: History) -> int:
    return sum(bool(group) for group in heard)


def _repeated(noise: LogMgf, count: int) -> LogMgf:
    return noise if count == 1 else lambda argument: count * noise(argument)


def make_room(known: dict[Key, Value], most: int, keep: Key | None = None) -> None:
    """Forget the oldest entry of a full memory, but never `keep`."""
    if len(known) >= most:
        del known[next(key for key in known if key != keep)]


@lru_cache(maxsize=64)
def confidence_for(spec: PolicySpec) -> Confidence:
    """Give the radii of a resolved spec, the same object for the same spec."""
    return Confidence(spec)
