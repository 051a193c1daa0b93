"""Proofs hold for their own statement and context, and for nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wallflower.protocol.secure_sum.sealed.group import (
    ORDER,
    PROOF_BYTES,
    KeyPair,
    Point,
    base,
    challenge_of,
    prove_equality,
    prove_knowledge,
    scalar_bytes,
    shows_equality,
    shows_knowledge,
    times,
)

HERE, THERE = b"h" * 32, b"t" * 32


def equal(pair: KeyPair, element: Point, context: bytes) -> tuple[Point, bytes]:
    return prove_equality(pair.secret, bytes(pair.point), element, context)


def test_who_knows_a_logarithm_shows_it() -> None:
    pair = KeyPair.generate()
    assert shows_knowledge(pair.point, prove_knowledge(pair, HERE), HERE)


def test_knowledge_shown_in_one_context_is_nothing_in_another() -> None:
    pair = KeyPair.generate()
    assert not shows_knowledge(pair.point, prove_knowledge(pair, HERE), THERE)


def test_knowledge_of_one_logarithm_is_not_of_its_rerandomisation() -> None:
    pair = KeyPair.generate()
    shifted = pair.point + base(5)
    assert not shows_knowledge(shifted, prove_knowledge(pair, HERE), HERE)


def test_an_answer_with_the_dealt_key_is_believed() -> None:
    key, element = KeyPair.generate(), KeyPair.generate().point
    image, proof = equal(key, element, HERE)
    assert image == times(element, key.secret)
    assert shows_equality(key.point, element, image, proof, HERE)


def test_an_answer_with_another_key_is_not_believed() -> None:
    key, other, element = (KeyPair.generate() for _ in range(3))
    image, proof = equal(other, element.point, HERE)
    assert not shows_equality(key.point, element.point, image, proof, HERE)


def test_a_shifted_answer_is_not_believed() -> None:
    """D + G would shift the decoded sum by a number the liar chooses."""
    key, element = KeyPair.generate(), KeyPair.generate().point
    image, proof = equal(key, element, HERE)
    assert not shows_equality(key.point, element, image + base(1), proof, HERE)


def test_an_answer_about_another_sum_or_cohort_is_not_believed() -> None:
    key, element = KeyPair.generate(), KeyPair.generate().point
    image, proof = equal(key, element, HERE)
    assert not shows_equality(key.point, element, image, proof, THERE)
    assert not shows_equality(key.point, element + base(1), image, proof, HERE)


@pytest.mark.parametrize(
    "proof",
    [
        b"",
        bytes(PROOF_BYTES),
        bytes(PROOF_BYTES - 1),
        b"\xff" * PROOF_BYTES,
        scalar_bytes(1) + bytes(32),
        bytes(32) + scalar_bytes(1),
        ORDER.to_bytes(32, "big") + scalar_bytes(1),
    ],
)
def test_zero_overlong_and_unreduced_scalars_prove_nothing(proof: bytes) -> None:
    key, element = KeyPair.generate(), KeyPair.generate().point
    image = times(element, key.secret)
    assert not shows_equality(key.point, element, image, proof, HERE)
    assert not shows_knowledge(key.point, proof, HERE)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, PROOF_BYTES - 1), st.integers(0, 7))
def test_a_flipped_bit_breaks_a_proof(place: int, bit: int) -> None:
    key, element = KeyPair(77), KeyPair(78).point
    image, good = equal(key, element, HERE)
    known = prove_knowledge(key, HERE)

    def flipped(proof: bytes) -> bytes:
        raw = bytearray(proof)
        raw[place] ^= 1 << bit
        return bytes(raw)

    assert shows_equality(key.point, element, image, good, HERE)
    assert not shows_equality(key.point, element, image, flipped(good), HERE)
    assert shows_knowledge(key.point, known, HERE)
    assert not shows_knowledge(key.point, flipped(known), HERE)


def test_nonces_are_fresh() -> None:
    key, element = KeyPair.generate(), KeyPair.generate().point
    proofs = {equal(key, element, HERE)[1] for _ in range(20)}
    assert len(proofs) == 20


def test_challenges_of_different_tags_or_cuts_differ() -> None:
    assert challenge_of("a", HERE, b"xy") != challenge_of("b", HERE, b"xy")
    assert challenge_of("a", HERE, b"x", b"y") != challenge_of("a", HERE, b"xy")
