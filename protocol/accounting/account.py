"""What one user has spent over everything they took part in, in one currency.

Guarantees of different kinds compose: a pure ε bounds every Rényi divergence by
min{ε, αε²/2} (Bun and Steinke 2016, Prop. 1.4), concentrated ½ε²-CDP by αε²/2, Skellam
noise by its own curve. Rényi divergences of the same order add up, also where later
cohorts depend on earlier results (Mironov 2017, Prop. 1), and are converted to (ε, δ)
once, for all spends together. Pure spends may instead be added as they are, without δ
(basic composition): some of them are best added, others best taken into the curve, so
the account tries every split between large and small ones and states the smallest ε.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from fractions import Fraction

from wallflower.protocol.accounting.truncation import PRIVACY_DELTA
from wallflower.protocol.errors import InputError
from wallflower.protocol.identical import Same
from wallflower.protocol.privacy.calibration import precision_for
from wallflower.protocol.privacy.guarantee import Guarantee, approximate_epsilon
from wallflower.protocol.privacy.mechanism import CohortMechanism
from wallflower.protocol.privacy.sentences import SENTENCE_DELTA

# Totals are stated on this grid, rounded up; it also pays for the rounding of doubles.
_GRID = 10**6
# A total δ below which no spend may have a δ of its own.
SMALLEST_PROVED_DELTA = Fraction(1, 10**9)
# e^ε has no end; a total beyond it promises nothing.
_LARGEST_EXPONENT = 500.0
# Most that a sum of discrete Gaussians adds to ε (s ≥ 3/2, up to 10¹⁰ shares):
# ξ = 10 Σ_k e^{−2π²·(9/4)·k/(k+1)} < 10⁻⁸.
_LARGEST_EXCESS = Fraction(1, 10**8)


@dataclass(frozen=True, slots=True, order=True)
class Cost:
    """What one cohort costs each of its users.

    Attributes
    ----------
    kind : as of `protocol.privacy.guarantee.Guarantee`.
    epsilon : its parameter; 0 for kind ``none``, whose cost has no bound.
    precision : g, which the curve of Skellam noise needs; 0 elsewhere.
    privacy_delta : δ of its own, of mixing or of noise that is cut off; else 0.
    """

    kind: str
    epsilon: Fraction
    precision: int = 0
    privacy_delta: Fraction = Fraction(0)
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.guarantee()  # refuses what is none
        # Of an exact number, and asked for with every spend.
        object.__setattr__(
            self,
            "_hash",
            hash((self.kind, self.epsilon, self.precision, self.privacy_delta)),
        )

    def __hash__(self) -> int:
        return self._hash

    @classmethod
    def of(cls, guarantee: Guarantee, proved_inputs: bool = False) -> Cost:
        """Return the cost of a guarantee; a proof of range cuts the noise off."""
        return cls(
            guarantee.kind,
            guarantee.epsilon or Fraction(0),
            guarantee.precision or 0,
            guarantee.privacy_delta + proved_inputs * PRIVACY_DELTA,
        )

    @classmethod
    def at_most(cls, kind: str, epsilon: Fraction, cohort_size: int = 2) -> Cost:
        """Bound the cost of a mechanism's ε in any cohort of at least so many users.

        g ≥ ⌈ε√n⌉ since s ≥ 1, and a larger g only improves the curve.
        """
        if kind == "renyi":
            return cls(kind, epsilon, precision_for(epsilon, cohort_size))
        return cls(kind, epsilon + (_LARGEST_EXCESS if kind == "concentrated" else 0))

    def guarantee(self) -> Guarantee:
        """Return the cost as a guarantee, which knows its Rényi curve."""
        epsilon = None if self.kind == "none" else self.epsilon
        if self.kind == "renyi" and self.precision < 1:
            raise InputError("precision", self.precision, "at least 1 for Skellam")
        return Guarantee(self.kind, epsilon, "nobody", self.precision or None)


@dataclass(frozen=True, slots=True)
class Account:
    """All spends of one user: different costs in order, each with its number."""

    spends: tuple[tuple[Cost, int], ...] = ()

    def plus(self, cost: Cost) -> Account:
        """Return the account after one more spend; equal accounts are one object."""
        return _plus(self, cost)

    def total(self, privacy_delta: Fraction) -> Fraction | None:
        """Smallest ε such that all spends together are (ε, δ)-DP; None: no bound."""
        return _total_of(Same(self), Same(privacy_delta))


NOTHING = Account()


@functools.lru_cache(maxsize=65536)
def _plus(account: Account, cost: Cost) -> Account:
    counts = dict(account.spends)
    counts[cost] = counts.get(cost, 0) + 1
    return Account(tuple(sorted(counts.items())))


@functools.lru_cache(maxsize=4096)
def _total_of(account: Same[Account], privacy_delta: Same[Fraction]) -> Fraction | None:
    return _total(account.value, privacy_delta.value)


@functools.lru_cache(maxsize=65536)
def _total(account: Account, privacy_delta: Fraction) -> Fraction | None:
    if any(cost.kind == "none" for cost, _ in account.spends):
        return None
    pure = [spend for spend in account.spends if spend[0].kind == "pure"]
    curved = [spend for spend in account.spends if spend[0].kind != "pure"]
    pure.sort(reverse=True)
    totals = []
    for added in range(len(pure) + 1):
        as_they_are = sum((cost.epsilon * n for cost, n in pure[:added]), Fraction(0))
        # Added as they are, spends cost the sum of their own δs.
        left = privacy_delta - sum(cost.privacy_delta * n for cost, n in pure[:added])
        if left > 0:
            converted = _convert_spends(pure[added:] + curved, left)
            if converted is not None:
                totals.append(as_they_are + converted)
    return min(totals) if totals else _one_by_one(account, privacy_delta)


def _one_by_one(account: Account, privacy_delta: Fraction) -> Fraction | None:
    """Add up ε and δ of spends that are converted each by itself: basic composition."""
    share = privacy_delta / sum(number for _, number in account.spends)
    total = Fraction(0)
    for cost, number in account.spends:
        alone = _convert_spends([(cost, 1)], share)
        if alone is None:
            return None
        total += number * alone
    return total


def _convert_spends(
    spends: list[tuple[Cost, int]], privacy_delta: Fraction
) -> Fraction | None:
    """Smallest ε of spends whose Rényi divergences are added up; None: no bound.

    A spend differs from the one that its curve describes with a probability p such
    that (1 + e^ε₁)·p is its own δ, ε₁ its own ε. Together with others, at a larger
    ε, it costs (1 + e^ε)·p ≤ e^(ε − ε₁) times that: ε is raised until what is left of
    δ suffices for it.
    """
    if not spends:
        return Fraction(0)
    curves = [(cost.guarantee(), number) for cost, number in spends]
    own = [_own_epsilon(cost) for cost, _ in spends]
    epsilon, margin = 0.0, 1 / _GRID
    while True:
        if epsilon > _LARGEST_EXPONENT:
            return None
        lost = sum(
            number * float(cost.privacy_delta) * math.exp(max(0.0, epsilon - alone))
            for (cost, number), alone in zip(spends, own, strict=True)
        )
        left = float(privacy_delta) - lost
        if left <= 0:
            return None
        needed = approximate_epsilon(
            lambda order: sum(number * curve.renyi(order) for curve, number in curves),
            left,
        )
        if needed <= epsilon or not lost:
            return Fraction(math.ceil(needed * _GRID) + 1, _GRID)
        # A little more than needed, and more each time, so that few steps suffice.
        epsilon, margin = needed + margin, 2 * margin


@functools.lru_cache(maxsize=4096)
def _own_epsilon(cost: Cost) -> float:
    """Return ε of one spend alone, as its noise was cut for."""
    if cost.kind == "pure":
        return float(cost.epsilon)
    return cost.guarantee().approximate(SENTENCE_DELTA)


def cost_of(mechanism: CohortMechanism, proved_inputs: bool) -> Cost:
    """Return what a cohort costs each of its users; an equal cohort is computed once.

    `proved_inputs` says that contributions carry a proof of their range.
    """
    return _cost_of(Same(mechanism), proved_inputs)


@functools.lru_cache(maxsize=1024)
def _cost_of(mechanism: Same[CohortMechanism], proved_inputs: bool) -> Cost:
    return _one(Cost.of(mechanism.value.guarantee(), proved_inputs))


@functools.lru_cache(maxsize=1024)
def _one(cost: Cost) -> Cost:
    """Return one object for all equal costs: they are then told apart by identity."""
    return cost
