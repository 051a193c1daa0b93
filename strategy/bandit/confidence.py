"""Radii of a policy, remembered by the public facts they depend on.

Nothing here depends on a sum. Which batches are pooled, and how wide a bound is, follow
from cohort sizes, floors and survivors alone. So the choice of the best pool needs no
share of the failure probability.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TypeVar

from wallflower.strategy.bandit.radius import (
    LogMgf,
    Pool,
    chernoff_at,
    cohort_noise,
    pair_bound,
    pair_log_mgf,
    paper_radius,
)
from wallflower.strategy.bandit.schedule import (
    CohortFacts,
    Grouping,
    History,
    Schedule,
)
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
        self._pairs: dict[tuple[History, int], Bound] = {}

    def wrap(self, level_batch: int) -> Fraction:
        """Return the wrap probability of a cohort's modulus."""
        return self._shares.wrap(level_batch, self._spec.arms)

    def pair(self, heard: History, batch: int) -> Bound:
        """Bound the difference of two arms with one history after batch `batch`.

        Pooled sums also decided who is still active, so the share of a batch is split
        over all K − 1 rivals.
        """
        key = (heard, batch)
        if key not in self._pairs:
            level = self._shares.pair(batch, self._spec.arms)
            make_room(self._pairs, _MOST_BOUNDS)
            self._pairs[key] = self._find_best_pool(heard, level)
        return self._pairs[key]

    def pool(self, heard: History, pooled: int) -> Pool:
        """Pool the newest groups in which something came.

        Many cohorts of one kind are as cheap as one.
        """
        groups = [one for one in enumerate(heard) if one[1]][-pooled:]
        kinds = [(number, *kind) for number, group in groups for kind in group]
        return Pool(
            sum(count * facts.survivors for _, facts, count in kinds),
            tuple(
                _repeat(self.noise(facts, number), count)
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
        """Return the paper's β for an arm's newest cohort."""
        spec = self._spec
        return paper_radius(
            spec.built,
            survivors=facts.survivors,
            honest_floor=facts.floor,
            batch=batch,
            active_arms=active_arms,
            failure_probability=spec.failure_probability,
        )

    def _find_best_pool(self, heard: History, level: Fraction) -> Bound:
        """Return the number of newest groups whose pool has the smallest radius.

        The best λ moves little from one pool to the next, so a few points near the last
        one choose. Only the chosen pool is minimised to the end.
        """
        radius, argument = pair_bound(self.pool(heard, 1), level)
        best = Bound(radius, 1)
        longest = sum(bool(group) for group in heard)
        for pooled in range(2, longest + 1):
            if pooled - best.pooled > _PATIENCE:
                break
            log_mgf = pair_log_mgf(self.pool(heard, pooled))
            radius, argument = min(
                (chernoff_at(log_mgf, argument * step, level), argument * step)
                for step in _STEPS
            )
            if radius < best.radius:
                best = Bound(radius, pooled)
        radius, _ = pair_bound(self.pool(heard, best.pooled), level)
        return Bound(min(radius, best.radius), best.pooled)


def _repeat(noise: LogMgf, count: int) -> LogMgf:
    return noise if count == 1 else lambda argument: count * noise(argument)


def make_room(known: dict[Key, Value], most: int, keep: Key | None = None) -> None:
    """Forget the oldest entry of a full memory, but never `keep`."""
    if len(known) >= most:
        del known[next(key for key in known if key != keep)]


@lru_cache(maxsize=64)
def confidence_for(spec: PolicySpec) -> Confidence:
    """Return the radii of a resolved spec, the same object for the same spec."""
    return Confidence(spec)
