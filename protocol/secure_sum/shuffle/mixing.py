"""Split and mix: an integer as k uniform shares that add up to it, and what k must be.

Two inputs x, x′ of equal sum give shuffled batches of statistical distance at most

    √(E[q^(C−1)] − 1),

where C is the number of components of the union of k − 1 uniform permutations of n
points. Idea and first constants: Balle, Bell, Gascón and Nissim 2020 (CCS), section 4,
whose k is ⌈(2σ + log₂ q)/(log₂ n − log₂ e)⌉ + 2 for the worst input (one less holds on
average over inputs only). Here the expectation itself is bounded, by exact rationals,
which never needs more shares: at q = 2²⁰ and σ = 40, 19 instead of 24 for n = 64, and
11 instead of 12 for n = 4,096.

*Proof.* Give the adversary more: each party's first share r_i with its name. The other
m = k − 1 shares come as m batches, one for each column. The rest of party i's row adds
up to x_i − r_i, which is uniform. So the distance is at most the mean over r of that
between the column batches for x − r and x′ − r. Let Δ be the distance between the
batches of X and those of a uniform input of the same sum. By the triangle inequality
the above is at most twice the mean of Δ over uniform X.

Condition on the shuffled columns Y, which are uniform. Given Y, the input X has p(x|Y)
= P_π[row sums of Y re-ordered by π are x]. Compare it with the uniform law on q^{n−1}
points. By Cauchy–Schwarz the mean distance is at most ½√(q^{n−1} P[two re-orderings
give the same row sums] − 1). Relative to the first, the second re-ordering is m
uniform permutations. Equality of row sums is a linear system: its equations are the n
points, its unknowns the edges i – π_j(i). This incidence matrix has rank n − C over
any ℤ_q. So the probability is E[q^{C−n}]. ∎

*Computing it.* q^C counts colourings with q colours that all permutations keep. One
permutation keeps a colouring with classes n₁, n₂, … with probability one over the
multinomial. Hence Σ_N q E_N z^N (N!)^{k−2} = (Σ_N (N!)^{k−2} z^N)^q, and by
differentiation the recurrence of `excess`. Below 48 parties it is evaluated with
balls. Beyond, the outermost terms on each side are taken singly, and those between
bounded together, by a ceiling on all E_N that induction provides.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from fractions import Fraction

from flint import arb

from wallflower.protocol.errors import InputError, MalformedMessageError
from wallflower.protocol.noise.balls import Ball, ball, precision
from wallflower.protocol.noise.bits import BitSource, uniform_integer
from wallflower.protocol.numbers import whole

MOST_SHARES = 256
_FULLY = 48  # below so many parties the expectation is computed in full
_EDGE = 9  # larger sets of points that split off are bounded together
_BITS = 256  # working precision of the enclosures
_LARGEST_MODULUS = 2**62


def excess(parties: int, shares: int, modulus: int) -> Fraction | None:
    """Bound E[q^(C−1)] − 1 from above; in full below 48 parties. None: unbounded.

    With m = k − 1 permutations, E_N obeys
    E_N − 1 = Σ_{j=1}^{N−1} ((q+1)j/N − 1) · binomial(N, j)^(1−m) · E_{N−j}.
    """
    with precision(_BITS):
        values = _expectations(min(parties, _FULLY - 1), shares, modulus)
        if parties < _FULLY:
            return _upper(values[parties] - 1)
        tail = functools.partial(_tail, shares=shares, modulus=modulus, small=values)
        # If c bounds E_9 … E_{N−1}, then E_N ≤ 1 + base + slope·c for N = 48 and, all
        # terms falling, for every larger N: by induction c bounds them all.
        base = tail(_FULLY, near=arb(0), middle=arb(0))
        slope = tail(_FULLY, near=arb(1), middle=arb(1)) - base
        if not slope < 1:
            return None
        ceiling = ((1 + base) / (1 - slope)).upper()
        for value in values[_EDGE:]:
            ceiling = ceiling.max(value.upper())
        near = ceiling
        if parties >= _FULLY + _EDGE:
            near = 1 + tail(parties - _EDGE, near=ceiling, middle=ceiling)
        return _upper(tail(parties, near=near, middle=ceiling))


def _expectations(last: int, shares: int, modulus: int) -> list[Ball]:
    """E_0 … E_last; E_0 stands for nothing."""
    values = [arb(1), arb(1)]
    for parties in range(2, last + 1):
        extra = arb(0)
        for leaving in range(1, parties):
            weight = ball(Fraction((modulus + 1) * leaving, parties) - 1)
            extra += weight * _chance(parties, leaving, shares) * values[-leaving]
        values.append(1 + extra)
    return values


def _chance(parties: int, leaving: int, shares: int) -> Ball:
    return 1 / arb(math.comb(parties, leaving)) ** (shares - 2)


def _tail(
    parties: int,
    *,
    shares: int,
    modulus: int,
    small: list[Ball],
    near: Ball,
    middle: Ball,
) -> Ball:
    """Bound E_n − 1 where `near` bounds E_{n−8} … E_{n−1}, `middle` E_9 … E_{n−9}.

    Weights are rounded up to q + 1, or (q + 1)j/n for the small j.
    """
    total = arb(0)
    for size in range(1, _EDGE):
        chance = (modulus + 1) * _chance(parties, size, shares)
        total += chance * (small[size] + near * size / parties)
    rest = (modulus + 1) * parties * _chance(parties, _EDGE, shares)
    return total + rest * middle


def _upper(value: Ball) -> Fraction:
    mantissa, exponent = value.upper().man_exp()
    return Fraction(int(mantissa)) * Fraction(2) ** int(exponent)


@functools.lru_cache(maxsize=4096)
def shares_for(parties: int, modulus: int, bits: int) -> int:
    """Smallest proven k: shuffled batches of n honest parties differ by at most
    2^−bits.

    Parameters
    ----------
    parties : honest parties that surely send; colluding and absent ones do not mix.
    modulus : q.
    bits : σ.

    Examples
    --------
    >>> shares_for(4096, 2**20, 40)
    11
    """
    whole("parties", parties, at_least=2, at_most=10**10)
    whole("modulus", modulus, at_least=2, at_most=_LARGEST_MODULUS)
    whole("bits", bits, at_least=1, at_most=128)
    # One party's shares may all stay together: E − 1 ≥ q/4 · n^(2−k).
    least = 3
    while modulus * 4 ** (bits - 1) > parties ** (least - 2):
        least += 1
    for shares in range(least, MOST_SHARES + 1):
        bound = excess(parties, shares, modulus)
        if bound is not None and bound <= Fraction(1, 4**bits):
            return shares
    raise InputError(
        "parties", parties, f"so many that {MOST_SHARES} shares each mix well enough"
    )


def share_bytes(modulus: int) -> int:
    """Return the length of one share."""
    return -(-(modulus - 1).bit_length() // 8)


def split(value: int, shares: int, modulus: int, bits: BitSource) -> list[int]:
    """Return `shares` uniform numbers mod `modulus` that add up to `value`."""
    if not 0 <= value < modulus:
        raise InputError("value", "outside the range", f"0 … {modulus - 1}")
    parts = [uniform_integer(modulus, bits) for _ in range(shares - 1)]
    return [*parts, (value - sum(parts)) % modulus]


def join(shuffled: Iterable[int], expected: int, modulus: int) -> int:
    """Add up a shuffled batch of exactly `expected` shares.

    Raises
    ------
    MalformedMessageError
        If shares are missing, too many or outside ℤ_q.
    """
    total = count = 0
    for share in shuffled:
        if not 0 <= share < modulus:
            raise MalformedMessageError("a share outside ℤ_q")
        total += share
        count += 1
    if count != expected:
        raise MalformedMessageError(f"{count} shares; {expected} were expected")
    return total % modulus
