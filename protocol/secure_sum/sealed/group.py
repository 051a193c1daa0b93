"""The group of sealed sums: secp256k1, of prime order q, through libsecp256k1.

The only module that knows `coincurve`. Points are affine and never the point at
infinity: it has no encoding, and an operation that would give it says so. There is no
cofactor, hence no small subgroup: every point that parses has order q.

What is constant-time. `base` and `signed` (BIP 340) are, in the library. `times` is
not: it is for public scalars and for secrets used once. A secret that lasts is
multiplied by `times_secret`: the library's Diffie–Hellman, which is constant-time,
asked for both coordinates instead of their hash.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

from coincurve._libsecp256k1 import ffi, lib
from coincurve.context import GLOBAL_CONTEXT

from wallflower.protocol.errors import MalformedMessageError, ProtocolError

ORDER: Final = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
POINT_BYTES: Final = 33
SCALAR_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
_CONTEXT = GLOBAL_CONTEXT.ctx
_COMPRESSED: Final = lib.SECP256K1_EC_COMPRESSED
_new = ffi.new
_PUBLIC: Final = ffi.typeof("secp256k1_pubkey *")
_COMPRESSED_BODY: Final = ffi.typeof("unsigned char [33]")


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
        length = _new("size_t *", POINT_BYTES)
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
        scalar = int.from_bytes(secrets.token_bytes(SCALAR_BYTES), "big")
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


def _copied(output: Any, x: Any, y: Any, _: Any) -> int:
    ffi.memmove(output, x, 32)
    ffi.memmove(output + 32, y, 32)
    return 1


_both_coordinates = ffi.callback("secp256k1_ecdh_hash_function", _copied)


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
    """Tell whether points add up to infinity; no points do."""
    return _sum(points) is None


def weighted(terms: Iterable[tuple[Point, int]]) -> list[Point]:
    """scalar·X for every pair, in variable time; zero scalars are left out."""
    return [times(point, scalar) for point, scalar in terms if scalar % ORDER]


def hashed_point(label: str) -> Point:
    """Give a point whose logarithm nobody knows: the first x that a hash hits."""
    for attempt in range(256):
        x = hashlib.sha256(f"wallflower/v1/point/{label}/{attempt}".encode()).digest()
        try:
            return Point.parse(b"\x02" + x)
        except MalformedMessageError:
            continue
    raise AssertionError("half of all x lie on the curve")  # pragma: no cover


class KeyPair:
    """A secret scalar and its point; signs by BIP 340 in constant time.

    The secret is kept as an integer because shares are added and multiplied; it has no
    repr.
    """

    __slots__ = ("_raw", "point", "secret")

    def __init__(self, secret: int) -> None:
        self._raw = _new("secp256k1_keypair *")
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

    def sign(self, message: bytes) -> bytes:
        """Sign 32 bytes (BIP 340, with fresh auxiliary randomness)."""
        if len(message) != 32:
            raise ValueError("a digest of 32 bytes is signed")
        signature = _new("unsigned char [64]")
        lib.secp256k1_schnorrsig_sign32(
            _CONTEXT, signature, message, self._raw, secrets.token_bytes(32)
        )
        return bytes(ffi.buffer(signature))

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


def signed_by(point: Point, signature: bytes, message: bytes) -> bool:
    """Tell whether who knows ± the logarithm of `point` signed (BIP 340)."""
    key = _new("secp256k1_xonly_pubkey *")
    lib.secp256k1_xonly_pubkey_from_pubkey(_CONTEXT, key, ffi.NULL, point._raw)
    return (
        len(signature) == SIGNATURE_BYTES
        and lib.secp256k1_schnorrsig_verify(
            _CONTEXT, signature, message, len(message), key
        )
        == 1
    )


def _sum(points: Sequence[Point]) -> Any | None:
    if not points:
        return None
    raw = _new(_PUBLIC)
    summands = [point._raw for point in points]
    if lib.secp256k1_ec_pubkey_combine(_CONTEXT, raw, summands, len(summands)):
        return raw
    return None
