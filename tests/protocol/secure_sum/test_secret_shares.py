from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wallflower.protocol.errors import InputError, MalformedMessageError
from wallflower.protocol.secure_sum.recovery import InconsistentSharesError
from wallflower.protocol.secure_sum.secret_shares import (
    SHARE_BYTES,
    recover_secret,
    share_secrets,
)

SECRETS = st.binary(min_size=32, max_size=32)


def columns(rows: list[bytes], secret: int) -> dict[int, bytes]:
    start = secret * SHARE_BYTES
    return {x: row[start : start + SHARE_BYTES] for x, row in enumerate(rows, 1)}


@settings(max_examples=40, deadline=None)
@given(SECRETS, SECRETS, st.integers(1, 25), st.data())
def test_any_t_shares_give_both_secrets(
    first: bytes, second: bytes, holders: int, data: st.DataObject
) -> None:
    threshold = data.draw(st.integers(1, holders))
    rows = share_secrets([first, second], threshold, holders)
    chosen = data.draw(
        st.lists(st.integers(1, holders), min_size=threshold, unique=True)
    )
    for index, secret in enumerate((first, second)):
        shares = {x: columns(rows, index)[x] for x in chosen}
        assert recover_secret(shares, threshold) == (secret, ())


def test_edge_secrets_survive() -> None:
    for secret in (bytes(32), b"\xff" * 32):
        rows = share_secrets([secret], 3, 5)
        assert recover_secret(columns(rows, 0), 3) == (secret, ())


def test_wrong_shares_are_located_when_there_are_spare_ones() -> None:
    secret = random.Random(5).randbytes(32)
    shares = columns(share_secrets([secret], 4, 9), 0)
    shares[2], shares[7] = bytes(SHARE_BYTES), shares[1]
    assert recover_secret(shares, 4) == (secret, (2, 7))


def test_a_wrong_share_is_detected_by_one_spare_share() -> None:
    shares = columns(share_secrets([b"s" * 32], 4, 5), 0)
    shares[3] = shares[4]
    with pytest.raises(InconsistentSharesError):
        recover_secret(shares, 4)


def test_shares_of_other_lengths_or_outside_the_field_are_refused() -> None:
    shares = columns(share_secrets([b"s" * 32], 2, 3), 0)
    with pytest.raises(MalformedMessageError, match="length"):
        recover_secret({**shares, 1: shares[1][:-1]}, 2)
    with pytest.raises(MalformedMessageError, match="field"):
        recover_secret({**shares, 1: b"\xff" * SHARE_BYTES}, 2)


def test_too_few_shares_and_odd_secrets_are_refused() -> None:
    with pytest.raises(InputError, match="at least the threshold"):
        recover_secret(columns(share_secrets([b"s" * 32], 2, 3)[:1], 0), 2)
    with pytest.raises(InputError, match="secret"):
        share_secrets([b"short"], 2, 3)


def test_shares_that_hold_no_secret_are_refused() -> None:
    # Limbs of 30 bits only: a constant polynomial above them is no honest sharing.
    word = (2**30 + 1).to_bytes(4, "little")
    with pytest.raises(InconsistentSharesError):
        recover_secret({1: word * 9, 2: word * 9}, 2)
