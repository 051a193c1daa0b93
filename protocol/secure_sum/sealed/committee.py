"""Who sits on the committee of a run: drawn, listed, signed for.

A dealing is a session of its own, described by a CohortSpec without a mechanism: nobody
is asked for a reward in it. Its committee is drawn by hash among all nodes of the run
that were there, as every other draw (`cohort_context.draw_order`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wallflower.protocol.errors import (
    AuthenticationError,
    MalformedMessageError,
    ProtocolError,
)
from wallflower.protocol.identity.canonical import canonical, digest
from wallflower.protocol.identity.enrolment import NodeIdentity, Trust, verify_signature
from wallflower.protocol.refusals import RefusalCode
from wallflower.protocol.secure_sum.backends import SEALED
from wallflower.protocol.secure_sum.context import draw_order, parse
from wallflower.protocol.secure_sum.sealed.dealing import (
    Dealing,
    Holder,
    Statement,
    Terms,
)
from wallflower.protocol.secure_sum.sealed.group import Point
from wallflower.protocol.secure_sum.sealed.sizes import DealingSizes, dealing_sizes
from wallflower.protocol.secure_sum.threat import Threat
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.protocol.wire.sealed_pb2 import (
    DealAnswer,
    DealerStatement,
    DealtCommittee,
    MemberKey,
)


class WrongShareError(ProtocolError):
    """A dealer was shown to have dealt a share that fits none of its commitments."""

    code = "wrong-share"


class FalseComplaintError(ProtocolError):
    """A member complained about a share that is right."""

    code = "false-complaint"


class WrongOpeningError(ProtocolError):
    """A member's answer was not made with the key it was dealt."""

    code = "wrong-opening"


class UnprovedError(ProtocolError):
    """A contribution's proof does not hold."""

    code = RefusalCode.NOT_PROVED.value


def dealing_spec(
    run_id: str, dealing_id: str, threat: Threat, parties: Mapping[str, int]
) -> CohortSpec:
    """Describe a dealing among parties that hold so many users."""
    users = sum(parties.values())
    return CohortSpec(
        run_id=run_id,
        cohort_id=dealing_id,
        backend=SEALED,
        cohort_size=users,
        honest_floor=1,
        quorum=users,
        threat=threat.to_wire(),
    )


def is_dealing(spec: CohortSpec) -> bool:
    """Return whether this is a dealing, not a cohort: it has no mechanism, so it takes
    no reward.
    """
    return not spec.mechanism


@dataclass(frozen=True, slots=True)
class Seats:
    """The draw of one dealing: who may sit at which place, and the sizes it is for."""

    sizes: DealingSizes
    places: Mapping[str, int]  # party -> place, from 1

    @classmethod
    def drawn(cls, context: bytes, threat: Threat, roster: Mapping[str, int]) -> Seats:
        """Draw; the same for whoever knows context and roster."""
        sizes = dealing_sizes(threat, len(roster))
        order = draw_order(context, list(roster))[: sizes.members]
        return cls(sizes, {party: place for place, party in enumerate(order, 1)})

    def check(self, holders: list[Holder]) -> None:
        """Refuse a committee with members that were not drawn, or too few of them."""
        if any(self.places.get(one.party) != one.place for one in holders):
            raise MalformedMessageError("the committee has members that were not drawn")


def committee_digest(body: bytes) -> bytes:
    """Digest of a serialized DealtCommittee."""
    return digest("wallflower/v1/dealt-committee", body)


def read_committee(body: bytes) -> list[Holder]:
    """Parse a committee; places ascend strictly and no member sits twice."""
    message = parse(DealtCommittee, body)
    members, places = list(message.members), list(message.places)
    if not len(members) == len(places) == len(message.keys):
        raise MalformedMessageError("the committee is incomplete")
    if len(set(members)) != len(members) or places != sorted(set(places)):
        raise MalformedMessageError("the committee repeats itself")
    if not places or places[0] < 1:
        raise MalformedMessageError("the committee has no first place")
    return [
        Holder(member, place, key.key)
        for member, place, key in zip(members, places, message.keys, strict=True)
    ]


def sign_key(
    key: Point, context: bytes, party: str, identity: NodeIdentity | None
) -> MemberKey:
    """Announce a member's key, signed where the party is enrolled."""
    message = MemberKey(key=bytes(key))
    if identity is not None and identity.certificate is not None:
        message.certificate = identity.certificate.to_bytes()
        message.signature = identity.sign(_key_statement(context, party, message.key))
    return message


def verify_key(key: MemberKey, context: bytes, party: str, trust: Trust) -> None:
    """Raise AuthenticationError unless the enrolled party announced this key."""
    _verify(key, _key_statement(context, party, key.key), party, trust)


def sign_dealing(
    dealing: Dealing, terms: Terms, identity: NodeIdentity | None
) -> DealAnswer:
    """Write a dealing, signed where the dealer is enrolled."""
    message = DealAnswer(
        commitments=dealing.commitments,
        sealed=b"".join(dealing.sealed),
        proof=dealing.statement.proof,
    )
    if identity is not None and identity.certificate is not None:
        message.certificate = identity.certificate.to_bytes()
        message.signature = identity.sign(dealing.statement.signed_part(terms))
    return message


def stated(dealing: Dealing, answer: DealAnswer) -> DealerStatement:
    """Write what a dealer said in public, with its signature."""
    statement = dealing.statement
    return DealerStatement(
        dealer=statement.dealer,
        constant=statement.constant,
        proof=statement.proof,
        rest=statement.rest,
        certificate=answer.certificate,
        signature=answer.signature,
    )


def read_statement(
    message: DealerStatement, terms: Terms, trust: Trust | None
) -> Statement:
    """Read a dealer's statement; signed by the enrolled dealer where trust is given."""
    statement = Statement(message.dealer, message.constant, message.proof, message.rest)
    verify_statement(statement, message, terms, trust)
    return statement


def verify_statement(
    statement: Statement,
    message: DealerStatement | DealAnswer,
    terms: Terms,
    trust: Trust | None,
) -> None:
    """Raise AuthenticationError unless the enrolled dealer said it."""
    if trust is not None:
        _verify(message, statement.signed_part(terms), statement.dealer, trust)


def _key_statement(context: bytes, party: str, key: bytes) -> bytes:
    return canonical("wallflower/v1/member-key", context, party, key)


def _verify(
    message: MemberKey | DealerStatement | DealAnswer,
    statement: bytes,
    party: str,
    trust: Trust,
) -> None:
    if not message.certificate or not message.signature:
        raise AuthenticationError(f"{party} showed no certificate")
    certificate = trust.verify(party, message.certificate)
    try:
        verify_signature(certificate.public_key, message.signature, statement)
    except AuthenticationError:
        raise AuthenticationError(f"{party} did not sign what it is said to") from None
