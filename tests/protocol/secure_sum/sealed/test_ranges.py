"""What is out of range or ill-formed has no proof; the others are not delayed by it."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wallflower.protocol.errors import InputError
from wallflower.protocol.secure_sum.sealed.cipher import Ciphertext, Opening, encrypt
from wallflower.protocol.secure_sum.sealed.group import (
    ORDER,
    POINT_BYTES,
    KeyPair,
    base,
    scalar_bytes,
    times,
)
from wallflower.protocol.secure_sum.sealed.ranges import (
    Claim,
    Range,
    _bit_generator,
    prove,
    wrong_claims,
)

PUBLIC = KeyPair.generate().point
HERE = b"h" * 32
ALLOWED = Range(-20, 33)


def claim(value: int, allowed: Range = ALLOWED, context: bytes = HERE) -> Claim:
    sealed, opening = encrypt(PUBLIC, value)
    return Claim(
        sealed, allowed, context, prove(PUBLIC, sealed, opening, allowed, context)
    )


@settings(max_examples=200, deadline=None)
@given(st.integers(-1000, 1000), st.integers(1, 5000), st.data())
def test_weights_write_every_number_of_the_range_and_no_other(
    low: int, width: int, data: st.DataObject
) -> None:
    allowed = Range(low, low + width)
    value = data.draw(st.integers(low, low + width))
    bits = allowed.bits(value)
    assert set(bits) <= {0, 1}
    weights = allowed.weights
    written = sum(w * b for w, b in zip(weights, bits, strict=True))
    assert written == value - low
    assert sum(weights) == width
    assert min(weights) >= 1


@settings(max_examples=15, deadline=None)
@given(st.integers(-50, 50), st.integers(1, 300), st.data())
def test_every_number_of_the_range_has_a_proof(
    low: int, width: int, data: st.DataObject
) -> None:
    value = data.draw(st.integers(low, low + width))
    assert wrong_claims(PUBLIC, [claim(value, Range(low, low + width))]) == []


@pytest.mark.parametrize("value", [-20, 33, 0])
def test_both_edges_and_zero_are_allowed(value: int) -> None:
    assert wrong_claims(PUBLIC, [claim(value)]) == []


@pytest.mark.parametrize("value", [-21, 34, 10**6])
def test_an_honest_prover_does_not_prove_what_is_out_of_range(value: int) -> None:
    sealed, opening = encrypt(PUBLIC, value)
    with pytest.raises(InputError) as refused:
        prove(PUBLIC, sealed, opening, ALLOWED, HERE)
    assert str(value) not in str(refused.value)


def test_the_proof_of_another_ciphertext_is_refused() -> None:
    inside = claim(5)
    outside, _ = encrypt(PUBLIC, 500)
    assert wrong_claims(PUBLIC, [dataclasses.replace(inside, sealed=outside)]) == [0]


def test_a_value_shifted_after_its_proof_is_refused() -> None:
    inside = claim(5)
    shifted = Ciphertext(inside.sealed.one, inside.sealed.two + base(1000))
    assert wrong_claims(PUBLIC, [dataclasses.replace(inside, sealed=shifted)]) == [0]


@pytest.mark.parametrize("digits", [(0, 0, 0, 0, 0, 20), (2, 0, 0, 0, 0, 0)])
def test_digits_that_are_no_bits_are_refused(
    digits: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The prover's own algebra with other digits: the square gives them away."""
    value = sum(w * d for w, d in zip(ALLOWED.weights, digits, strict=True)) - 20
    monkeypatch.setattr(Range, "bits", lambda self, y: list(digits))
    monkeypatch.setattr(
        "wallflower.protocol.secure_sum.sealed.ranges._choose_points",
        lambda bits: [times(_bit_generator(j), b) for j, b in enumerate(bits) if b],
    )
    sealed, opening = encrypt(PUBLIC, value)
    monkeypatch.setattr(
        "wallflower.protocol.secure_sum.sealed.ranges._negate_for_one",
        lambda one, bit: times(one, 1 - 2 * bit),
    )
    proof = prove(PUBLIC, sealed, opening, ALLOWED, HERE)
    assert wrong_claims(PUBLIC, [Claim(sealed, ALLOWED, HERE, proof)]) == [0]


def test_different_randomness_in_the_two_points_is_refused() -> None:
    """(r·G, r′·P + y·G) would make the whole sum undecodable and name nobody."""
    sealed, opening = encrypt(PUBLIC, 5)
    other = KeyPair.generate()
    for one, used in ((other.point, opening), (other.point, Opening(other, 5))):
        split = Ciphertext(one, sealed.two)
        proof = prove(PUBLIC, split, used, ALLOWED, HERE)
        assert wrong_claims(PUBLIC, [Claim(split, ALLOWED, HERE, proof)]) == [0]


def test_a_proof_is_bound_to_context_range_and_key() -> None:
    good = claim(5)
    assert wrong_claims(PUBLIC, [dataclasses.replace(good, context=b"t" * 32)]) == [0]
    assert wrong_claims(
        PUBLIC, [dataclasses.replace(good, allowed=Range(-20, 34))]
    ) == [0]
    assert wrong_claims(
        PUBLIC, [dataclasses.replace(good, allowed=Range(-19, 34))]
    ) == [0]
    assert wrong_claims(KeyPair.generate().point, [good]) == [0]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**16), st.integers(0, 7))
def test_a_flipped_bit_breaks_a_range_proof(place: int, bit: int) -> None:
    good = GOOD
    raw = bytearray(good.proof)
    raw[place % len(raw)] ^= 1 << bit
    assert wrong_claims(PUBLIC, [dataclasses.replace(good, proof=bytes(raw))]) == [0]


@pytest.mark.parametrize("change", ["", "short", "long", "infinity", "unreduced"])
def test_a_malformed_proof_is_refused_and_the_others_stand(change: str) -> None:
    good = GOOD.proof
    bad = {
        "": b"",
        "short": good[:-1],
        "long": good + b"\0",
        "infinity": bytes(POINT_BYTES) + good[POINT_BYTES:],
        "unreduced": good[:-32] + ORDER.to_bytes(32, "big"),
    }[change]
    claims = [GOOD, dataclasses.replace(GOOD, proof=bad), claim(6)]
    assert wrong_claims(PUBLIC, claims) == [1]


def test_proofs_of_all_zeros_prove_nothing() -> None:
    point = bytes(base(1))
    zeros = point * 6 + scalar_bytes(0) * (len(ALLOWED.weights) + 3)
    assert wrong_claims(PUBLIC, [dataclasses.replace(GOOD, proof=zeros)]) == [0]


def test_among_many_all_wrong_ones_are_named() -> None:
    claims = [claim(value % 30) for value in range(21)]
    for place in (0, 7, 8, 20):
        claims[place] = dataclasses.replace(claims[place], sealed=claims[3].sealed)
    assert wrong_claims(PUBLIC, claims) == [0, 7, 8, 20]


def test_claims_of_different_ranges_are_checked_together() -> None:
    claims = [claim(5, Range(-5, 5 + width)) for width in (1, 2, 300, 5000)]
    claims.append(dataclasses.replace(claims[0], allowed=Range(-5, 7)))
    assert wrong_claims(PUBLIC, claims) == [4]


def test_no_claims_are_no_trouble() -> None:
    assert wrong_claims(PUBLIC, []) == []


@pytest.mark.parametrize("high", [0, -1, 2**48])
def test_an_empty_and_an_endless_range_are_refused(high: int) -> None:
    with pytest.raises(InputError, match="range"):
        Range(0, high)


def test_the_proof_of_a_phone_at_a_thousand_nodes_is_short() -> None:
    assert Range(-851, 32 + 851).proof_bytes == 646


GOOD = claim(5)
