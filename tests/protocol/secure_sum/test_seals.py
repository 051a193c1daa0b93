from __future__ import annotations

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand
from hypothesis import given, settings
from hypothesis import strategies as st

from wallflower.protocol.errors import AuthenticationError, MalformedMessageError
from wallflower.protocol.secure_sum.keys import expand, pair_key, seal, unseal

ONE = X25519PrivateKey.from_private_bytes(b"\x01" * 32)
TWO = X25519PrivateKey.from_private_bytes(b"\x02" * 32)
ONE_PUBLIC = ONE.public_key().public_bytes_raw()
TWO_PUBLIC = TWO.public_key().public_bytes_raw()


@given(st.binary(min_size=32, max_size=32), st.binary(max_size=300))
def test_expanding_is_hkdf_expand(key: bytes, info: bytes) -> None:
    assert expand(key, info) == HKDFExpand(hashes.SHA256(), 32, info).derive(key)


def test_a_pair_key_is_hkdf_of_x25519_bound_to_both_keys() -> None:
    secret = ONE.exchange(X25519PublicKey.from_public_bytes(TWO_PUBLIC))
    low, high = sorted((ONE_PUBLIC, TWO_PUBLIC))
    expected = HKDF(
        hashes.SHA256(), 32, b"wallflower/v1/pair-key", low + high + b"seal"
    ).derive(secret)
    assert pair_key(ONE, ONE_PUBLIC, TWO_PUBLIC, b"seal") == expected


def test_both_sides_agree_and_purposes_differ() -> None:
    mine = pair_key(ONE, ONE_PUBLIC, TWO_PUBLIC, b"seal")
    theirs = pair_key(TWO, TWO_PUBLIC, ONE_PUBLIC, b"seal")
    assert mine == theirs
    assert mine != pair_key(ONE, ONE_PUBLIC, TWO_PUBLIC, b"mask")


def test_degenerate_and_short_keys_are_refused() -> None:
    with pytest.raises(AuthenticationError, match="degenerate"):
        pair_key(ONE, ONE_PUBLIC, bytes(32), b"seal")
    with pytest.raises(MalformedMessageError, match="32 bytes"):
        pair_key(ONE, ONE_PUBLIC, b"short", b"seal")


@settings(max_examples=40)
@given(st.binary(max_size=80), st.integers(0, 10_000), st.integers(0, 7))
def test_a_flipped_bit_anywhere_keeps_a_seal_shut(
    plain: bytes, where: int, bit: int
) -> None:
    sealed = bytearray(seal(b"k" * 32, b"info", plain))
    assert unseal(b"k" * 32, b"info", bytes(sealed)) == plain
    sealed[where % len(sealed)] ^= 1 << bit
    with pytest.raises(AuthenticationError):
        unseal(b"k" * 32, b"info", bytes(sealed))


def test_a_seal_opens_under_no_other_info() -> None:
    sealed = seal(b"k" * 32, b"cohort-1", b"plain")
    with pytest.raises(AuthenticationError):
        unseal(b"k" * 32, b"cohort-2", sealed)
