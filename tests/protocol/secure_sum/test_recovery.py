from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wallflower.protocol.errors import InputError
from wallflower.protocol.secure_sum.recovery import (
    InconsistentSharesError,
    Recovered,
    recover_integer,
)
from wallflower.protocol.secure_sum.secret_shares import share_integers

PRIMES = st.sampled_from([101, 65537, 2**31 - 1])


def share_integer(secret: int, threshold: int, holders: int, modulus: int) -> list[int]:
    one = np.array([secret], dtype=np.uint64)
    shares = share_integers(one, threshold, holders, modulus)
    return [int(share) for share in shares[:, 0]]


@settings(max_examples=60, deadline=None)
@given(PRIMES, st.integers(1, 30), st.data())
def test_any_t_shares_give_the_secret(
    modulus: int, holders: int, data: st.DataObject
) -> None:
    threshold = data.draw(st.integers(1, holders))
    secret = data.draw(st.integers(0, modulus - 1))
    shares = share_integer(secret, threshold, holders, modulus)
    chosen = data.draw(
        st.lists(st.integers(1, holders), min_size=threshold, unique=True)
    )
    given_shares = {x: shares[x - 1] for x in chosen}
    assert recover_integer(given_shares, threshold, modulus) == Recovered(secret, ())


@settings(max_examples=60, deadline=None)
@given(PRIMES, st.integers(3, 24), st.data())
def test_wrong_shares_are_located_up_to_half_the_spare_ones(
    modulus: int, holders: int, data: st.DataObject
) -> None:
    threshold = data.draw(st.integers(1, holders - 2))
    secret = data.draw(st.integers(0, modulus - 1))
    shares = dict(enumerate(share_integer(secret, threshold, holders, modulus), 1))
    most = (holders - threshold) // 2
    wrong = data.draw(
        st.lists(st.integers(1, holders), min_size=1, max_size=most, unique=True)
    )
    for x in wrong:
        shares[x] = (shares[x] + data.draw(st.integers(1, modulus - 1))) % modulus
    recovered = recover_integer(shares, threshold, modulus)
    assert recovered.secret == secret
    assert sorted(recovered.wrong) == sorted(wrong)


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 12), st.data())
def test_one_spare_share_detects_a_wrong_one(
    threshold: int, data: st.DataObject
) -> None:
    modulus = 2**31 - 1
    shares = dict(enumerate(share_integer(5, threshold, threshold + 1, modulus), 1))
    victim = data.draw(st.integers(1, threshold + 1))
    shares[victim] = (shares[victim] + 1) % modulus
    with pytest.raises(InconsistentSharesError):
        recover_integer(shares, threshold, modulus)


def test_too_few_shares_are_refused() -> None:
    with pytest.raises(InputError, match="at least the threshold 3"):
        recover_integer({1: 4, 2: 5}, 3, 97)


def test_the_secret_is_not_shown() -> None:
    assert "4242" not in repr(Recovered(4242, ()))
