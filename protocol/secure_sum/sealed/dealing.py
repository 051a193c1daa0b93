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

*Wrong shares.* A share travels under a pad used once: Diffie–Hellman between a₀ and the
member's key of this dealing, HKDF over terms, dealer and member. It needs no tag, since
it must fit the dealer's commitments, and the statement that the dealer signs holds a
digest of all its seals: a server that alters one is not taken for a dealer that dealt
badly. A member that gets a bad share publishes the Diffie–Hellman point with a proof
that it is the right one; everybody can then open that one seal and look. The point
tells a dealer nothing, as it has proved to know a₀: under a key it need not know it
could name another dealer's, and complaints would open that dealer's seals.

Only such a complaint excludes a dealer: it opens nothing but what it is about, needs no
answer of the dealer, and cannot be made against an honest one. A complaint that does
not show this names its author.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from wallflower.protocol.errors import MalformedMessageError
from wallflower.protocol.identity.canonical import digest, name_tag
from wallflower.protocol.secure_sum.keys import expand
from wallflower.protocol.secure_sum.sealed import feldman, tree
from wallflower.protocol.secure_sum.sealed.group import (
    POINT_BYTES,
    PROOF_BYTES,
    SCALAR_BYTES,
    KeyPair,
    Point,
    prove_equality,
    prove_knowledge,
    read_scalar,
    shows_equality,
    shows_knowledge,
)

SEALED_SHARE_BYTES = SCALAR_BYTES


@dataclass(frozen=True, slots=True)
class Terms:
    """What all dealers of a dealing agree on.

    Attributes
    ----------
    context : digest of the run, the threat, the roster and the dealing's id.
    committee : digest of who holds the share at which place under which key.
    threshold : t; the polynomials have degree t − 1.
    head : all of them in one digest, which begins whatever is hashed or signed.
    """

    context: bytes
    committee: bytes
    threshold: int
    head: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        head = digest(
            "wallflower/v1/dealing-terms",
            self.context,
            self.committee,
            self.threshold,
        )
        object.__setattr__(self, "head", head)


@dataclass(frozen=True, slots=True)
class Statement:
    """What a dealer says in public, short enough for every node of a run.

    `rest` is the digest of the commitments and of all its seals.
    """

    dealer: str
    constant: bytes
    proof: bytes
    rest: bytes

    def __post_init__(self) -> None:
        if len(self.constant) != POINT_BYTES or len(self.rest) != 32:
            raise MalformedMessageError("a dealer's statement is cut short")
        if len(self.proof) != PROOF_BYTES:
            raise MalformedMessageError("a dealer's proof has the wrong length")

    def signed_part(self, terms: Terms) -> bytes:
        """Return the bytes that a dealer's identity signs."""
        fixed = self.constant + self.proof + self.rest  # lengths checked above
        return (
            b"wallflower/v1/dealer-statement"
            + terms.head
            + fixed
            + self.dealer.encode()
        )

    def digest(self, terms: Terms) -> bytes:
        """Name the statement."""
        return hashlib.sha256(self.signed_part(terms)).digest()

    def proven_constant(self, terms: Terms, parsed: Point | None = None) -> Point:
        """Return A₀ if the dealer has shown to know its logarithm."""
        constant = parsed if parsed is not None else Point.parse(self.constant)
        place = _knowledge_place(terms, self.dealer, self.rest)
        if not shows_knowledge(constant, self.proof, place):
            raise MalformedMessageError(f"{self.dealer} does not know its own secret")
        return constant


@dataclass(frozen=True, slots=True)
class Dealing:
    """One dealer's whole contribution, shares sealed."""

    statement: Statement
    commitments: bytes  # t points
    sealed: tuple[bytes, ...]  # one per other member, in the committee's order
    seals: bytes  # the root over them

    @classmethod
    def of(
        cls, dealer: str, proof: bytes, commitments: bytes, sealed: bytes
    ) -> Dealing:
        """Collect what a dealer sent."""
        width = SEALED_SHARE_BYTES
        pieces = tuple(sealed[i : i + width] for i in range(0, len(sealed), width))
        if not pieces or len(pieces[-1]) != width:
            raise MalformedMessageError("a sealed share has the wrong length")
        seals = tree.root(pieces)
        rest = rest_of(commitments, seals)
        statement = Statement(dealer, commitments[:POINT_BYTES], proof, rest)
        return cls(statement, commitments, pieces, seals)

    def check(self, terms: Terms) -> list[Point]:
        """Return the commitments of a dealer that knows its secret; refuses what is no
        dealing. What is sealed is for the members to check.
        """
        commitments = feldman.read_commitments(self.commitments, terms.threshold)
        self.statement.proven_constant(terms, commitments[0])
        return commitments


class Holder(NamedTuple):
    """A member of the committee: the share at `place`, sealed under `key`."""

    party: str
    place: int
    key: bytes

    @property
    def point(self) -> Point:
        """The key as a point; refuses what is none."""
        return Point.parse(self.key)


def sealed_for(holders: Iterable[Holder], dealer: str) -> list[str]:
    """Who gets a sealed share of a dealer: every holder but itself, in their order."""
    return [one.party for one in holders if one.party != dealer]


def deal(terms: Terms, dealer: str, holders: Sequence[Holder]) -> tuple[Dealing, int]:
    """Draw a polynomial, commit to it, seal a share for every other holder, forget it.

    Gives the dealing and the dealer's own share; 0 for a dealer that holds none.
    """
    constant = KeyPair.generate()
    coefficients = [constant.secret, *feldman.random_polynomial(terms.threshold - 1)]
    points = [constant.point, *feldman.commit(coefficients[1:])]
    commitments = feldman.commitment_bytes(points)
    head, own, sealed = _seal_head(terms, dealer), 0, []
    for one in holders:
        share = feldman.evaluate(coefficients, one.place)
        if one.party == dealer:
            own = share
        else:
            sealed.append(
                _pad_number(share, _pad(constant.agree(one.point), head, one))
            )
    seals = tree.root(sealed)
    rest = rest_of(commitments, seals)
    proof = prove_knowledge(constant, _knowledge_place(terms, dealer, rest))
    statement = Statement(dealer, commitments[:POINT_BYTES], proof, rest)
    return Dealing(statement, commitments, tuple(sealed), seals), own


def open_share(
    terms: Terms, dealer: str, holder: Holder, agreed: bytes, sealed: bytes
) -> int | None:
    """Open a seal with what was agreed on; None if there is no scalar inside.

    Where it was not sealed there is some other scalar, which fits no commitments.
    """
    if len(sealed) != SEALED_SHARE_BYTES:
        return None
    pad = _pad(agreed, _seal_head(terms, dealer), holder)
    try:
        return read_scalar(_pad_number(int.from_bytes(sealed, "big"), pad))
    except MalformedMessageError:
        return None


def complain(
    terms: Terms, dealer: str, holder: Holder, pair: KeyPair, constant: Point
) -> tuple[bytes, bytes]:
    """Return the agreed point of one seal, and the proof that it is the one."""
    place = _complaint_place(terms, dealer, holder)
    public = bytes(pair.point)
    shared, proof = prove_equality(pair.secret, public, constant, place)
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
    dealer = dealing.statement.dealer
    constant = Point.parse(dealing.statement.constant)
    point = Point.parse(shared)
    place = _complaint_place(terms, dealer, holder)
    if not shows_equality(holder.point, constant, point, proof, place):
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
    statements = b"".join(accepted[dealer] for dealer in sorted(accepted))
    return hashlib.sha256(b"wallflower/v1/dealt" + terms.head + statements).digest()


def rest_of(commitments: bytes, seals: bytes) -> bytes:
    """Digest of all that a dealer's statement does not say itself."""
    if len(seals) != 32:
        raise MalformedMessageError("a digest of seals has the wrong length")
    body = b"wallflower/v1/dealing-rest" + seals + commitments
    return hashlib.sha256(body).digest()


def _knowledge_place(terms: Terms, dealer: str, rest: bytes) -> bytes:
    return digest("wallflower/v1/dealer", terms.head, dealer, rest)


def _complaint_place(terms: Terms, dealer: str, holder: Holder) -> bytes:
    party, place = holder.party, holder.place
    return digest("wallflower/v1/complaint", terms.head, dealer, party, place)


def _seal_head(terms: Terms, dealer: str) -> bytes:
    """Begin the HKDF info of a dealer's seals; a digest, to keep infos short."""
    body = b"wallflower/v1/dealt-share" + terms.head + dealer.encode()
    return hashlib.sha256(body).digest()


def _pad(agreed: bytes, head: bytes, holder: Holder) -> int:
    """Expand what was agreed on, itself a hash of the point, to 32 bytes used once."""
    info = head + name_tag(holder.party) + holder.place.to_bytes(4, "big")
    return int.from_bytes(expand(agreed, info), "big")


def _pad_number(number: int, pad: int) -> bytes:
    return (number ^ pad).to_bytes(SEALED_SHARE_BYTES, "big")
