"""The radix-2 randomizer: an integer as one-bit messages that hide all but the sum.

A party writes z ∈ ℤ_{2^L} level by level. On level l it draws k from 0 … d with the
parity of z, sends k messages (l, 1) and d − k messages (l, 0), and goes on with
(z − k)/2. Rarely, with probability q, it draws k without regard to z and goes on with
any number: this *junk* is what keeps the ratio of likelihoods finite where the parity
would otherwise show. From the shuffled batch of everybody's messages only K_l, the
number of ones on level l, can be known, and Σ 2^l K_l = Σ z mod 2^L unless somebody
drew junk.

The laws are integer tables out of 2^512, and what is drawn is exactly their law: what
the certificate proves of a table holds of the messages.

**Theorem.** Let e^{−ep} ≤ (r A₀(K) + J₀(K)) / (r A₁(K) + J₁(K)) ≤ e^{ep} for all K in
{0 … 2d} and all r in [0, 2^{L−1}], with A_p = (1−q)² D_p∗D_p and J_p = 2q(1−q) D_p∗G +
q² G∗G: D_p is the law of k of parity p, G that of junk. Then for inputs of n parties
equal in sum, P(view | y) ≤ e^{L(n−1)ep} P(view | y′).

*Two parties suffice.* n − 1 moves lead from y to y′. Each changes two parties and not
the sum: party i gets its y′_i and party i+1 takes the difference. The other parties'
counts are independent of the two and the same on both sides, and adding independent
counts cannot raise a bound on a ratio. So let n = 2.

*Induction on levels.* Claim: for two parties and L levels the ratio is at most
e^{L·ep}. For L = 0 there is nothing to show. Fix the view: K on the lowest level and
`rest` above. For s in ℤ_{2^{L−1}} let f_s be the largest probability of `rest` over
inputs of the levels above with sum s. By the claim for L−1 the smallest is at least
e^{−(L−1)ep} f_s. If neither party draws junk, they go on with numbers of sum
s* = (Σy − K)/2, the same for y and y′. If at least one draws junk, the sum of their
next numbers is uniform, whatever k₁ and k₂ were. Let f̄ be the mean of f_s over all s,
and A and J the masses of K without and with junk. Then

    P(K, rest | y) ≤ A f_{s*} + J f̄,
    P(K, rest | y′) ≥ e^{−(L−1)ep} (A′ f_{s*} + J′ f̄).

With r = f_{s*}/f̄ in [0, 2^{L−1}] the ratio is at most e^{(L−1)ep} (rA + J)/(rA′ + J′).
The masses depend on the parities of the two inputs alone. Equal sums leave two cases.
(even, even) against (odd, odd) is the condition; (even, odd) against (odd, even) are
the same. ∎

*End to end.* Let the noise make the sum ε′-private, and let M_s and m_s be the largest
and smallest likelihood of a view over inputs of sum s. Then M_s ≤ e^η m_s with
η = L(n−1)ep, and for neighbours D, D′

    P_D(view) ≤ Σ_s P_D(s) M_s ≤ e^{ε′+η} Σ_s P_{D′}(s) m_s ≤ e^{ε′+η} P_{D′}(view).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction

from flint import arb, fmpz_poly

from wallflower.protocol.errors import InputError
from wallflower.protocol.noise.balls import Ball, ball, precision
from wallflower.protocol.numbers import whole

TABLE_BITS = 512
MOST_LEVELS = 62  # a modulus fits signed 64-bit arithmetic
MOST_PARTIES = 10**10
# What a shuffled batch may tell beyond the sum, of ε. A small part costs messages, its
# logarithm; what it takes from the noise costs regret.
SHUFFLED_PART = Fraction(1, 100)
_COARSEST = Fraction(1, 10)  # the formulas below are for small budgets
_JUNK_WIDTH = Fraction(17, 10)  # ρ: junk is √ρ times as wide, so its tails cover


@dataclass(frozen=True, slots=True)
class RadixPlan:
    """What both sides derive from public facts.

    Attributes
    ----------
    parties : n ≥ 2, those who may send; fewer who do lose nothing of the bound.
    levels : L; sums are taken mod 2^L.
    budget : η, the whole log-likelihood ratio between inputs of equal sum.
    wrong : q̂, the probability that any party draws junk, so that the sum is wrong.
    """

    parties: int
    levels: int
    budget: Fraction
    wrong: Fraction

    @classmethod
    def of_cohort(
        cls, cohort_size: int, modulus: int, epsilon: Fraction, wrong: Fraction
    ) -> RadixPlan:
        """Return the plan of a cohort of `shuffle-dp`, of which ε and 2^L are known."""
        levels = (modulus - 1).bit_length()
        return cls(max(2, cohort_size), levels, epsilon * SHUFFLED_PART, wrong / 2)

    def __post_init__(self) -> None:
        whole("parties", self.parties, at_least=2, at_most=MOST_PARTIES)
        whole("levels", self.levels, at_least=1, at_most=MOST_LEVELS)
        for name in ("budget", "wrong"):
            value: Fraction = getattr(self, name)
            if not 0 < value <= 1:
                raise InputError(name, value, "greater than 0 and at most 1")

    @property
    def pair_budget(self) -> Fraction:
        """η/(L(n − 1)): any inputs of equal sum are n − 1 two-party moves apart."""
        share = self.budget / (self.levels * (self.parties - 1))
        return min(share, _COARSEST)

    @property
    def junk(self) -> Fraction:
        """q̂/(nL), the probability of junk on one level of one party."""
        return self.wrong / (self.parties * self.levels)

    @property
    def width(self) -> int:
        """d, messages a level."""
        return _width(self.pair_budget, self.junk)

    @property
    def messages(self) -> int:
        """Messages of one party, d·L."""
        return self.width * self.levels

    @property
    def modulus(self) -> int:
        """2^L."""
        return 1 << self.levels


@dataclass(frozen=True, slots=True)
class RadixTables:
    """Laws on 0 … d as integers that add up to `whole`, which is 2^512.

    Attributes
    ----------
    even, odd : what is drawn for an even and an odd z.
    any_parity : what is drawn as junk.
    junk : q · whole, rounded down.
    """

    even: tuple[int, ...]
    odd: tuple[int, ...]
    any_parity: tuple[int, ...]
    junk: int
    whole: int

    @property
    def width(self) -> int:
        """d, messages a level."""
        return len(self.even) - 1

    def of_parity(self, parity: int) -> tuple[int, ...]:
        """Return the law for z ≡ parity mod 2."""
        return self.odd if parity else self.even


def _spread_squared(pair_budget: Fraction) -> Ball:
    """σ_v² = ln(4.4/ep)/π²: two parties' parities show below ep from here on."""
    return (ball(Fraction(44, 10)) / ball(pair_budget)).log() / arb.pi() ** 2


@functools.lru_cache(maxsize=4096)
def _width(pair_budget: Fraction, junk: Fraction) -> int:
    """d = round(4C): beyond C the tails of the laws lie below ep·q times the junk's.

    C = σ_v (√(4ρ³/(ρ²−1)·(ln 1/q + Le)) + √(2 Le ρ/(1+ρ))), Le = ln(1/ep) + 1. The
    proof does not rest on this choice: the certificate would refuse a d too small.
    """
    with precision(256):
        rho = ball(_JUNK_WIDTH)
        rarity = -ball(junk).log()
        closeness = 1 - ball(pair_budget).log()
        reach = (4 * rho**3 / (rho**2 - 1) * (rarity + closeness)).sqrt()
        reach += (2 * closeness * rho / (1 + rho)).sqrt()
        rounded = (4 * _spread_squared(pair_budget).sqrt() * reach + arb(0.5)).floor()
        return int(rounded.unique_fmpz())


def uncertified_tables(plan: RadixPlan, bits: int = TABLE_BITS) -> RadixTables:
    """Make the laws of a plan; use them only as `certified_tables` gives them."""
    width, junk = plan.width, plan.junk
    with precision(bits + 128):
        variance = 4 * _spread_squared(plan.pair_budget)
        return RadixTables(
            _gaussian(width, variance, range(0, width + 1, 2), bits),
            _gaussian(width, variance, range(1, width + 1, 2), bits),
            _gaussian(width, variance * ball(_JUNK_WIDTH), range(width + 1), bits),
            (junk.numerator << bits) // junk.denominator,
            1 << bits,
        )


def _gaussian(width: int, variance: Ball, support: range, bits: int) -> tuple[int, ...]:
    """Return a discrete Gaussian about d/2 on `support`, in integers of sum 2^bits."""
    weights = {k: (-(arb(2 * k - width) ** 2) / (8 * variance)).exp() for k in support}
    total = sum(weights.values(), arb(0))
    masses = [0] * (width + 1)
    for k, weight in weights.items():
        share = weight / total * arb(2) ** bits
        masses[k] = int(share.lower().floor().unique_fmpz())
    # What rounding down left over goes where it weighs least.
    middle = min(support, key=lambda k: (abs(2 * k - width), k))
    masses[middle] += (1 << bits) - sum(masses)
    return tuple(masses)


# --- The certificate: a proof by exact integers that a table keeps its promise.
#
# Take two parties with inputs of equal sum, and one level. Split the law of k₁ + k₂
# into A, neither drew junk, and J, the rest. After A the sum of what they go on with is
# known, after J it is uniform on 2^l values; so whatever the levels above show weighs A
# by some r between 0 and 2^l, the same for both pairs of inputs. The level therefore
# adds at most
#
#     max over r and sums of |ln((rA + J)/(rA′ + J′))|
#
# to the log-likelihood ratio. The quotient is monotone in r, so r = 0 and r = 2^(L−1)
# decide. Only the parities of the inputs matter, and (even, odd) is (odd, even) for the
# shuffled batch: what is to be compared is (even, even) with (odd, odd).


class CertificateError(ArithmeticError):
    """A table of noise does not keep the bound it was made for; it must not be used."""


@functools.lru_cache(maxsize=128)
def certified_tables(plan: RadixPlan, bits: int = TABLE_BITS) -> RadixTables:
    """Return the laws to draw from, which have passed; made once."""
    tables = uncertified_tables(plan, bits)
    certify(tables, plan.pair_budget, plan.levels)
    return tables


def certify(tables: RadixTables, pair_budget: Fraction, levels: int) -> Fraction:
    """Return the largest ratio minus one, which bounds the logarithm; raise if too
    large.

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
                raise CertificateError(
                    "a shuffled batch is possible for one pair of inputs only"
                )
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
    """Return (A, J) for every sum of two draws for inputs of one parity, unscaled."""
    clean = fmpz_poly(list(tables.of_parity(parity)))
    junk = fmpz_poly(list(tables.any_parity))
    often, rarely = tables.whole - tables.junk, tables.junk
    without = often * often * clean * clean
    with_junk = rarely * (2 * often * clean * junk + rarely * junk * junk)
    sums = range(2 * tables.width + 1)
    return [(int(without[k]), int(with_junk[k])) for k in sums]


# --- What a statistical distance costs as a δ.
#
# If a law P′ differs from a law P that is ε-private by at most t in statistical
# distance, whatever the input, then P′ is (ε, (1 + e^ε)·t)-private: P′(S) ≤ P(S) + t,
# and P(S) ≤ e^ε·P₂(S) ≤ e^ε·(P₂′(S) + t).


# Most that one cohort may add to δ, where something in it may fail.
PRIVACY_DELTA = Fraction(1, 2**40)
LARGEST_EPSILON = 32  # beyond it nothing is promised anyway, and e^ε has no end


def distance_bits(epsilon: Fraction) -> int:
    """Return the smallest σ with (1 + e^ε)·2^−σ ≤ 2⁻⁴⁰.

    Examples
    --------
    >>> distance_bits(Fraction(1))
    42
    """
    if epsilon > LARGEST_EPSILON:
        raise InputError("epsilon", epsilon, f"at most {LARGEST_EPSILON} when mixed")
    factor = math.ceil(1 + math.exp(epsilon) * (1 + 1e-9))
    return (factor * PRIVACY_DELTA.denominator - 1).bit_length()
