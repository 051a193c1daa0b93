"""What a policy is built from: everything it decides by, in exact numbers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

from wallflower.protocol.errors import InputError, nearest
from wallflower.protocol.numbers import positive, probability, whole
from wallflower.protocol.privacy.honest_floor import PlannedFloors
from wallflower.protocol.privacy.mechanism import (
    CohortMechanism,
    Mechanism,
    mechanism_named,
)
from wallflower.strategy import policy_names
from wallflower.strategy.bandit.failure_budget import Shares
from wallflower.strategy.bandit.radius import Pool, cohort_noise, pair_bound
from wallflower.strategy.bandit.schedule import Schedule, first_size, growth
from wallflower.strategy.policy_names import ELIMINATION, INDEX_POLICIES

DECIDING = (ELIMINATION,)  # those that rule arms out
LARGEST_HORIZON = 10**15


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """Settings of a policy; `resolved` fills what was left open.

    Attributes
    ----------
    horizon : users the experiment may reach in all; the sum over arms and batches
        never exceeds it.
    ratio : growth of the batches; None: as noise demands for `tight`
        (`schedule.growth`), 2 for `paper`, 6/5 for `dp-imed`.
    first_batch : 0: `schedule.first_size` for `tight`, ⌈ratio⌉ for `paper`,
        ⌈2 ln T / ε⌉ for `dp-imed`.
    few_rounds : a round takes time, because outcomes do or because people arrive: a
        ratio and a first batch that are left open make few rounds, not few users.
    honest_fraction : the floor planned for a cohort of n is ⌊n · fraction⌋; outcomes
        carry the real one.
    control : the arm that others are to beat, if there is one.
    keep_control : it goes on getting people after it fell, until the end.
    margin : difference of means that does not matter, as a part of [0, 1].
    most_rounds : batches at most, whatever the horizon; 0: as many as fit. Where ratio
        or first batch are open, batches are then as large as the horizon allows.
    floors : the floors of known nodes, for plans and simulations of a run on them; a
        run's own policy, which is in the record, knows only the fraction.
    """

    policy: str
    arms: int
    horizon: int
    mechanism: str
    epsilon: Fraction
    scale: Fraction = Fraction(10)
    failure_probability: Fraction = Fraction(1, 20)
    radius: str = "tight"
    ratio: Fraction | None = None
    first_batch: int = 0
    few_rounds: bool = False
    honest_fraction: Fraction = Fraction(1)
    control: int | None = None
    keep_control: bool = False
    margin: Fraction | None = None
    most_rounds: int = 0
    floors: PlannedFloors | None = None

    def __post_init__(self) -> None:
        for name, value, known in (
            ("policy", self.policy, policy_names.POLICIES),
            ("radius", self.radius, policy_names.RADII),
        ):
            if value not in known:
                allowed = f"one of {', '.join(known)}"
                raise InputError(name, f'"{value}"{nearest(value, known)}', allowed)
        whole("arms", self.arms, at_least=2, at_most=100_000)
        whole("horizon", self.horizon, at_least=1, at_most=LARGEST_HORIZON)
        if self.horizon < 2 * self.arms:
            raise InputError(
                "horizon", self.horizon, f"at least two users an arm ({2 * self.arms})"
            )
        positive("epsilon", self.epsilon)
        positive("scale", self.scale)
        probability("failure-probability", self.failure_probability)
        whole("first-batch", self.first_batch, at_least=0)
        whole("most-rounds", self.most_rounds, at_least=0)
        if self.ratio is not None and not 1 < self.ratio <= 100:
            raise InputError("ratio", self.ratio, "greater than 1 and at most 100")
        if not 0 < self.honest_fraction <= 1:
            raise InputError(
                "honest-fraction", self.honest_fraction, "above 0 and at most 1"
            )
        self._check_control()
        build_mechanism(self.mechanism, self.epsilon, self.scale)

    def _check_control(self) -> None:
        if self.control is not None:
            whole("control", self.control, at_least=0, at_most=self.arms - 1)
        if self.margin is not None and not 0 < self.margin < 1:
            raise InputError("margin", self.margin, "a part of the range")
        compared = self.policy == ELIMINATION and self.radius == "tight"
        if (self.control, self.margin) != (None, None) and not compared:
            raise InputError(
                "control and margin",
                f"beside {self.policy}, radius {self.radius}",
                f"with {ELIMINATION}, radius tight",
            )

    def keeps(self, arm: int, *, retired: bool) -> bool:
        """Return whether an arm goes on getting people after it fell."""
        return self.keep_control and arm == self.control and not retired

    def floor(self, cohort_size: int) -> int:
        """Return the honest floor planned for a cohort."""
        if self.floors is not None:
            return max(1, self.floors(cohort_size))
        return max(1, math.floor(cohort_size * self.honest_fraction))

    @property
    def built(self) -> Mechanism:
        """The mechanism at this privacy level."""
        return build_mechanism(self.mechanism, self.epsilon, self.scale)

    def calibrated(self, size: int, floor: int, wrap: Fraction) -> CohortMechanism:
        """Calibrate the mechanism to a cohort."""
        return self.built.for_cohort(size, floor, wrap)

    def resolved(self) -> PolicySpec:
        """Fill in ratio and first batch where they were left open."""
        first = self.first_batch
        if self.policy in INDEX_POLICIES:
            ratio = self.ratio or Fraction(6, 5)
            first = first or max(math.ceil(4 / self.epsilon), _telling_batch(self))
        elif self.radius == "tight":
            # As the run's policy, which does not know the nodes.
            unknown = dataclasses.replace(self, floors=None)
            first = first or _first_batch(unknown)
            ratio = self.ratio or _growth(unknown, first)
            ratio, first = self._fill_rounds(ratio, first)
        else:
            ratio = self.ratio or Fraction(2)
            first = first or math.ceil(ratio)
        return dataclasses.replace(self, ratio=ratio, first_batch=first)

    def _fill_rounds(self, ratio: Fraction, first: int) -> tuple[Fraction, int]:
        """Return a schedule that uses the horizon in the rounds that are allowed.

        Batches grow faster where the usual growth would not get there from the usual
        first size, at most by 2, and begin larger where that would not either. What is
        stated stays.
        """
        if not self.most_rounds:
            return ratio, first

        def users(growth: Fraction) -> Fraction:
            rounds = range(self.most_rounds)
            return self.arms * sum((growth**power for power in rounds), Fraction(0))

        if self.ratio is None:
            step = Fraction(1, 20)
            while ratio < 2 and first * users(ratio + step) <= self.horizon:
                ratio += step
        if not self.first_batch:
            first = max(first, math.floor(self.horizon / users(ratio)))
        return ratio, first

    @property
    def shares(self) -> Shares:
        """How p is shared out over the batches of a resolved spec."""
        if self.policy != ELIMINATION or self.radius != "tight":
            return Shares(self.failure_probability)
        return Shares(self.failure_probability, self.most_batches)

    @property
    def most_batches(self) -> int:
        """Return how many batches fit: two arms at least are asked in each.

        One more, of fewer users than planned, uses up those who are left.
        """
        assert self.ratio is not None, "a resolved spec has a ratio"
        schedule = Schedule(self.ratio, self.first_batch)
        fitting = schedule.batches_within(self.horizon // 2) + 1
        return min(fitting, self.most_rounds) if self.most_rounds else fitting

    def are_rounds_over(self, batch: int) -> bool:
        """Return whether batch `batch` is beyond the rounds that are allowed."""
        return 0 < self.most_rounds < batch

    def least_size(self, batch: int) -> int:
        """Return users per arm without whom a batch is not asked.

        A last batch may be smaller than planned where sizes may follow from earlier
        sums; the radii, which pool by size, know no such batch. A sixteenth of the plan
        would tell nothing new.
        """
        assert self.ratio is not None, "a resolved spec has a ratio"
        planned = Schedule(self.ratio, self.first_batch).size(batch)
        if self.radius != "tight":
            return planned
        return max(self.first_batch, planned // 16)

    def as_json(self) -> dict[str, Any]:
        """Return JSON types; rationals as text."""
        return {
            field.name: str(value) if isinstance(value, Fraction) else value
            for field in dataclasses.fields(self)
            for value in (getattr(self, field.name),)
            if field.name != "floors"
        }

    @classmethod
    def from_json(cls, table: Mapping[str, Any]) -> PolicySpec:
        """Read back what `as_json` wrote."""
        rational = ("epsilon", "scale", "failure_probability", "honest_fraction")
        values = dict(table)
        for name in rational:
            values[name] = Fraction(values[name])
        if values.get("ratio") is not None:
            values["ratio"] = Fraction(values["ratio"])
        if values.get("margin") is not None:
            values["margin"] = Fraction(values["margin"])
        return cls(**values)


@lru_cache(maxsize=64)
def build_mechanism(name: str, epsilon: Fraction, scale: Fraction) -> Mechanism:
    """Return the mechanism by name, the same object for the same level."""
    return mechanism_named(name, epsilon, scale)


def dropping_chance(radius: str, failure_probability: Fraction) -> Fraction:
    """Return the proved bound of the chance that the best arm is ever dropped.

    With the paper's radius, one side of each arm's bound fails at a quarter (rewards)
    and a half (noise) of p/(|Φ|b²): summed over arms and batches (π²/8)p < 1.234p, and
    moduli cost 0.01p.
    """
    return failure_probability * (Fraction(5, 4) if radius == "paper" else 1)


def _telling_batch(spec: PolicySpec) -> int:
    """Return a first cohort whose noise may set a bad arm aside, and no good one.

    A noise as large as a third of it has a chance of T^(−2/3); all arms together get an
    eighth of the horizon at most.
    """
    enough = math.ceil(2 * math.log(spec.horizon) / min(float(spec.epsilon), 1.0))
    return min(enough, spec.horizon // (8 * spec.arms))


def _first_batch(spec: PolicySpec) -> int:
    least = smallest_useful_batch(spec)
    return first_size(least, spec.arms, spec.horizon, few_rounds=spec.few_rounds)


@lru_cache(maxsize=256)
def _growth(spec: PolicySpec, first: int) -> Fraction:
    """Return the ratio for first cohorts of this size."""
    whole, half = _noise_variance(spec, first), _noise_variance(spec, -(-first // 2))
    splitting = (2 * half - whole) / (first / 4 + whole)
    return growth(splitting, few_rounds=spec.few_rounds)


def _noise_variance(spec: PolicySpec, size: int) -> float:
    """Return the variance of a cohort's noise in rewards, by its log-MGF near 0."""
    wrap = Shares(spec.failure_probability).wrap(1, spec.arms)
    noise = cohort_noise(spec.calibrated(size, spec.floor(size), wrap))
    argument = min(float(spec.epsilon), 1.0) / 100
    return 2 * noise(argument) / argument**2


@lru_cache(maxsize=256)
def smallest_useful_batch(spec: PolicySpec) -> int:
    """Return the smallest n whose radius in batch 1 is at most 1.

    A smaller batch could separate no two means of [0, 1], whatever it showed.
    """
    # The shares of a bounded number of batches are not known before the first size.
    shares = Shares(spec.failure_probability)
    level, wrap = shares.pair(1, spec.arms), shares.wrap(1, spec.arms)

    def useful(size: int) -> bool:
        cohort = spec.calibrated(size, spec.floor(size), wrap)
        pool = Pool(size, (cohort_noise(cohort),))
        return pair_bound(pool, level)[0] <= 1

    low, high = 1, 2
    while not useful(high):
        low, high = high, 2 * high
        if high > 10**12:
            allowed = "large enough for 10¹² users to tell arms apart"
            raise InputError("epsilon", spec.epsilon, allowed)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if useful(middle) else (middle, high)
    return high
