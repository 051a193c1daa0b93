"""The certificate: a proof by exact integers that a table keeps its promise.

Take two parties with inputs of equal sum, and one level. Split the law of k₁ + k₂ into
A, neither drew junk, and J, the rest. After A the sum of what they go on with is known,
after J it is uniform on 2^l values; so whatever the levels above show weighs A by some
r between 0 and 2^l, the same for both pairs of inputs. The level therefore adds at most

    max over r and sums of |ln((rA + J)/(rA′ + J′))|

to the log-likelihood ratio. The quotient is monotone in r, so r = 0 and r = 2^(L−1)
decide. Only the parities of the inputs matter, and (even, odd) is (odd, even) for the
heap: what is to be compared is (even, even) with (odd, odd).
"""

from __future__ import annotations

import functools
from fractions import Fraction

from flint import fmpz_poly

from wallflower.protocol.noise.radix import (
    TABLE_BITS,
    RadixPlan,
    RadixTables,
    uncertified_tables,
)


class CertificateError(ArithmeticError):
    """A table of noise does not keep the bound it was made for; it must not be used."""


@functools.lru_cache(maxsize=128)
def certified_tables(plan: RadixPlan, bits: int = TABLE_BITS) -> RadixTables:
    """Give the laws to draw from, which have passed; made once."""
    tables = uncertified_tables(plan, bits)
    certify(tables, plan.pair_budget, plan.levels)
    return tables


def certify(tables: RadixTables, pair_budget: Fraction, levels: int) -> Fraction:
    """Give the largest ratio minus one, which bounds the logarithm; raise if too large.

    Raises
    ------
    CertificateError
        If a table is no law on what it should be, or a ratio exceeds e^pair_budget.
    """
    _check_laws(tables)
    even, odd = _pair(tables, 0), _pair(tables, 1)
    excess = Fraction(0)
    for weight in (0, 1 << (levels - 1)):
        for (clean, junk), (other_clean, other_junk) in zip(even, odd, strict=True):
            one = weight * clean + junk
            other = weight * other_clean + other_junk
            if min(one, other) <= 0:
                raise CertificateError("a heap is possible for one pair of inputs only")
            ratio = Fraction(max(one, other) - min(one, other), min(one, other))
            excess = max(excess, ratio)
    if excess > pair_budget + pair_budget**2 / 2:  # which is below e^x − 1
        raise CertificateError(
            f"two parties' inputs show by {float(excess):.3g}; "
            f"at most {float(pair_budget):.3g} was promised"
        )
    return excess


def _check_laws(tables: RadixTables) -> None:
    laws = (tables.even, tables.odd, tables.any_parity)
    if any(sum(law) != tables.whole or min(law) < 0 for law in laws):
        raise CertificateError("a table is no law: it does not add up to one")
    if len({len(law) for law in laws}) != 1 or not 0 < tables.junk < tables.whole:
        raise CertificateError("the tables do not belong together")
    if any(tables.even[1::2]) or any(tables.odd[0::2]):
        raise CertificateError("a table has a number of the wrong parity")


def _pair(tables: RadixTables, parity: int) -> list[tuple[int, int]]:
    """Give (A, J) for every sum of two draws for inputs of one parity, unscaled."""
    clean = fmpz_poly(list(tables.of_parity(parity)))
    junk = fmpz_poly(list(tables.any_parity))
    often, rarely = tables.whole - tables.junk, tables.junk
    without = often * often * clean * clean
    with_junk = rarely * (2 * often * clean * junk + rarely * junk * junk)
    sums = range(2 * tables.width + 1)
    return [(int(without[k]), int(with_junk[k])) for k in sums]
