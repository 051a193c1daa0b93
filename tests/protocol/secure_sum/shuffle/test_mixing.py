"""Split and mix: the bound on k, against exact laws of small cases and the paper."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest

from wallflower.protocol.errors import InputError, MalformedMessageError
from wallflower.protocol.noise.bits import OsBits, SeededBits
from wallflower.protocol.secure_sum.shuffle.mixing import (
    excess,
    join,
    shares_for,
    split,
)

Shuffled = tuple[int, ...]  # how often each residue occurs


def party_law(value: int, shares: int, modulus: int) -> Counter[Shuffled]:
    """Count the ways to split `value`, by the shuffled batch that they give."""
    law: Counter[Shuffled] = Counter()
    for parts in itertools.product(range(modulus), repeat=shares - 1):
        shuffled = [0] * modulus
        for part in (*parts, (value - sum(parts)) % modulus):
            shuffled[part] += 1
        law[tuple(shuffled)] += 1
    return law


def shuffled_law(
    values: tuple[int, ...], shares: int, modulus: int
) -> Counter[Shuffled]:
    law: Counter[Shuffled] = Counter({(0,) * modulus: 1})
    for value in values:
        further: Counter[Shuffled] = Counter()
        for shuffled, count in law.items():
            for extra, ways in party_law(value, shares, modulus).items():
                total = tuple(a + b for a, b in zip(shuffled, extra, strict=True))
                further[total] += count * ways
        law = further
    return law


def largest_distance(parties: int, shares: int, modulus: int) -> Fraction:
    """Return the exact worst statistical distance between inputs of equal sum."""
    by_sum: dict[int, list[Counter[Shuffled]]] = {}
    for values in itertools.combinations_with_replacement(range(modulus), parties):
        law = shuffled_law(values, shares, modulus)
        by_sum.setdefault(sum(values) % modulus, []).append(law)
    worst = 0
    for laws in by_sum.values():
        for one, other in itertools.combinations(laws, 2):
            shuffled_batches = one.keys() | other.keys()
            worst = max(
                worst,
                sum(
                    abs(one[shuffled] - other[shuffled])
                    for shuffled in shuffled_batches
                ),
            )
    return Fraction(worst, 2 * modulus ** (parties * (shares - 1)))


@pytest.mark.parametrize(
    ("parties", "shares", "modulus"),
    [
        *[(2, 4, 2), (2, 7, 2), (4, 5, 2), (8, 6, 2)],
        *[(2, 5, 3), (3, 5, 3), (5, 4, 3), (3, 4, 4), (2, 4, 5)],
    ],
)
def test_shuffled_batches_differ_by_no_more_than_the_bound(
    parties: int, shares: int, modulus: int
) -> None:
    bound = excess(parties, shares, modulus)
    assert bound is not None
    assert 0 < largest_distance(parties, shares, modulus) ** 2 <= bound


@pytest.mark.parametrize(("points", "shares"), [(2, 3), (3, 3), (4, 3), (3, 4)])
def test_the_expectation_is_that_of_the_components_of_random_permutations(
    points: int, shares: int
) -> None:
    modulus, total, count = 5, Fraction(0), 0
    orders = list(itertools.permutations(range(points)))
    for chosen in itertools.product(orders, repeat=shares - 1):
        total += modulus ** (components(points, chosen) - 1)
        count += 1
    bound = excess(points, shares, modulus)
    assert bound is not None
    assert 0 <= bound - (total / count - 1) < Fraction(1, 10**60)


def components(points: int, orders: tuple[tuple[int, ...], ...]) -> int:
    label = list(range(points))
    for order in orders:
        for here, there in enumerate(order):
            old, new = label[here], label[there]
            label = [new if one == old else one for one in label]
    return len(set(label))


@pytest.mark.parametrize("parties", [48, 60, 97])
def test_the_bound_for_many_parties_stands_above_the_expectation_computed_in_full(
    parties: int,
) -> None:
    shares, modulus = 9, 2**12
    values = [Fraction(1), Fraction(1)]
    for size in range(2, parties + 1):
        extra = Fraction(0)
        for leaving in range(1, size):
            weight = Fraction((modulus + 1) * leaving, size) - 1
            term = weight * values[-leaving] / math.comb(size, leaving) ** (shares - 2)
            extra += Fraction(round(term * 2**300) + 1, 2**300)
        values.append(1 + extra)
    bound = excess(parties, shares, modulus)
    assert bound is not None
    assert values[parties] - 1 <= bound <= Fraction(11, 10) * (values[parties] - 1)


def published(parties: int, modulus: int, bits: int) -> int:
    """Balle, Bell, Gascón and Nissim 2020, for the worst input and n ≥ 19."""
    needed = 2 * bits + math.log2(modulus)
    return math.ceil(needed / (math.log2(parties) - math.log2(math.e))) + 2


@pytest.mark.parametrize("length", [10, 20, 32])
@pytest.mark.parametrize("exponent", [5, 8, 12, 16, 20])
def test_never_more_shares_are_asked_for_than_by_the_published_theorem(
    exponent: int, length: int
) -> None:
    ours = shares_for(2**exponent, 2**length, 40)
    assert ours <= published(2**exponent, 2**length, 40)


@pytest.mark.parametrize(
    ("parties", "theirs", "ours"), [(64, 24, 19), (256, 18, 15), (4096, 12, 11)]
)
def test_the_documented_savings_over_the_published_theorem_are_computed(
    parties: int, theirs: int, ours: int
) -> None:
    assert published(parties, 2**20, 40) == theirs
    assert shares_for(parties, 2**20, 40) == ours
    said = (Path(__file__).parents[4] / "docs" / "shuffling.md").read_text("utf-8")
    assert f"n = {parties:,}: {ours} instead of {theirs}" in " ".join(said.split())


def test_the_example_of_the_paper_ten_thousand_parties_and_32_bits() -> None:
    # Its abstract says 12, which settles that its theorem adds 2, and not 1.
    assert published(10**4, 2**32, 40) == 12
    assert shares_for(10**4, 2**32, 40) == 11


@pytest.mark.parametrize(
    ("parties", "shares"), [(2, 101), (12, 30), (64, 19), (256, 15), (4096, 11)]
)
def test_shares_of_twenty_bits_at_two_to_the_minus_forty(
    parties: int, shares: int
) -> None:
    assert shares_for(parties, 2**20, 40) == shares
    fewer = excess(parties, shares - 1, 2**20)
    assert fewer is None or fewer > Fraction(1, 4**40)


def test_shares_add_up_to_the_value_and_shuffled_batches_to_the_sum() -> None:
    values, modulus = [0, 5, 1022], 1023
    shuffled = [share for v in values for share in split(v, 4, modulus, OsBits())]
    assert join(shuffled, 12, modulus) == sum(values) % modulus


def test_each_share_alone_is_uniform() -> None:
    # 4 shares, 6 residues: chi-square of 5 degrees each; false alarm 4·10⁻⁶.
    rows = [split(3, 4, 6, SeededBits.derived(1, i)) for i in range(6000)]
    for column in zip(*rows, strict=True):
        counts = Counter(column)
        assert sum((counts[r] - 1000) ** 2 / 1000 for r in range(6)) < 33.1


@pytest.mark.parametrize("shuffled", [[1, 2], [1, 2, 3, 4], [1, 2, 7], [1, 2, -1]])
def test_a_shuffled_batch_that_is_not_whole_gives_no_sum(shuffled: list[int]) -> None:
    with pytest.raises(MalformedMessageError):
        join(shuffled, 3, 7)


@pytest.mark.parametrize("value", [-1, 7])
def test_a_value_outside_the_modulus_is_not_split(value: int) -> None:
    with pytest.raises(InputError) as caught:
        split(value, 3, 7, OsBits())
    assert str(value) not in str(caught.value).split("allowed")[0]
