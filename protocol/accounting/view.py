"""What a view is worth that tells a little more than the sum.

A view may weigh inputs of equal sum by up to e^η (a shuffled heap does). With M_s and
m_s the largest and smallest likelihood of an event over inputs of sum s, M_s ≤ e^η m_s:

- (ε, δ) of the sum is (ε + η, δ) of the view: Σ P(s) M_s ≤ e^ε Σ P′(s) M_s + δ;
- D_α of the view is at most D_α of the sum plus αη/(α − 1), from P ≤ e^η Σ P(s) m_s and
  P′ ≥ Σ P′(s) m_s, and because m is a sub-stochastic kernel.
"""

from __future__ import annotations

from fractions import Fraction

from wallflower.protocol.accounting.losses import Losses
from wallflower.protocol.accounting.shifted import Bounds, ShiftedNoise
from wallflower.protocol.errors import InputError


class Seen:
    """The divergences of a sum, as far as a view can widen them."""

    def __init__(self, of_sum: ShiftedNoise, view_loss: Fraction) -> None:
        self._of_sum = of_sum
        self._loss = float(view_loss)

    def within_reach(self, order: float) -> bool:
        """Tell whether the sum of this order is short enough to be worth taking."""
        return self._of_sum.within_reach(order)

    def pure(self) -> float:
        """ε of (ε, 0)-DP."""
        return self._of_sum.pure() + self._loss

    def approximate(self, privacy_delta: float) -> float:
        """Smallest known ε of (ε, δ)-DP."""
        return self._of_sum.approximate(privacy_delta) + self._loss

    def renyi(self, order: float) -> Bounds:
        """D_α: between nothing and the most that a view can tell."""
        most = self._of_sum.renyi(order).upper + order * self._loss / (order - 1)
        return Bounds(0.0, most)

    def lists_losses(self) -> bool:
        """Give False: the law of a view's loss depends on more than the sum's."""
        return False

    def losses(self) -> Losses:
        """Refuse; see `lists_losses`."""
        raise InputError("losses", "of a view", "of a sum only")
