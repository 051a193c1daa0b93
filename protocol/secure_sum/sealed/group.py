"""The group of sealed sums, and proofs that a party knows, or used, a logarithm in it.

It is secp256k1, of prime order q, through libsecp256k1.

The only module that knows `coincurve`. Points are affine and never the point at
infinity: it has no encoding, and an operation that would give it says so. There is no
cofactor, hence no small subgroup: every point that parses has order q.

What is constant-time. `base` and `prove_knowledge` (BIP 340) are, in the library.
`times` is not: it is for public scalars and for secrets used once. A secret that lasts
is multiplied by `times_secret`: the library's Diffie–Hellman, which is constant-time,
asked for both coordinates instead of their hash.

Both proofs are Schnorr's, made non-interactive by Fiat and Shamir: the challenge is a
hash over a tag of its own, the whole statement and the *context*, a digest of all that
the proof must be bound to (run, cohort, dealing, sender, users, ciphertext). Sound and
zero-knowledge in the random-oracle model. A proof copied to another context, sender or
statement has another challenge and fails.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from os import urandom
from typing import Any, Final

from coincurve._libsecp256k1 import ffi, lib
from coincurve.context import GLOBAL_CONTEXT

from wallflower.protocol.errors import MalformedMessageError, ProtocolError
from wallflower.protocol.identity.canonical import digest

ORDER: Final = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
POINT_BYTES: Final = 33
SCALAR_BYTES: Final = 32
PROOF_BYTES: Final = 2 * SCALAR_BYTES
_KNOWLEDGE: Final = "wallflower/v1/knowledge"
_EQUALITY: Final = "wallflower/v1/equality"
_CONTEXT = GLOBAL_CONTEXT.ctx
_COMPRESSED: Final = lib.SECP256K1_EC_COMPRESSED
_new = ffi.new
# Types by their names are looked up with every call.
_PUBLIC: Final = ffi.typeof("secp256k1_pubkey *")
_XONLY: Final = ffi.typeof("secp256k1_xonly_pubkey *")
_PAIR: Final = ffi.typeof("secp256k1_keypair *")
_COMPRESSED_BODY: Final = ffi.typeof("unsigned char [33]")
_PROOF_BODY: Final = ffi.typeof("unsigned char [64]")
_SIZE: Final = ffi.typeof("size_t *")


class DegenerateSumError(ProtocolError):
    """Points cancelled each other; what should be a point is the one at infinity."""

    code = "degenerate-sum"


class Point:
    """A point other than infinity. Its repr shows nothing: y·G would tell y."""

    __slots__ = ("_raw",)

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    @classmethod
    def parse(cls, body: bytes) -> Point:
        """Read 33 bytes; refuses another length and what is not on the curve."""
        raw = _new(_PUBLIC)
        if len(body) != POINT_BYTES or not lib.secp256k1_ec_pubkey_parse(
            _CONTEXT, raw, body, POINT_BYTES
        ):
            raise MalformedMessageError("not a point of the group")
        return cls(raw)

    def __bytes__(self) -> bytes:
        body = _new(_COMPRESSED_BODY)
        length = _new(_SIZE, POINT_BYTES)
        lib.secp256k1_ec_pubkey_serialize(
            _CONTEXT, body, length, self._raw, _COMPRESSED
        )
        return bytes(ffi.buffer(body))

    def __repr__(self) -> str:
        return "Point(…)"

    def __eq__(self, other: object) -> bool:
        # The library keeps affine coordinates in their one reduced form.
        return isinstance(other, Point) and ffi.buffer(self._raw) == ffi.buffer(
            other._raw
        )

    def __hash__(self) -> int:
        return hash(bytes(ffi.buffer(self._raw)))

    def __neg__(self) -> Point:
        raw = _new(_PUBLIC, self._raw[0])
        lib.secp256k1_ec_pubkey_negate(_CONTEXT, raw)
        return Point(raw)

    def __add__(self, other: Point) -> Point:
        return total((self, other))

    def __sub__(self, other: Point) -> Point:
        return total((self, -other))


@lru_cache(maxsize=64)
def shared_point(body: bytes) -> Point:
    """Read a point that all nodes are told, once for all nodes of a process."""
    return Point.parse(body)


def scalar_bytes(scalar: int) -> bytes:
    """Write a scalar in its one form: 32 bytes below q."""
    return (scalar % ORDER).to_bytes(SCALAR_BYTES, "big")


def read_scalar(body: bytes) -> int:
    """Read a scalar; refuses another length and what is not below q."""
    scalar = int.from_bytes(body, "big")
    if len(body) != SCALAR_BYTES or scalar >= ORDER:
        raise MalformedMessageError("not a scalar of the group")
    return scalar


def random_scalar() -> int:
    """Draw 1 … q − 1 from the operating system; another draw is due once in 2¹²⁸."""
    while True:
        scalar = int.from_bytes(urandom(SCALAR_BYTES), "big")
        if 0 < scalar < ORDER:
            return scalar


def base(scalar: int) -> Point:
    """scalar·G in constant time."""
    raw = _new(_PUBLIC)
    if not lib.secp256k1_ec_pubkey_create(_CONTEXT, raw, scalar_bytes(scalar)):
        raise DegenerateSumError("zero times the generator is no point")
    return Point(raw)


def times(point: Point, scalar: int) -> Point:
    """scalar·X in variable time: the scalar is public, or a secret used once."""
    raw = _new(_PUBLIC, point._raw[0])
    if not lib.secp256k1_ec_pubkey_tweak_mul(_CONTEXT, raw, scalar_bytes(scalar)):
        raise DegenerateSumError("zero times a point is no point")
    return Point(raw)


def _copy_coordinates(output: Any, x: Any, y: Any, _: Any) -> int:
    ffi.memmove(output, x, 32)
    ffi.memmove(output + 32, y, 32)
    return 1


_both_coordinates = ffi.callback("secp256k1_ecdh_hash_function", _copy_coordinates)


def times_secret(point: Point, secret: int) -> Point:
    """secret·X in constant time, for a secret that lasts."""
    body = _new("unsigned char [65]", b"\x04")
    raw = _new(_PUBLIC)
    if not lib.secp256k1_ecdh(
        _CONTEXT,
        body + 1,
        point._raw,
        scalar_bytes(secret),
        _both_coordinates,
        ffi.NULL,
    ):
        raise DegenerateSumError("zero times a point is no point")
    lib.secp256k1_ec_pubkey_parse(_CONTEXT, raw, body, len(body))
    return Point(raw)


def plus_base(point: Point, scalar: int) -> Point:
    """X + scalar·G in variable time, for public scalars."""
    raw = _new(_PUBLIC, point._raw[0])
    if not lib.secp256k1_ec_pubkey_tweak_add(_CONTEXT, raw, scalar_bytes(scalar)):
        raise DegenerateSumError("points cancel each other")
    return Point(raw)


def total(points: Sequence[Point]) -> Point:
    """Add points up; infinity on the way is no matter, at the end it is an error."""
    raw = _sum(points)
    if raw is None:
        raise DegenerateSumError("points cancel each other")
    return Point(raw)


def vanishes(points: Sequence[Point]) -> bool:
    """Return whether points add up to infinity; no points do."""
    return _sum(points) is None


def multiply_each(terms: Iterable[tuple[Point, int]]) -> list[Point]:
    """scalar·X for every pair, in variable time; zero scalars are left out."""
    return [times(point, scalar) for point, scalar in terms if scalar % ORDER]


def hashed_point(label: str) -> Point:
    """Return a point whose logarithm nobody knows: the first x that a hash hits."""
    for attempt in range(256):
        x = hashlib.sha256(f"wallflower/v1/point/{label}/{attempt}".encode()).digest()
        try:
            return Point.parse(b"\x02" + x)
        except MalformedMessageError:
            continue
    raise AssertionError("half of all x lie on the curve")  # pragma: no cover


class KeyPair:
    """A secret scalar and its point.

    The secret is kept as an integer because shares are added and multiplied; it has no
    repr.
    """

    __slots__ = ("_raw", "point", "secret")

    def __init__(self, secret: int) -> None:
        self._raw = _new(_PAIR)
        if not lib.secp256k1_keypair_create(_CONTEXT, self._raw, scalar_bytes(secret)):
            raise DegenerateSumError("zero is no secret")
        raw = _new(_PUBLIC)
        lib.secp256k1_keypair_pub(_CONTEXT, raw, self._raw)
        self.point = Point(raw)
        self.secret = secret % ORDER

    @classmethod
    def generate(cls) -> KeyPair:
        """Make one from the operating system's randomness."""
        return cls(random_scalar())

    def __repr__(self) -> str:
        return "KeyPair(…)"

    def agree(self, other: Point) -> bytes:
        """Diffie–Hellman in constant time: SHA-256 of the shared point's bytes."""
        shared = _new("unsigned char [32]")
        lib.secp256k1_ecdh(
            _CONTEXT,
            shared,
            other._raw,
            scalar_bytes(self.secret),
            ffi.NULL,
            ffi.NULL,
        )
        return bytes(ffi.buffer(shared))


def prove_knowledge(pair: KeyPair, context: bytes) -> bytes:
    """Prove knowledge of the logarithm of `pair.point`, bound to `context`.

    Statement: I know x with X = x·G. The proof is a BIP 340 signature under x, that is
    Schnorr's proof with challenge H(R, X, m) and m the tagged digest of the context.
    BIP 340 identifies X with −X; who knows one logarithm knows the other.
    """
    proof = _new(_PROOF_BODY)
    bound = digest(_KNOWLEDGE, context)
    lib.secp256k1_schnorrsig_sign32(_CONTEXT, proof, bound, pair._raw, urandom(32))
    return bytes(ffi.buffer(proof))


def shows_knowledge(point: Point, proof: bytes, context: bytes) -> bool:
    """Check what `prove_knowledge` made."""
    key = _new(_XONLY)
    lib.secp256k1_xonly_pubkey_from_pubkey(_CONTEXT, key, ffi.NULL, point._raw)
    bound = digest(_KNOWLEDGE, context)
    return (
        len(proof) == PROOF_BYTES
        and lib.secp256k1_schnorrsig_verify(_CONTEXT, proof, bound, len(bound), key)
        == 1
    )


def prove_equality(
    secret: int, public: bytes, element: Point, context: bytes
) -> tuple[Point, bytes]:
    """Return D = s·C and a proof that it has the same s as V = s·G (Chaum, Pedersen).

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
    return int.from_bytes(digest(tag, context, *parts), "big") % ORDER


def _equality_challenge(context: bytes, public: bytes, *points: Point) -> int:
    return challenge_of(_EQUALITY, context, public, *map(bytes, points))


def _sum(points: Sequence[Point]) -> Any | None:
    if not points:
        return None
    raw = _new(_PUBLIC)
    summands = [point._raw for point in points]
    if lib.secp256k1_ec_pubkey_combine(_CONTEXT, raw, summands, len(summands)):
        return raw
    return None
