"""How a committee comes to a key that nobody holds (Pedersen 1991 on Feldman 1987).

Dealers of the committee each share a random secret of their own; the key P is the sum
of the accepted dealers' constant commitments, member i's key the sum of the shares
dealt to it. P is unknown to everybody as long as one accepted dealer is honest and
fewer than t members collude.

*Rogue dealers.* A dealer that waits for the others and publishes X − ΣA₀ would own P:
it must prove knowledge of its constant's logarithm, bound to the whole of its dealing.
With the corrupt dealers' secrets extractable, a ciphertext under P is one under the
honest dealers' part of P, whatever the others added (so the bias of a Pedersen key that
a rushing dealer can cause, Gennaro et al. 2007, does no harm here).

*Wrong shares.* Shares travel sealed: Diffie–Hellman between the dealer's fresh key and
the member's key of this dealing, HKDF, AES-GCM. A member that gets a bad one publishes
the Diffie–Hellman point with a proof that it is the right one; everybody can then open
that one seal and look. Only such a complaint excludes a dealer: it opens nothing but
what it is about, needs no answer of the dealer, and cannot be made against an honest
one. A complaint that does not show this names its author.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from wallflower.protocol.errors import MalformedMessageError
from wallflower.protocol.identity.canonical import canonical, digest
from wallflower.protocol.secure_sum.sealed import feldman
from wallflower.protocol.secure_sum.sealed.group import (
    POINT_BYTES,
    SCALAR_BYTES,
    SIGNATURE_BYTES,
    KeyPair,
    Point,
    read_scalar,
    scalar_bytes,
)
from wallflower.protocol.secure_sum.sealed.proofs import (
    prove_equality,
    prove_knowledge,
    shows_equality,
    shows_knowledge,
)
from wallflower.protocol.secure_sum.seals import TAG_BYTES, expand

SEALED_SHARE_BYTES = SCALAR_BYTES + TAG_BYTES
_NONCE = bytes(12)
_EXTRACT = b"wallflower/v1/dealt-share"


@dataclass(frozen=True, slots=True)
class Terms:
    """What all dealers of a dealing agree on.

    Attributes
    ----------
    context : digest of the run, the threat, the roster and the dealing's id.
    committee : digest of who holds the share at which place under which key.
    threshold : t; the polynomials have degree t − 1.
    """

    context: bytes
    committee: bytes
    threshold: int


@dataclass(frozen=True, slots=True)
class Statement:
    """What a dealer says in public, short enough for every node of a run.

    `rest` is the digest of the commitments and of the dealer's fresh key.
    """

    dealer: str
    constant: bytes
    proof: bytes
    rest: bytes

    def __post_init__(self) -> None:
        if len(self.constant) != POINT_BYTES or len(self.rest) != 32:
            raise MalformedMessageError("a dealer's statement is cut short")
        if len(self.proof) != SIGNATURE_BYTES:
            raise MalformedMessageError("a dealer's proof has the wrong length")

    def signed_part(self, terms: Terms) -> bytes:
        """Give the bytes that a dealer's identity signs."""
        return canonical(
            "wallflower/v1/dealer-statement",
            terms.context,
            terms.committee,
            terms.threshold,
            self.dealer,
            self.constant,
            self.proof,
            self.rest,
        )

    def digest(self, terms: Terms) -> bytes:
        """Name the statement."""
        return hashlib.sha256(self.signed_part(terms)).digest()

    def proven_constant(self, terms: Terms) -> Point:
        """Give A₀ if the dealer has shown to know its logarithm."""
        constant = Point.parse(self.constant)
        place = _knowledge_place(terms, self.dealer, self.rest)
        if not shows_knowledge(constant, self.proof, place):
            raise MalformedMessageError(f"{self.dealer} does not know its own secret")
        return constant


@dataclass(frozen=True, slots=True)
class Dealing:
    """One dealer's whole contribution, shares sealed."""

    statement: Statement
    commitments: bytes  # t points
    ephemeral: bytes  # the dealer's fresh key
    sealed: tuple[bytes, ...]  # one per member, in the committee's order

    def check(self, terms: Terms, *, knowledge: bool = True) -> list[Point]:
        """Give the commitments; refuses what does not hang together.

        `knowledge` checks the dealer's proof as well; who believes that the server has
        checked it need not.
        """
        commitments = feldman.read_commitments(self.commitments, terms.threshold)
        if self.commitments[:POINT_BYTES] != self.statement.constant:
            raise MalformedMessageError("a dealer's constant is not its commitment")
        if _rest(self.commitments, self.ephemeral) != self.statement.rest:
            raise MalformedMessageError("a dealer's statement is about other points")
        if any(len(one) != SEALED_SHARE_BYTES for one in self.sealed):
            raise MalformedMessageError("a sealed share has the wrong length")
        if knowledge:
            self.statement.proven_constant(terms)
        return commitments


@dataclass(frozen=True, slots=True)
class Holder:
    """A member of the committee: the share at `place`, sealed under `key`."""

    party: str
    place: int
    key: bytes

    @property
    def point(self) -> Point:
        """The key as a point; refuses what is none."""
        return Point.parse(self.key)


def deal(terms: Terms, dealer: str, holders: Sequence[Holder]) -> Dealing:
    """Draw a polynomial, commit to it, seal one share for every holder, forget it."""
    coefficients = feldman.random_polynomial(terms.threshold)
    commitments = feldman.commitment_bytes(feldman.commit(coefficients))
    ephemeral = KeyPair.generate()
    fresh = bytes(ephemeral.point)
    rest = _rest(commitments, fresh)
    proof = prove_knowledge(
        KeyPair(coefficients[0]), _knowledge_place(terms, dealer, rest)
    )
    sealed = tuple(
        AESGCM(_seal_key(ephemeral.agree(one.point), terms, dealer, one)).encrypt(
            _NONCE, scalar_bytes(feldman.evaluate(coefficients, one.place)), None
        )
        for one in holders
    )
    statement = Statement(dealer, commitments[:POINT_BYTES], proof, rest)
    return Dealing(statement, commitments, fresh, sealed)


def open_share(
    terms: Terms, dealer: str, holder: Holder, agreed: bytes, sealed: bytes
) -> int | None:
    """Open a seal with what was agreed on; None if there is no share inside."""
    try:
        plain = AESGCM(_seal_key(agreed, terms, dealer, holder)).decrypt(
            _NONCE, sealed, None
        )
        return read_scalar(plain)
    except (InvalidTag, MalformedMessageError):
        return None


def complain(
    terms: Terms, dealer: str, holder: Holder, pair: KeyPair, ephemeral: Point
) -> tuple[bytes, bytes]:
    """Give the agreed point of one seal, and the proof that it is the one."""
    place = _complaint_place(terms, dealer, holder)
    shared, proof = prove_equality(pair, ephemeral, place)
    return bytes(shared), proof


def upheld(
    terms: Terms,
    holder: Holder,
    dealing: Dealing,
    sealed: bytes,
    shared: bytes,
    proof: bytes,
) -> bool:
    """Judge a complaint: the point is the right one, and the share in the seal is not.

    Everything in it is public, so that whoever has the dealing comes to the same end.
    """
    dealer, ephemeral = dealing.statement.dealer, Point.parse(dealing.ephemeral)
    point = Point.parse(shared)
    place = _complaint_place(terms, dealer, holder)
    if not shows_equality(holder.point, ephemeral, point, proof, place):
        return False
    agreed = hashlib.sha256(shared).digest()
    share = open_share(terms, dealer, holder, agreed, sealed)
    commitments = feldman.read_commitments(dealing.commitments, terms.threshold)
    return share is None or not feldman.fits(share, commitments, holder.place)


def dealing_name(terms: Terms, accepted: Mapping[str, bytes]) -> bytes:
    """Name a key by the whole transcript that led to it: {dealer: statement's digest}.

    The name goes into the context of every cohort, so that a contribution made under
    one set of dealers cannot be opened under another.
    """
    return digest(
        "wallflower/v1/dealt",
        terms.context,
        terms.committee,
        terms.threshold,
        *(accepted[dealer] for dealer in sorted(accepted)),
    )


def _rest(commitments: bytes, ephemeral: bytes) -> bytes:
    return digest("wallflower/v1/dealing-rest", commitments, ephemeral)


def _knowledge_place(terms: Terms, dealer: str, rest: bytes) -> bytes:
    return digest(
        "wallflower/v1/dealer",
        terms.context,
        terms.committee,
        terms.threshold,
        dealer,
        rest,
    )


def _complaint_place(terms: Terms, dealer: str, holder: Holder) -> bytes:
    return digest(
        "wallflower/v1/complaint",
        terms.context,
        terms.committee,
        dealer,
        holder.party,
        holder.place,
    )


def _seal_key(agreed: bytes, terms: Terms, dealer: str, holder: Holder) -> bytes:
    info = canonical(
        "share", terms.context, terms.committee, dealer, holder.party, holder.place
    )
    return expand(hmac.digest(_EXTRACT, agreed, "sha256"), info)
