"""What a statistical distance costs as a δ.

If a law P′ differs from a law P that is ε-private by at most t in statistical distance,
whatever the input, then P′ is (ε, (1 + e^ε)·t)-private: P′(S) ≤ P(S) + t, and
P(S) ≤ e^ε·P₂(S) ≤ e^ε·(P₂′(S) + t).
"""

from __future__ import annotations

import math
from fractions import Fraction

from wallflower.protocol.errors import InputError

# Most that one cohort may add to δ, where something in it may fail.
PRIVACY_DELTA = Fraction(1, 2**40)
LARGEST_EPSILON = 32  # beyond it nothing is promised anyway, and e^ε has no end


def distance_bits(epsilon: Fraction) -> int:
    """Smallest σ with (1 + e^ε)·2^−σ ≤ 2⁻⁴⁰.

    Examples
    --------
    >>> distance_bits(Fraction(1))
    42
    """
    if epsilon > LARGEST_EPSILON:
        raise InputError("epsilon", epsilon, f"at most {LARGEST_EPSILON} when mixed")
    factor = math.ceil(1 + math.exp(epsilon) * (1 + 1e-9))
    return (factor * PRIVACY_DELTA.denominator - 1).bit_length()
