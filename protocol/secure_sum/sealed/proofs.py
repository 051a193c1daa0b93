"""Proofs that a party knows, or used, one certain secret.

Both are Schnorr proofs made non-interactive by Fiat and Shamir: the challenge is a
hash over a tag of its own, the whole statement and the *context*, a digest of all that
the proof must be bound to (run, cohort, dealing, sender, users, ciphertext). Sound and
zero-knowledge in the random-oracle model. A proof copied to another context, sender or
statement has another challenge and fails.
"""

from __future__ import annotations

import hashlib

from wallflower.protocol.errors import ProtocolError
from wallflower.protocol.identity.canonical import canonical
from wallflower.protocol.secure_sum.sealed.group import (
    ORDER,
    SCALAR_BYTES,
    KeyPair,
    Point,
    base,
    plus_base,
    random_scalar,
    read_scalar,
    scalar_bytes,
    signed_by,
    times,
    times_secret,
    total,
)

PROOF_BYTES = 2 * SCALAR_BYTES
_KNOWLEDGE = "wallflower/v1/knowledge"
_EQUALITY = "wallflower/v1/equality"


def prove_knowledge(pair: KeyPair, context: bytes) -> bytes:
    """Prove knowledge of the logarithm of `pair.point`, bound to `context`.

    Statement: I know x with X = x·G. The proof is a BIP 340 signature under x, that is
    Schnorr's proof with challenge H(R, X, m) and m the tagged digest of the context.
    BIP 340 identifies X with −X; who knows one logarithm knows the other.
    """
    return pair.sign(_tagged(_KNOWLEDGE, context))


def shows_knowledge(point: Point, proof: bytes, context: bytes) -> bool:
    """Check what `prove_knowledge` made."""
    return signed_by(point, proof, _tagged(_KNOWLEDGE, context))


def prove_equality(
    secret: int, public: bytes, element: Point, context: bytes
) -> tuple[Point, bytes]:
    """Give D = s·C and a proof that it has the same s as V = s·G (Chaum, Pedersen).

    Statement: log_G V = log_C D. Nonce k, R₁ = k·G, R₂ = k·C, challenge
    e = H(context, V, C, D, R₁, R₂), response z = k + e·s; the proof is (e, z). From two
    responses to one (R₁, R₂) follows one s for both; (e, z) drawn at random simulate.

    s lasts, and whoever learns a nonce learns it: constant time for both.
    """
    nonce, image = random_scalar(), times_secret(element, secret)
    shown = element, image, base(nonce), times_secret(element, nonce)
    challenge = _equality_challenge(context, public, *shown)
    response = (nonce + challenge * secret) % ORDER
    return image, scalar_bytes(challenge) + scalar_bytes(response)


def shows_equality(
    public: Point, element: Point, image: Point, proof: bytes, context: bytes
) -> bool:
    """Check log_G public = log_element image; False for whatever does not prove it."""
    if len(proof) != PROOF_BYTES:
        return False
    try:
        challenge = read_scalar(proof[:SCALAR_BYTES])
        response = read_scalar(proof[SCALAR_BYTES:])
        first = plus_base(times(public, -challenge), response)
        second = total((times(element, response), times(image, -challenge)))
    except ProtocolError:
        return False
    shown = element, image, first, second
    expected = _equality_challenge(context, bytes(public), *shown)
    return expected == challenge


def challenge_of(tag: str, context: bytes, *parts: bytes) -> int:
    """Hash a statement to a challenge; 2⁻¹²⁸ from uniform on 0 … q − 1."""
    return int.from_bytes(_tagged(tag, context, *parts), "big") % ORDER


def _equality_challenge(context: bytes, public: bytes, *points: Point) -> int:
    return challenge_of(_EQUALITY, context, public, *map(bytes, points))


def _tagged(tag: str, *parts: bytes) -> bytes:
    return hashlib.sha256(canonical(tag, *parts)).digest()
