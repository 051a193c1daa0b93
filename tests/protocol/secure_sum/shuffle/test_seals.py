"""A message opens only for the server, only in its cohort, and shows nothing before."""

from __future__ import annotations

import pytest

from wallflower.protocol.errors import (
    AuthenticationError,
    InputError,
    MalformedMessageError,
    UnusableKeyError,
)
from wallflower.protocol.secure_sum.shuffle.seals import (
    HYBRID,
    PLAIN,
    SEAL_KINDS,
    OpeningKey,
    SealingKey,
    seal_info,
    sealed_bytes,
)

INFO = seal_info(b"cohort", b"shuffler")
KEYS = {kind: OpeningKey.generate(kind) for kind in SEAL_KINDS}


@pytest.mark.parametrize("kind", SEAL_KINDS)
def test_a_message_comes_back_and_has_the_stated_length(kind: str) -> None:
    sealed = SealingKey(kind, KEYS[kind].public).seal(b"\x07", INFO)
    assert len(sealed) == sealed_bytes(kind, 1)
    assert KEYS[kind].open(sealed, INFO) == b"\x07"


def test_a_plain_seal_of_one_byte_has_49_bytes() -> None:
    assert (sealed_bytes(PLAIN, 1), sealed_bytes(HYBRID, 1)) == (49, 1137)


@pytest.mark.parametrize("kind", SEAL_KINDS)
def test_equal_messages_look_unrelated(kind: str) -> None:
    key = SealingKey(kind, KEYS[kind].public)
    one, other = key.seal(b"\x07", INFO), key.seal(b"\x07", INFO)
    assert not {one[i : i + 8] for i in range(len(one))} & {
        other[i : i + 8] for i in range(len(other) - 8)
    }


@pytest.mark.parametrize("kind", SEAL_KINDS)
@pytest.mark.parametrize(
    "info", [seal_info(b"another", b"shuffler"), seal_info(b"cohort", b"another")]
)
def test_a_seal_opens_in_no_other_cohort_and_for_no_other_shuffler(
    kind: str, info: bytes
) -> None:
    sealed = SealingKey(kind, KEYS[kind].public).seal(b"\x07", INFO)
    with pytest.raises(AuthenticationError):
        KEYS[kind].open(sealed, info)


@pytest.mark.parametrize("kind", SEAL_KINDS)
@pytest.mark.parametrize("place", [0, 31, -1])
def test_an_altered_seal_does_not_open(kind: str, place: int) -> None:
    sealed = bytearray(SealingKey(kind, KEYS[kind].public).seal(b"\x07", INFO))
    sealed[place] ^= 1
    with pytest.raises(AuthenticationError):
        KEYS[kind].open(bytes(sealed), INFO)


@pytest.mark.parametrize("kind", SEAL_KINDS)
@pytest.mark.parametrize("length", [0, 10, 48])
def test_a_truncated_seal_does_not_open(kind: str, length: int) -> None:
    sealed = SealingKey(kind, KEYS[kind].public).seal(b"\x07", INFO)
    with pytest.raises(AuthenticationError):
        KEYS[kind].open(sealed[:length], INFO)


@pytest.mark.parametrize("kind", SEAL_KINDS)
def test_another_servers_key_does_not_open(kind: str) -> None:
    sealed = SealingKey(kind, KEYS[kind].public).seal(b"\x07", INFO)
    with pytest.raises(AuthenticationError):
        OpeningKey.generate(kind).open(sealed, INFO)


@pytest.mark.parametrize("kind", SEAL_KINDS)
def test_a_key_survives_its_store(kind: str) -> None:
    kept = OpeningKey(kind, KEYS[kind].private_bytes())
    assert kept.public == KEYS[kind].public


@pytest.mark.parametrize("kind", SEAL_KINDS)
def test_a_key_of_small_order_is_refused(kind: str) -> None:
    raw = KEYS[kind].public[:-32] + bytes(32)
    with pytest.raises(UnusableKeyError):
        SealingKey(kind, raw)


@pytest.mark.parametrize("kind", SEAL_KINDS)
def test_a_key_of_the_wrong_length_is_refused(kind: str) -> None:
    with pytest.raises(MalformedMessageError):
        SealingKey(kind, KEYS[kind].public[1:])


def test_an_unknown_kind_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="rot13"):
        OpeningKey.generate("rot13")


@pytest.mark.parametrize("kind", SEAL_KINDS)
def test_a_private_key_is_not_shown(kind: str) -> None:
    assert KEYS[kind].private_bytes().hex()[:16] not in repr(KEYS[kind])
