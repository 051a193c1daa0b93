"""Messages are drawn from certified tables; a whole shuffled batch gives the sum."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest

from wallflower.protocol.errors import InputError, MalformedMessageError
from wallflower.protocol.noise.bits import OsBits, SeededBits
from wallflower.protocol.noise.radix import TABLE_BITS, RadixPlan, certified_tables
from wallflower.protocol.secure_sum.shuffle.plan import read_digits, write_digits

PLAN = RadixPlan(16, 8, Fraction(1, 100), Fraction(1, 10**9))


def test_shuffled_batches_of_honest_parties_give_the_sum() -> None:
    values = [0, 255, 128, 77]
    shuffled = [message for v in values for message in write_digits(v, PLAN, OsBits())]
    assert read_digits(shuffled, 4, PLAN) == sum(values) % 256


def test_every_party_sends_the_same_number_of_messages_on_every_level() -> None:
    for value in (0, 200):
        levels = Counter(
            message // 2 for message in write_digits(value, PLAN, OsBits())
        )
        assert levels == dict.fromkeys(range(8), PLAN.width)


@pytest.mark.parametrize("value", [0, 1])
def test_ones_on_a_level_follow_the_table(value: int) -> None:
    plan = RadixPlan(2, 1, Fraction(9, 10), Fraction(1, 2))
    tables, draws = certified_tables(plan), 20_000
    junk = tables.junk / 2**TABLE_BITS
    law = [
        ((1 - junk) * fitting + junk * anything) / 2**TABLE_BITS
        for fitting, anything in zip(
            tables.of_parity(value), tables.any_parity, strict=True
        )
    ]
    bits = SeededBits.derived(14, "digits", value)
    seen = Counter(write_digits(value, plan, bits).count(1) for _ in range(draws))
    # Each count is binomial; 5.5 standard deviations: false alarm 4·10⁻⁸ a value.
    for ones, mass in enumerate(law):
        spread = (draws * mass * (1 - mass)) ** 0.5
        assert abs(seen[ones] - draws * mass) <= 5.5 * spread + 5


def test_junk_makes_the_sum_wrong_as_often_as_planned() -> None:
    plan, runs = RadixPlan(2, 3, Fraction(9, 10), Fraction(1, 2)), 4000
    bits = SeededBits.derived(14, "junk")
    junk_parties = sum(
        read_digits(write_digits(5, plan, bits), 1, plan) != 5 for _ in range(runs)
    )
    # P ≤ 3·q = 1/4; a binomial of 4000 passes 1/4 by 5.5 deviations once in 5·10⁷.
    assert 0 < junk_parties <= runs / 4 + 5.5 * (runs * 3 / 16) ** 0.5


@pytest.mark.parametrize("fault", ["missing", "added", "other level", "no level"])
def test_a_shuffled_batch_that_is_not_whole_gives_no_sum(fault: str) -> None:
    shuffled = write_digits(9, PLAN, OsBits())
    if fault == "missing":
        shuffled.pop()
    elif fault == "added":
        shuffled.append(3)
    else:
        shuffled[0] = 5 if fault == "other level" else 16
    with pytest.raises(MalformedMessageError):
        read_digits(shuffled, 1, PLAN)


@pytest.mark.parametrize("value", [-1, 256])
def test_a_value_outside_the_modulus_is_not_written(value: int) -> None:
    with pytest.raises(InputError):
        write_digits(value, PLAN, OsBits())
