"""How many users per arm each batch asks for: geometric sizes, computed exactly.

Algorithm 1 of the paper uses l(b) = 2^b. Any rational ratio above 1 keeps the same
regret up to a constant; a first size skips the batches that cannot separate anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from wallflower.protocol.errors import InputError

_BITS = 256  # behind the point


@dataclass(frozen=True, slots=True)
class Schedule:
    """Batch sizes ⌈ratio^b⌉, or ⌈first · ratio^(b−1)⌉ where a first size is given.

    Examples
    --------
    >>> [Schedule(Fraction(2)).size(b) for b in (1, 2, 3)]
    [2, 4, 8]
    >>> [Schedule(Fraction(3, 2), first=10).size(b) for b in (1, 2, 3)]
    [10, 15, 23]
    """

    ratio: Fraction
    first: int | None = None

    def __post_init__(self) -> None:
        if not 1 < self.ratio <= 100:
            raise InputError("ratio", self.ratio, "greater than 1 and at most 100")
        if self.first is not None and self.first < 1:
            raise InputError("first-batch", self.first, "a whole number of at least 1")

    def size(self, batch: int) -> int:
        """Users per active arm in batch `batch`, counted from 1."""
        if batch < 1:
            raise InputError("batch", batch, "a whole number of at least 1")
        return _size(self.ratio, self.first, batch)

    def batches_within(self, users: int) -> int:
        """How many whole batches one arm can be in before `users` users are gone."""
        return _batches_within(self, users)


def last_size(fitting: int) -> int:
    """Users per arm of a last batch for which only `fitting` are left.

    Six significant bits: at most 3 % are left over, and experiments that end so share
    their calibrations.
    """
    spare = max(fitting.bit_length() - 6, 0)
    return fitting >> spare << spare


@lru_cache(maxsize=256)
def _batches_within(schedule: Schedule, users: int) -> int:
    batch, left = 0, users
    while (size := schedule.size(batch + 1)) <= left:
        left -= size
        batch += 1
    return batch


@lru_cache(maxsize=4096)
def _size(ratio: Fraction, first: int | None, batch: int) -> int:
    factor, power = (1, batch) if first is None else (first, batch - 1)
    low, high = _power_bounds(ratio, power)
    least, most = (-(-(factor * bound) >> _BITS) for bound in (low, high))
    # Where the bounds leave open which whole number it is, all digits decide.
    return least if least == most else _ceiling(factor * ratio**power)


def _power_bounds(ratio: Fraction, power: int) -> tuple[int, int]:
    """Enclose ratio^power in whole multiples of 2^−256, by squaring.

    The exact fraction has as many digits as the power is large.
    """
    low, high = 1 << _BITS, 1 << _BITS
    scaled = ratio.numerator << _BITS
    base_low = scaled // ratio.denominator
    base_high = -(-scaled // ratio.denominator)
    while power:
        if power & 1:
            low, high = low * base_low >> _BITS, -(-high * base_high >> _BITS)
        base_low = base_low * base_low >> _BITS
        base_high = -(-base_high * base_high >> _BITS)
        power >>= 1
    return low, high


def _ceiling(number: Fraction) -> int:
    return -(-number.numerator // number.denominator)
