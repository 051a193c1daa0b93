"""Shuffled radix-2 messages tell the sum and nothing else: laws of small cohorts."""

from __future__ import annotations

import functools
import itertools
import math
from fractions import Fraction
from typing import Any

import pytest
from flint import fmpz_poly

from wallflower.protocol.errors import InputError
from wallflower.protocol.noise.radix import RadixPlan, certified_tables

BITS = 80  # of the tables: the whole law of four parties stays small
Law = Any  # a flint.fmpz_poly
# of K₀ + K₁·stride, in units of the party's own scale


def plan_of(parties: int, levels: int) -> RadixPlan:
    """Return a plan so coarse that its whole law can be written down."""
    return RadixPlan(parties, levels, Fraction(9, 10), Fraction(1, 2))


def stride(plan: RadixPlan) -> int:
    return plan.parties * plan.width + 1


@functools.cache
def party_law(value: int, plan: RadixPlan) -> Law:
    """Follow the definition: level 0, then whatever is left on level 1."""
    tables, step = certified_tables(plan, BITS), stride(plan)
    often, rarely = tables.whole - tables.junk, tables.junk

    def last(bit: int) -> list[int]:
        law = tables.of_parity(bit)
        return [
            often * a + rarely * b for a, b in zip(law, tables.any_parity, strict=True)
        ]

    if plan.levels == 1:
        return fmpz_poly(last(value))
    masses = [0] * (step * (plan.width + 1))
    for ones in range(plan.width + 1):
        fitting = often * tables.of_parity(value & 1)[ones]
        junk = rarely * tables.any_parity[ones]
        above = last((value - ones) // 2 % 2)
        for higher, (even, odd) in enumerate(zip(last(0), last(1), strict=True)):
            mass = 2 * fitting * above[higher] + junk * (even + odd)
            masses[ones + step * higher] = mass
    return fmpz_poly(masses)


def scale(plan: RadixPlan) -> int:
    """Return what one party's law adds up to."""
    return int(sum(party_law(0, plan).coeffs()))


@functools.cache
def shuffled_law(values: tuple[int, ...], plan: RadixPlan) -> list[int]:
    product = functools.reduce(
        lambda law, value: law * party_law(value, plan), values, fmpz_poly([1])
    )
    return list(product.coeffs())


CASES = [(2, 1), (3, 1), (4, 1), (2, 2), (3, 2), (4, 2)]


def loss(laws: list[list[int]]) -> float:
    """Return the largest |ln| of the ratio of any two laws, rounded up by 2⁻⁶⁰."""
    worst = 1 << 64
    for masses in zip(*laws, strict=True):
        low, high = min(masses), max(masses)
        assert (low == 0) == (high == 0)
        if high > low:
            worst = max(worst, int((high << 64) // low) + 1)
    return math.log(worst / 2**64)


@pytest.mark.parametrize(("parties", "levels"), CASES)
def test_inputs_of_equal_sum_give_shuffled_batches_of_nearly_equal_likelihood(
    parties: int, levels: int
) -> None:
    plan, by_sum = plan_of(parties, levels), dict[int, list[list[int]]]()
    inputs = itertools.combinations_with_replacement(range(plan.modulus), parties)
    for values in inputs:
        law = shuffled_law(values, plan)
        by_sum.setdefault(sum(values) % plan.modulus, []).append(law)
    worst = max(loss(laws) for laws in by_sum.values())
    assert 0 < worst <= plan.budget


@pytest.mark.parametrize(("parties", "levels"), CASES)
def test_the_sum_is_wrong_no_more_often_than_stated(parties: int, levels: int) -> None:
    plan = plan_of(parties, levels)
    step = stride(plan) if levels == 2 else 10**9
    for values in itertools.combinations_with_replacement(range(plan.modulus), parties):
        right = sum(
            mass
            for index, mass in enumerate(shuffled_law(values, plan))
            if (index % step + 2 * (index // step) - sum(values)) % plan.modulus == 0
        )
        assert 1 - Fraction(int(right), scale(plan) ** parties) <= plan.wrong


@pytest.mark.parametrize("parties", [2, 3, 4])
def test_replacing_one_reward_moves_the_shuffled_batch_by_the_noise_and_the_budget(
    parties: int,
) -> None:
    plan = plan_of(parties, 2)
    # What a user adds mod 4, in 64ths; any noise will do to see the two add up.
    noise = (46, 8, 2, 8)

    def noised(value: int) -> Law:
        laws = [noise[i] * party_law((value + i) % 4, plan) for i in range(4)]
        return sum(laws[1:], laws[0])

    def sum_law(values: tuple[int, ...]) -> list[int]:
        law = [1, 0, 0, 0]
        for value in values:
            law = [
                sum(law[(s - value - i) % 4] * noise[i] for i in range(4))
                for s in range(4)
            ]
        return law

    def view(values: tuple[int, ...]) -> list[int]:
        product = functools.reduce(
            lambda law, value: law * noised(value), values, fmpz_poly([1])
        )
        return list(product.coeffs())

    for rest in itertools.combinations_with_replacement((0, 1), parties - 1):
        of_sum = loss([sum_law((0, *rest)), sum_law((1, *rest))])
        of_messages = loss([view((0, *rest)), view((1, *rest))])
        assert of_messages <= of_sum + float(plan.budget)


@pytest.mark.parametrize(
    "change",
    [{"parties": 1}, {"levels": 0}, {"levels": 63}, {"budget": 0}, {"wrong": 2}],
)
def test_a_plan_outside_its_range_is_refused(change: dict[str, int]) -> None:
    facts = {"parties": 4, "levels": 2, "budget": Fraction(1, 9)}
    facts |= {"wrong": Fraction(1, 9)}
    with pytest.raises(InputError, match=next(iter(change))):
        RadixPlan(**(facts | change))  # type: ignore[arg-type]
