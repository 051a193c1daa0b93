"""The group's edges: what has no encoding, what is not on the curve, what is zero."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wallflower.protocol.errors import MalformedMessageError
from wallflower.protocol.secure_sum.sealed.group import (
    ORDER,
    DegenerateSumError,
    KeyPair,
    Point,
    base,
    hashed_point,
    plus_base,
    prove_equality,
    random_scalar,
    read_scalar,
    scalar_bytes,
    times,
    times_secret,
    total,
    vanishes,
)

SCALARS = st.integers(1, ORDER - 1)
PRIME = 2**256 - 2**32 - 977

GENERATOR = bytes.fromhex(
    "0279be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798"
)


def test_the_generator_is_that_of_the_standard() -> None:
    assert bytes(base(1)) == GENERATOR


@settings(max_examples=30, deadline=None)
@given(SCALARS, SCALARS)
def test_scalars_add_and_multiply_as_their_points_do(a: int, b: int) -> None:
    assert times(base(a), b) == base(a * b)
    assert times_secret(base(a), b) == base(a * b)
    if (a + b) % ORDER:
        assert base(a) + base(b) == base(a + b) == plus_base(base(a), b)


def test_a_secret_that_lasts_never_reaches_the_multiplication_of_variable_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def watched(point: Point, scalar: int) -> Point:
        raise AssertionError("a multiplication whose time depends on the scalar")

    monkeypatch.setattr("wallflower.protocol.secure_sum.sealed.group.times", watched)
    secret = random_scalar()
    image, _ = prove_equality(secret, bytes(base(secret)), base(7), b"c" * 32)
    assert image == times_secret(base(7), secret) == base(7 * secret)
    with pytest.raises(DegenerateSumError):
        times_secret(base(7), 0)


@pytest.mark.parametrize("length", [0, 1, 32, 34, 65])
def test_a_point_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(MalformedMessageError):
        Point.parse(b"\x02" * length)


def test_a_point_that_is_not_on_the_curve_is_refused() -> None:
    x = next(x for x in range(1, 100) if not _on_curve(x))
    with pytest.raises(MalformedMessageError):
        Point.parse(b"\x02" + x.to_bytes(32, "big"))


def test_a_coordinate_beyond_the_field_is_refused() -> None:
    x = next(x for x in range(1, 100) if _on_curve(x))
    assert Point.parse(b"\x02" + x.to_bytes(32, "big"))
    with pytest.raises(MalformedMessageError):
        Point.parse(b"\x02" + (x + PRIME).to_bytes(33, "big")[1:])


@pytest.mark.parametrize("body", [bytes(33), b"\x00" + bytes(32), b"\x04" + bytes(32)])
def test_infinity_and_other_encodings_are_refused(body: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        Point.parse(body)


def test_every_point_has_the_order_of_the_group() -> None:
    """No cofactor: q − 1 times any point is its negative, so none has a small order."""
    for label in ("a", "b", "c"):
        point = hashed_point(label)
        assert times(point, ORDER - 1) == -point


def test_zero_times_anything_is_an_error_and_no_point() -> None:
    for scalar in (0, ORDER):
        with pytest.raises(DegenerateSumError):
            base(scalar)
        with pytest.raises(DegenerateSumError):
            times(base(3), scalar)


def test_points_that_cancel_are_an_error_at_the_end_and_nothing_on_the_way() -> None:
    point = hashed_point("cancel")
    assert vanishes([point, -point])
    assert total([point, -point, base(5)]) == base(5)
    with pytest.raises(DegenerateSumError):
        total([point, -point])
    with pytest.raises(DegenerateSumError):
        plus_base(base(9), -9)


def test_a_scalar_has_one_encoding() -> None:
    assert read_scalar(scalar_bytes(ORDER - 1)) == ORDER - 1
    with pytest.raises(MalformedMessageError):
        read_scalar(ORDER.to_bytes(32, "big"))
    with pytest.raises(MalformedMessageError):
        read_scalar(b"\x01" * 31)


def test_two_sides_agree_on_the_hash_of_the_shared_point() -> None:
    mine, theirs = KeyPair.generate(), KeyPair.generate()
    shared = times(theirs.point, mine.secret)
    assert mine.agree(theirs.point) == theirs.agree(mine.point)
    assert mine.agree(theirs.point) == hashlib.sha256(bytes(shared)).digest()


def test_hashed_points_differ_and_follow_from_their_label_alone() -> None:
    assert hashed_point("one") == hashed_point("one")
    assert hashed_point("one") != hashed_point("two")


def test_no_secret_and_no_point_shows_itself() -> None:
    pair = KeyPair(123456789)
    assert "123456789" not in repr(pair)
    assert bytes(pair.point).hex() not in repr(pair) + repr(pair.point)


def _on_curve(x: int) -> bool:
    return pow(x**3 + 7, (PRIME - 1) // 2, PRIME) == 1
