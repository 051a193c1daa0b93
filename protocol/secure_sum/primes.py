"""Primes of secure-sum moduli."""

from __future__ import annotations

from functools import lru_cache

from wallflower.protocol.errors import InputError

LARGEST_MODULUS = 2**62
# Strong-probable-prime tests to these bases decide primality for all n < 3.3e24
# (Sorenson and Webster 2015); every modulus here is below 2^63.
_WITNESSES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41)


@lru_cache(maxsize=1024)
def is_prime(number: int) -> bool:
    """Decide primality; deterministic below 3.3e24."""
    if number < 2:
        return False
    for prime in _WITNESSES:
        if number % prime == 0:
            return number == prime
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    return all(_passes(number, base, odd, twos) for base in _WITNESSES)


def _passes(number: int, base: int, odd: int, twos: int) -> bool:
    power = pow(base, odd, number)
    if power in (1, number - 1):
        return True
    for _ in range(twos - 1):
        power = power * power % number
        if power == number - 1:
            return True
    return False


@lru_cache(maxsize=1024)
def smallest_prime_at_least(minimum: int) -> int:
    """Give the smallest prime ≥ `minimum`, at most 2^62.

    Examples
    --------
    >>> smallest_prime_at_least(90)
    97
    """
    candidate = max(minimum, 2)
    while candidate <= LARGEST_MODULUS:
        if is_prime(candidate):
            return candidate
        candidate += 1
    raise InputError("modulus", minimum, f"at most {LARGEST_MODULUS}")
