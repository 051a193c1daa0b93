"""What is left of a promise when fewer honest shares arrive than it counts on."""

from __future__ import annotations

import math
from fractions import Fraction

from wallflower.protocol.accounting.laplace import ShiftedLaplaceParts
from wallflower.protocol.errors import InputError
from wallflower.protocol.noise.laws import NegativeBinomialDifference
from wallflower.protocol.numbers import positive, whole
from wallflower.protocol.privacy.mechanism import CohortMechanism


def effective_epsilon(
    epsilon: Fraction, precision: int, arriving_fraction: Fraction
) -> float:
    """ε of `dist-dp` when a fraction r of the counted-on shares arrives.

    The total is then a negative binomial difference of shape r, and with a = ε/g
    ε_eff = ε + ln[₂F₁(r,r;1;e^{−2a}) / ₂F₁(r,r+g;1+g;e^{−2a}) · Γ(g+1)Γ(r)/Γ(r+g)],
    which is ln f(0)/f(g), evaluated in ball arithmetic and rounded up. For r ≥ 1 it
    is ε: further shares are noise on top.

    Examples
    --------
    >>> round(effective_epsilon(Fraction(1, 10), 4, Fraction(1, 2)), 3)
    0.867
    """
    positive("epsilon", epsilon)
    whole("precision", precision, at_least=1)
    if arriving_fraction <= 0:
        return math.inf
    law = NegativeBinomialDifference(arriving_fraction, epsilon / precision)
    return ShiftedLaplaceParts(law, law.shape, law.rate, precision).pure()


def effective_epsilon_of(cohort: CohortMechanism, arriving: int) -> float:
    """The promise's ε when only `arriving` honest users answer and the sum is used.

    Pure promises by the formula above. The Rényi and concentrated ones are governed by
    g/σ, and σ² is proportional to the shares. Central and local noise does not depend
    on who answers. Wallflower releases no sum below the floor: this shows why.
    """
    promise = cohort.guarantee()
    if promise.epsilon is None:
        return math.inf
    whole("arriving", arriving, at_least=0, at_most=cohort.cohort_size)
    hidden_by_users = promise.trust in ("distributed", "shuffler")
    if not hidden_by_users or arriving >= cohort.honest_floor:
        return float(promise.epsilon)
    if arriving == 0:
        return math.inf
    fraction = Fraction(arriving, cohort.honest_floor)
    if promise.kind == "pure":
        of_noise = promise.epsilon - cohort.view_loss
        of_sum = effective_epsilon(of_noise, cohort.precision, fraction)
        return of_sum + float(cohort.view_loss)
    if promise.kind in ("renyi", "concentrated"):
        return float(promise.epsilon) / math.sqrt(fraction)
    raise InputError("guarantee", promise.kind, "pure, renyi or concentrated")
