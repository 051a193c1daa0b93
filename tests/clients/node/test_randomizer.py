"""Algorithm 2: exact rounding, the node's form, nothing secret in errors."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from tests.support.statistics import FALSE_ALARM_RATE
from wallflower.clients.node.randomizer import (
    encode,
    encode_many,
    encode_one,
    exact_sum,
    randomize,
    randomize_node,
)
from wallflower.protocol.errors import InputError
from wallflower.protocol.noise.bits import OsBits, SeededBits
from wallflower.protocol.privacy.mechanism import CohortMechanism, mechanism_named

WRAP = Fraction(1, 10**6)


def cohort(name: str, users: int = 24, floor: int = 20) -> CohortMechanism:
    return mechanism_named(name, Fraction(1)).for_cohort(users, floor, WRAP)


class FixedBits:
    """Return the same word again and again, to decide a rounding by hand."""

    def __init__(self, word: int) -> None:
        self.word = word

    def words(self, count: int) -> np.typing.NDArray[np.uint64]:
        return np.full(count, self.word, dtype=np.uint64)


@pytest.mark.parametrize("reward", [0, 1, 0.0, 1.0, Fraction(1, 2), Decimal("0.25")])
def test_a_multiple_of_the_step_is_not_rounded(reward: float) -> None:
    assert encode(reward, 4, FixedBits(0)) == Fraction(reward) * 4
    assert encode(reward, 4, FixedBits(2**64 - 1)) == Fraction(reward) * 4


def test_a_double_is_rounded_with_its_exact_probability() -> None:
    # 0.1 is 3602879701896397/2^55; times 3 it leaves 10808639105689191/2^55.
    threshold = 10808639105689191 << 9
    for form in (
        encode,
        encode_one,
        lambda x, g, b: int(encode_many(np.array([x]), g, b)[0]),
    ):
        assert form(0.1, 3, FixedBits(threshold - 1)) == 1
        assert form(0.1, 3, FixedBits(threshold)) == 0


@pytest.mark.parametrize("precision", [1, 3, 1000, (1 << 40) + 7, (1 << 61) + 1])
def test_all_forms_round_alike_for_the_same_word(precision: int) -> None:
    generator = np.random.default_rng(3)
    tiny = np.ldexp(generator.random(200), -generator.integers(0, 1080, 200))
    rewards = np.concatenate([generator.random(200), tiny, 2.0 ** -np.arange(0, 99)])
    words = generator.integers(0, 2**64, len(rewards), dtype=np.uint64)
    for reward, word in zip(rewards.tolist(), words.tolist(), strict=True):
        fixed = Fraction(reward) * precision
        whole = math.floor(fixed)
        expected = whole + (Fraction(word, 2**64) < fixed - whole)
        assert encode_many(np.array([reward]), precision, FixedBits(word)) == expected
        assert encode_one(reward, precision, FixedBits(word)) == expected


def test_tiny_rewards_keep_all_their_bits() -> None:
    tiny = 5e-324
    assert encode_many(np.array([tiny]), 7, FixedBits(2**64 - 1))[0] == 0
    assert encode_many(np.array([tiny]), 7, FixedBits(0))[0] == 1
    assert encode(tiny, 7, FixedBits(0)) == 1
    assert encode_one(tiny, 7, FixedBits(0)) == 1
    assert encode_one(tiny, 7, FixedBits(2**64 - 1)) == 0


def test_rounding_is_unbiased() -> None:
    rewards = np.full(100_000, 0.3)
    ups = int((encode_many(rewards, 7, SeededBits(2)) == 3).sum())
    share = Fraction(0.3) * 7 - 2
    assert stats.binomtest(ups, len(rewards), float(share)).pvalue > FALSE_ALARM_RATE


@pytest.mark.parametrize(
    "reward",
    [math.nan, math.inf, -math.inf, -1e-300, 1.0000000000000002, 7.234567,
     Decimal("NaN"), Decimal("-1"), Fraction(7234567, 10**6), "0.5", None, True],
)  # fmt: skip
def test_a_bad_reward_is_refused_without_being_shown(reward: object) -> None:
    with pytest.raises(InputError) as caught:
        encode(reward, 10, OsBits())  # type: ignore[arg-type]
    assert str(caught.value) == (
        "reward is not within range (not shown); allowed: a number from 0 to 1"
    )
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize("bad", [math.nan, 7.234567, -0.1, math.inf])
def test_one_bad_reward_refuses_the_node_without_being_shown(bad: float) -> None:
    with pytest.raises(InputError) as caught:
        encode_many(np.array([0.5, bad, 0.1]), 10, OsBits())
    assert "7.23" not in repr(caught.value)
    assert "nan" not in str(caught.value)
    with pytest.raises(InputError, match="not shown"):
        encode_one(bad, 10, OsBits())


@pytest.mark.parametrize("name", ["dist-dp", "dist-rdp", "dist-cdp", "local-dp"])
def test_a_node_sends_the_sum_of_its_users_in_law(name: str) -> None:
    """Both forms against each other: χ² of two samples at the stated rate."""
    mechanism = cohort(name)
    rewards = np.array([0.0, 1.0, 0.3, 0.77])
    draws = 1000
    modulus = mechanism.modulus
    bits = SeededBits.derived(11, name)
    together = [randomize_node(rewards, mechanism, modulus, bits) for _ in range(draws)]
    singly = [
        sum(randomize(float(r), mechanism, modulus, bits) for r in rewards) % modulus
        for _ in range(draws)
    ]
    samples = [centred(together, modulus), centred(singly, modulus)]
    edges = np.unique(np.quantile(np.concatenate(samples), np.arange(1, 20) / 20))
    cells = [np.searchsorted(edges, sample) for sample in samples]
    table = [np.bincount(cell, minlength=len(edges) + 1) for cell in cells]
    used = np.array(table)[:, np.sum(table, axis=0) > 0]
    assert stats.chi2_contingency(used).pvalue > FALSE_ALARM_RATE


def centred(values: list[int], modulus: int) -> np.typing.NDArray[np.int64]:
    half = modulus // 2
    return (np.array(values, dtype=np.int64) + half) % modulus - half


def test_central_users_add_no_noise() -> None:
    mechanism = cohort("central-dp")
    rewards = np.ones(24)
    assert (
        randomize_node(rewards, mechanism, mechanism.modulus, OsBits())
        == 24 * mechanism.precision
    )


def test_sums_near_the_largest_modulus_do_not_overflow() -> None:
    values = np.full(1000, 2**62 - 1, dtype=np.int64)
    assert exact_sum(values) == 1000 * (2**62 - 1)
    assert exact_sum(-values) == -1000 * (2**62 - 1)
    mechanism = cohort("local-dp")
    value = randomize_node(np.zeros(24), mechanism, 2**62, SeededBits(4))
    assert value < 2**20 or value > 2**62 - 2**20


def test_a_modulus_too_small_for_the_cohort_is_refused() -> None:
    mechanism = cohort("dist-dp")
    with pytest.raises(InputError, match="modulus"):
        randomize(0.5, mechanism, mechanism.modulus - 1, OsBits())


def test_more_users_than_the_cohort_are_refused() -> None:
    mechanism = cohort("dist-dp")
    with pytest.raises(InputError, match="25 users"):
        randomize_node(np.zeros(25), mechanism, mechanism.modulus, OsBits())
