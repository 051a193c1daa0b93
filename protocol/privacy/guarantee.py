"""What a user is promised, as a value that knows its own Rényi curve.

Unit of privacy: one user, one reward. Neighbouring cohorts: the same users, one reward
replaced by any other in [0, 1]. The promise is about one cohort; unique users join one
cohort only, so parallel composition makes it the promise of the whole experiment.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction

from wallflower.protocol.errors import InputError
from wallflower.protocol.numbers import round_up

# --- From a Rényi curve to (ε, δ).
#
# If D_α ≤ ε(α) then (ε, δ)-DP holds with ε = ε(α) + ln(1/(αδ))/(α − 1) + ln(1 − 1/α)
# for every α > 1 (Canonne, Kamath and Steinke 2020, Prop. 12; the paper's conversion
# lemma). Every order gives a valid ε, so a search that misses the best order only gives
# a larger one.


RenyiCurve = Callable[[float], float]


def check_delta(privacy_delta: float) -> float:
    """Refuse a δ outside (0, 1)."""
    if not 0 < privacy_delta < 1:
        raise InputError("privacy_delta", privacy_delta, "strictly between 0 and 1")
    return privacy_delta


def epsilon_at(divergence: float, order: float, privacy_delta: float) -> float:
    """ε of (ε, δ)-DP that one point (α, ε(α)) of a Rényi curve gives."""
    converted = (
        divergence
        - math.log(order * privacy_delta) / (order - 1)
        + math.log1p(-1 / order)
    )
    return max(0.0, converted)


def approximate_epsilon(
    curve: RenyiCurve, privacy_delta: float, orders: Iterable[float] | None = None
) -> float:
    """Return the smallest ε over the orders; by default over all real orders up to 10⁶.

    Examples
    --------
    >>> round(approximate_epsilon(lambda order: order * 0.5**2 / 2, 1e-6), 2)
    2.42
    """
    check_delta(privacy_delta)
    if orders is not None:
        return min(epsilon_at(curve(a), a, privacy_delta) for a in orders)

    def at(logarithm: float) -> float:
        order = 1 + math.exp(logarithm)
        return epsilon_at(curve(order), order, privacy_delta)

    grid = [-6 + 0.1 * k for k in range(199)]
    centre = min(grid, key=at)
    return min(at(centre + 0.002 * k) for k in range(-50, 51))


KINDS = ("pure", "renyi", "concentrated", "none")
TRUST = ("distributed", "shuffler", "server", "nobody")


@dataclass(frozen=True, slots=True)
class Guarantee:
    """The promise to one user for taking part in one cohort.

    Attributes
    ----------
    kind : ``pure`` (ε, 0)-DP; ``renyi`` the curve of Skellam noise;
        ``concentrated`` ½ε²-CDP; ``none``.
    epsilon : its parameter, None where nothing is promised.
    trust : who must be honest for it to hold: ``distributed`` (the honest floor of the
        cohort and the secure sum), ``shuffler`` (the honest floor, and a shuffler that
        does not work with the server), ``server``, ``nobody``.
        `protocol.privacy.sentences` puts it in words, with its whole condition.
    precision : g, which the Rényi curve of Skellam noise needs; None elsewhere.
    privacy_delta : with this probability everything is told, and else what the kind
        says holds (Kairouz, Oh and Viswanath 2015: no pure promise with a δ is worse);
        curves are of the second case.
    """

    kind: str
    epsilon: Fraction | None
    trust: str
    precision: int | None = None
    privacy_delta: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError("kind", self.kind, f"one of {', '.join(KINDS)}")
        if self.trust not in TRUST:
            raise InputError("trust", self.trust, f"one of {', '.join(TRUST)}")
        if (self.epsilon is None) != (self.kind == "none"):
            raise InputError("epsilon", self.epsilon, f"fits the kind {self.kind}")
        if self.privacy_delta and self.kind != "pure":
            raise InputError("privacy_delta", self.privacy_delta, "0 but for pure")

    @property
    def epsilon_text(self) -> str:
        """ε for display: rounded up, ∞ where nothing is promised."""
        return "∞" if self.epsilon is None else round_up(self.epsilon)

    def renyi(self, order: float) -> float:
        """Closed-form bound on the Rényi divergence of this order (α > 1).

        ``pure``: min{ε, αε²/2} (Bun and Steinke 2016, Prop. 1.4). ``concentrated``:
        αε²/2, the definition. ``renyi``: Agarwal, Kairouz and Liu 2021, Thm 3.5 with
        sensitivity g and variance g²/ε², see `skellam_bound`.
        """
        if not order > 1:
            raise InputError("order", order, "greater than 1")
        if self.epsilon is None:
            return math.inf
        epsilon = float(self.epsilon)
        gaussian = order * epsilon**2 / 2
        if self.kind == "pure":
            return min(epsilon, gaussian)
        if self.kind == "concentrated":
            return gaussian
        assert self.precision is not None
        return skellam_bound(epsilon, self.precision, order)

    def approximate(self, privacy_delta: float, cohorts: int = 1) -> float:
        """Smallest ε of (ε, δ)-DP that the closed-form curve gives for `cohorts`."""
        if self.epsilon is None:
            return math.inf
        left = privacy_delta - cohorts * float(self.privacy_delta)
        if left <= 0:
            return math.inf
        by_curve = approximate_epsilon(lambda order: cohorts * self.renyi(order), left)
        if self.kind == "pure":
            return min(by_curve, cohorts * float(self.epsilon))
        return by_curve


def skellam_bound(epsilon: float, precision: int, order: float) -> float:
    """Rényi divergence of Sk(0, g²/ε²) shifted by at most g, bounded in closed form.

    αε²/2 + min{(2α−1)ε⁴/(4g²) + 3ε⁴/(2g³), 3ε²/(2g)}, from Lemma 3.5 of Agarwal,
    Kairouz and Liu 2021, proven for integer α. Between two integers (α−1)D_α, which is
    convex in α (van Erven and Harremoës 2014, Cor. 2) and 0 at α = 1, lies below its
    chord.

    Deviation: the paper's theorem prints 3ε²/(2s) as the second term of the minimum,
    but Δ = g and σ² = g²/ε² give 3ε²/(2g) ≤ 3ε/(2s√n). The printed term is too small
    by 1/ε at n = 1; here the real g of the cohort stands.
    """
    square = epsilon**2

    def scaled(alpha: int) -> float:
        first = (2 * alpha - 1) * square**2 / (4 * precision**2)
        first += 3 * square**2 / (2 * precision**3)
        bound = alpha * square / 2 + min(first, 3 * square / (2 * precision))
        return (alpha - 1) * bound

    below = math.floor(order)
    above = order - below
    chord = (1 - above) * scaled(below) + above * scaled(below + 1)
    return chord / (order - 1)
