"""Who cannot be asked, as bits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallflower.protocol.errors import MalformedMessageError
from wallflower.protocol.messages.describe import (
    mark_users,
    pack_left_out,
    unpack_left_out,
)


@given(st.lists(st.booleans(), max_size=70))
def test_what_is_packed_is_unpacked(flags: list[bool]) -> None:
    users = [f"u{place}" for place in range(len(flags))]
    out = {user for user, flag in zip(users, flags, strict=True) if flag}
    packed = pack_left_out(users, out)
    assert unpack_left_out(packed, len(users)).tolist() == flags
    assert len(packed) <= (len(users) + 7) // 8
    assert bool(packed) == bool(out)


@pytest.mark.parametrize(
    ("packed", "users"), [(b"\1", 0), (b"\x08", 3), (b"\0\1", 8), (b"\1\0", 8)]
)
def test_bits_that_stand_for_nobody_are_refused(packed: bytes, users: int) -> None:
    with pytest.raises(MalformedMessageError):
        unpack_left_out(packed, users)


def test_the_mark_tells_names_and_their_order_apart() -> None:
    lists = ("a b", "b a", "ab", "a b c", "")
    assert len({mark_users(users.split()) for users in lists}) == len(lists)
