"""From a Rényi curve to (ε, δ).

If D_α ≤ ε(α) then (ε, δ)-DP holds with
ε = ε(α) + ln(1/(αδ))/(α − 1) + ln(1 − 1/α) for every α > 1 (Canonne, Kamath and Steinke
2020, Prop. 12; the paper's conversion lemma). Every order gives a valid ε, so a search
that misses the best order only gives a larger one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from wallflower.protocol.errors import InputError

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
    """Smallest ε over the orders; by default over all real orders up to 10⁶.

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
