"""Algorithm 2, the local randomizer: encode, add noise, reduce.

Only integers from the reward on: a double in [0, 1] is a dyadic rational, so that
rounding it at random to a multiple of 1/g with the exact probability is a comparison of
integers. Rewards never appear in an error.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from protocol.bits import bernoulli
from protocol.errors import InputError
from protocol.law import BitSource, Integers, NoiseLaw
from protocol.mechanism import CohortMechanism

Reward = int | float | Decimal | Fraction | np.floating
_LARGEST_PRECISION = 1 << 62
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


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

    x·2⁶⁴ is an integer for every double x ≥ 2⁻¹², and x·2⁶⁴·g is computed in 128 bits:
    its high half is ⌊xg⌋, and the low half over 2⁶⁴ is the probability to round up.
    """
    _check_precision(precision)
    values = np.asarray(rewards)
    if values.ndim != 1 or not np.issubdtype(values.dtype, np.floating):
        raise InputError("rewards", "not a row of floats", "a one-dimensional array")
    if not np.all((values >= 0) & (values <= 1)):
        raise _bad_reward()
    values = values.astype(np.float64)
    scaled = np.ldexp(values, 64)
    # Reward 1 does not fit in 64 bits, tiny rewards have bits below 2⁻⁶⁴.
    plain = (values < 1) & (scaled == np.floor(scaled))
    result = np.full(len(values), precision, dtype=np.int64)
    result[plain] = _round(scaled[plain].astype(np.uint64), precision, bits)
    for place in np.flatnonzero(~plain & (values < 1)).tolist():
        result[place] = encode(float(values[place]), precision, bits)
    return result


def _round(
    fixed: NDArray[np.uint64], precision: int, bits: BitSource
) -> NDArray[np.int64]:
    """Round fixed·g/2⁶⁴ up with probability its fractional part."""
    factor = np.uint64(precision)
    high_fixed, low_fixed = fixed >> _HALF, fixed & _LOW
    high_factor, low_factor = factor >> _HALF, factor & _LOW
    carry = high_fixed * low_factor + (low_fixed * low_factor >> _HALF)
    middle = low_fixed * high_factor + (carry & _LOW)
    whole = high_fixed * high_factor + (carry >> _HALF) + (middle >> _HALF)
    rest = fixed * factor  # modulo 2⁶⁴
    ups = bits.words(len(fixed)) < rest
    return np.asarray(whole + ups, dtype=np.int64)


def randomize(
    reward: Reward, cohort: CohortMechanism, modulus: int, bits: BitSource
) -> int:
    """Give what one user sends: y = (x̂ + η) mod m."""
    _check_modulus(modulus, cohort)
    value = encode(reward, cohort.precision, bits)
    return (value + _draw(cohort.user_noise(), 1, bits)) % modulus


def randomize_node(
    rewards: NDArray[np.floating],
    cohort: CohortMechanism,
    modulus: int,
    bits: BitSource,
) -> int:
    """Give what a node sends for its users: Σ y mod m, in law as if each had sent hers.

    Where the noise is infinitely divisible, the sum of the users' noises is one draw.
    """
    users = len(rewards)
    _check_modulus(modulus, cohort)
    if not 1 <= users <= cohort.cohort_size:
        raise InputError("rewards", f"of {users} users", f"1 … {cohort.cohort_size}")
    total = exact_sum(encode_many(rewards, cohort.precision, bits))
    together = cohort.node_noise(users)
    if together is not None:
        return (total + _draw(together, 1, bits)) % modulus
    return (total + _draw(cohort.user_noise(), users, bits)) % modulus


def _draw(law: NoiseLaw | None, count: int, bits: BitSource) -> int:
    return 0 if law is None else exact_sum(law.sample(count, bits))


def exact_sum(values: Integers) -> int:
    """Add up without overflow: halves of 32 bits, fewer than 2³¹ values."""
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


def _check_modulus(modulus: int, cohort: CohortMechanism) -> None:
    if modulus < cohort.modulus:
        raise InputError("modulus", modulus, f"at least {cohort.modulus}")
