"""Algorithm 2, the local randomizer: encode, add noise, reduce.

Only integers from the reward on: a double in [0, 1] is a dyadic rational, so that
rounding it at random to a multiple of 1/g with the exact probability is a comparison of
integers. Rewards never appear in an error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from wallflower.clients.rewards.source import Doubles
from wallflower.protocol.errors import InputError
from wallflower.protocol.noise.bits import BitSource, Integers, OsBits, bernoulli
from wallflower.protocol.noise.law import NoiseLaw
from wallflower.protocol.noise.table import STEADY
from wallflower.protocol.privacy.mechanism import CohortMechanism
from wallflower.protocol.rewards.seeded import noise_bits
from wallflower.protocol.secure_sum.backends import summing_modulus
from wallflower.protocol.wire.cohort_pb2 import CohortSpec

Reward = int | float | Decimal | Fraction | np.floating
_LARGEST_PRECISION = 1 << 62
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_ONE = np.uint64(1)
_WORD = 2**64 - 1
_TWO_53 = 2.0**53


class Randomize(Protocol):
    """Algorithm 2 for a node's users at once: encode, add noise, reduce, add up."""

    def __call__(
        self,
        spec: CohortSpec,
        mechanism: CohortMechanism,
        users: Sequence[str],
        rewards: Doubles,
    ) -> int:
        """Return Σ y, modulo the cohort's modulus where its sum has one."""
        ...


def encode(reward: Reward, precision: int, bits: BitSource) -> int:
    """Round a reward to x̂ = ⌊xg⌋ + Ber(xg − ⌊xg⌋), so that E x̂ = xg exactly.

    Parameters
    ----------
    reward : x in [0, 1].
    precision : g.
    bits : decides the rounding.

    Raises
    ------
    InputError
        For a reward outside [0, 1] or NaN; its text does not hold the reward.
    """
    _check_precision(precision)
    scaled = _exact_reward(reward) * precision
    whole, rest = divmod(scaled.numerator, scaled.denominator)
    return whole + bernoulli(rest, scaled.denominator, bits)


def encode_many(
    rewards: NDArray[np.floating], precision: int, bits: BitSource
) -> Integers:
    """Round many rewards, independently and each exactly as `encode` does.

    A double is x = M·2^−s with an integer M, and so xg = Mg/2^s. Of that the integer
    part and the first 64 bits of the fraction are computed in 192 bits; one word each
    decides. Steps and words are the same for all rewards; only a word that agrees with
    all 64 bits of a longer fraction, once in 2⁶⁴, asks for more.
    """
    _check_precision(precision)
    values = np.asarray(rewards)
    if values.ndim != 1 or values.dtype.kind != "f":
        raise InputError("rewards", "not a row of floats", "a one-dimensional array")
    if not ((values >= 0) & (values <= 1)).all():
        raise _bad_reward()
    values = values.astype(np.float64, copy=False)
    whole, rest, more = _scale_rewards(values, precision)
    words = bits.words(len(values))
    result = np.asarray(whole + (words < rest), dtype=np.int64)
    for place in (more & (words == rest)).nonzero()[0].tolist():
        beyond = Fraction(float(values[place])) * precision * 2**64 % 1
        result[place] += bernoulli(beyond.numerator, beyond.denominator, bits)
    return result


def encode_one(reward: float, precision: int, bits: BitSource) -> int:
    """Round one reward by the same steps, without arrays of one entry.

    Integers of any length do what 192 bits do there: (high, low, 0) is Mg·2⁶⁴.
    """
    _check_precision(precision)
    if not 0 <= reward <= 1:
        raise _bad_reward()
    half, exponent = math.frexp(reward)
    product = int(half * _TWO_53) * precision << 64
    shift = 53 - exponent
    scaled = product >> shift
    word, rest = int(bits.words(1)[0]), scaled & _WORD
    result = (scaled >> 64) + (word < rest)
    if (scaled << shift != product) & (word == rest):
        beyond = Fraction(reward) * precision * 2**64 % 1
        result += bernoulli(beyond.numerator, beyond.denominator, bits)
    return result


def _scale_rewards(
    values: NDArray[np.float64], precision: int
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.bool_]]:
    """Return ⌊xg⌋, the first 64 bits of its fraction, and whether more follow."""
    halves, exponents = np.frexp(values)
    high, low = _product(np.ldexp(halves, 53).astype(np.uint64), precision)
    # Mg·2⁶⁴ is (high, low, 0) in words; Mg < 2¹¹⁵, so beyond 191 nothing is left.
    shift = np.minimum(53 - exponents, 191).astype(np.uint64)
    words, bits = shift >> np.uint64(6), shift & np.uint64(63)
    none, one, two = words == 0, words == 1, words == 2
    top = none * high
    middle = none * low + one * high
    bottom = one * low + two * high
    below = two * low
    # A shift by 64 − bits, in two parts because one by 64 is not defined.
    lift = np.uint64(63) - bits
    whole = middle >> bits | top << lift << _ONE
    rest = bottom >> bits | middle << lift << _ONE
    return whole, rest, (bottom << lift << _ONE | below) != 0


def _product(
    numbers: NDArray[np.uint64], precision: int
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return number·g in 128 bits: the high and the low half."""
    factor = np.uint64(precision)
    high_number, low_number = numbers >> _HALF, numbers & _LOW
    high_factor, low_factor = factor >> _HALF, factor & _LOW
    carry = high_number * low_factor + (low_number * low_factor >> _HALF)
    middle = low_number * high_factor + (carry & _LOW)
    high = high_number * high_factor + (carry >> _HALF) + (middle >> _HALF)
    return high, numbers * factor  # the low half modulo 2⁶⁴


def randomize(
    reward: Reward, cohort: CohortMechanism, modulus: int | None, bits: BitSource
) -> int:
    """Return what one user sends: y = (x̂ + η) mod m; without a modulus y in ℤ."""
    value = encode(reward, cohort.precision, bits)
    return _reduce(value + _draw(cohort.user_noise(), 1, bits), modulus, cohort)


def randomize_node(
    rewards: NDArray[np.floating],
    cohort: CohortMechanism,
    modulus: int | None,
    bits: BitSource,
) -> int:
    """Return what a node sends for its users: Σ y mod m, in law as if each sent their
    own.

    Without a modulus (a sealed sum adds up in ℤ) nothing is reduced. Where the noise is
    infinitely divisible, the sum of the users' noises is one draw.
    """
    users = len(rewards)
    if not 1 <= users <= cohort.cohort_size:
        raise InputError("rewards", f"of {users} users", f"1 … {cohort.cohort_size}")
    total = _encode(rewards, cohort.precision, bits)
    together = cohort.node_noise(users)
    if together is not None:
        return _reduce(total + _draw(together, 1, bits), modulus, cohort)
    noise = _draw(cohort.user_noise(), users, bits)
    return _reduce(total + noise, modulus, cohort)


def _encode(rewards: NDArray[np.floating], precision: int, bits: BitSource) -> int:
    if len(rewards) == 1:
        return encode_one(float(rewards[0]), precision, bits)
    return exact_sum(encode_many(rewards, precision, bits))


def _draw(law: NoiseLaw | None, count: int, bits: BitSource) -> int:
    if law is None:
        return 0
    if count <= STEADY:
        return exact_sum(law.sample(count, bits))
    # In pieces that a table draws steadily: see `protocol.noise.table`.
    pieces = (min(STEADY, count - start) for start in range(0, count, STEADY))
    return sum(exact_sum(law.sample(piece, bits)) for piece in pieces)


def exact_sum(values: Integers) -> int:
    """Add up without overflow: halves of 32 bits, fewer than 2³¹ values."""
    if len(values) == 1:
        return int(values[0])
    high = int((values >> 32).sum())
    low = int((values & 0xFFFFFFFF).sum())
    return (high << 32) + low


def _exact_reward(reward: Reward) -> Fraction:
    if isinstance(reward, bool) or not isinstance(
        reward, int | float | Decimal | Fraction | np.floating
    ):
        raise _bad_reward()
    try:
        value = Fraction(float(reward) if isinstance(reward, np.floating) else reward)
    except (ValueError, OverflowError):
        raise _bad_reward() from None
    if not 0 <= value <= 1:
        raise _bad_reward()
    return value


def _bad_reward() -> InputError:
    # The reward is a person's secret even when it is wrong.
    return InputError("reward", "not within range (not shown)", "a number from 0 to 1")


def _check_precision(precision: int) -> None:
    if not 1 <= precision <= _LARGEST_PRECISION:
        raise InputError("precision", precision, "1 … 2^62")


def _reduce(value: int, modulus: int | None, cohort: CohortMechanism) -> int:
    if modulus is None:
        return value
    if modulus < cohort.modulus:
        raise InputError("modulus", modulus, f"at least {cohort.modulus}")
    return value % modulus


def real_randomizer(bits: BitSource | None = None) -> Randomize:
    """Randomize with the operating system's bits; a node's noise is one draw."""
    source = bits if bits is not None else OsBits()

    def randomize_sum(
        spec: CohortSpec,
        mechanism: CohortMechanism,
        users: Sequence[str],
        rewards: Doubles,
    ) -> int:
        return randomize_node(rewards, mechanism, summing_modulus(spec), source)

    return randomize_sum


def seeded_randomizer(seed: int, node_id: str) -> Randomize:
    """TEST ONLY: every user's rounding and noise follow from the seed.

    Users are randomized one by one, so that the sum does not depend on which of them
    share a node or answer.
    """

    def randomize_sum(
        spec: CohortSpec,
        mechanism: CohortMechanism,
        users: Sequence[str],
        rewards: Doubles,
    ) -> int:
        total, modulus = 0, summing_modulus(spec)
        for user, reward in zip(users, rewards.tolist(), strict=True):
            bits = noise_bits(seed, node_id, user, spec.batch, spec.arm)
            total += randomize(reward, mechanism, modulus, bits)
        return total if modulus is None else total % modulus

    return randomize_sum
