from __future__ import annotations

import pytest

from wallflower.protocol.errors import InputError
from wallflower.protocol.secure_sum.backends import backend_modulus
from wallflower.protocol.secure_sum.primes import is_prime, smallest_prime_at_least


def test_small_numbers_are_judged_as_a_sieve_does() -> None:
    sieve = [True] * 5000
    sieve[0] = sieve[1] = False
    for number in range(2, 71):
        if sieve[number]:
            for multiple in range(number * number, 5000, number):
                sieve[multiple] = False
    assert [is_prime(number) for number in range(5000)] == sieve


@pytest.mark.parametrize("composite", [3215031751, 3825123056546413051, 2**61 + 1])
def test_strong_pseudoprimes_are_composite(composite: int) -> None:
    assert not is_prime(composite)


def test_the_largest_primes_below_2_to_62_are_found() -> None:
    assert is_prime(2**61 - 1)
    assert smallest_prime_at_least(2**62 - 57) == 2**62 - 57
    with pytest.raises(InputError, match="modulus"):
        smallest_prime_at_least(2**62 - 56)


def test_a_committee_gets_a_prime_and_secagg_plus_what_was_asked() -> None:
    assert backend_modulus("committee", 90) == 97
    assert backend_modulus("secagg-plus", 90) == 90


def test_an_unknown_back_end_is_refused_with_a_suggestion() -> None:
    with pytest.raises(InputError, match='did you mean "committee"'):
        backend_modulus("comittee", 90)
