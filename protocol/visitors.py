"""People who arrive: who may come, what they sign, what their cohorts are bound to.

A cohort of people who arrive has *seats* instead of a roster: nobody knows beforehand
who will come. Its description states the admission, and its context holds the number of
seats. An *invitation* is a key of its own with a certificate of the inviter, who is not
the operator: the server sees the certificate and never the key, so it cannot answer in
the name of somebody whom it sent away.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import secrets
from dataclasses import dataclass
from typing import Final

from wallflower.protocol.errors import InputError, MalformedMessageError
from wallflower.protocol.identity.canonical import canonical
from wallflower.protocol.identity.enrolment import (
    Certificate,
    EnrolmentKey,
    NodeIdentity,
)
from wallflower.protocol.refusals import RefusalCode
from wallflower.protocol.secure_sum.backends import SEALED
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.protocol.wire.secure_sum_pb2 import RosterNote
from wallflower.protocol.wire.visitors_pb2 import VisitorPoll

VERSION: Final = 1
ARRIVAL_BYTES: Final = 16
ENROLLED, INVITED, OPEN = "enrolled", "invited", "open"
ADMISSIONS: Final = (ENROLLED, INVITED, OPEN)
# Of a poll; an answer with a proof of range has some 2,500 bytes.
LARGEST_POLL: Final = 32 * 1024
# Of a reply; where the server may lie, the key's evidence has some kilobytes a dealer.
LARGEST_REPLY: Final = 1 << 20
# From an arrival to the opening of its sum, at most: a round, the last answers, the
# wait for trustees. A certificate that was good on arrival is good for so long.
LONGEST_STAY_S: Final = 200 * 86_400.0
# What a server may say of a poll; of terms, a visitor's own node decides.
POLL_REFUSALS: Final = frozenset(
    {
        RefusalCode.BEYOND_CAPACITY,
        RefusalCode.MALFORMED_MESSAGE,
        RefusalCode.NO_SEAT,
        RefusalCode.NOT_AUTHENTICATED,
        RefusalCode.NOT_PROVED,
        RefusalCode.REPLAYED_MESSAGE,
        RefusalCode.STORE_UNAVAILABLE,
        RefusalCode.TOO_LATE,
        RefusalCode.WRONG_CONTEXT,
        RefusalCode.WRONG_RUN,
    }
)
# Why a visitor has no seat.
NO_FREE_SEAT: Final = "no-free-seat"
NO_SEAT_REASONS: Final = frozenset(
    {NO_FREE_SEAT, "already-answered", "cohort-closed", "paused", "run-over"}
)
_SEATS = hashlib.sha256(b"wallflower/v1/seats").digest()
_SEED_BYTES = 32
_MOST_SEATS = 2**32 - 1  # what a seats' note can state


def check_admission(spec: CohortSpec) -> None:
    """Refuse seats in a cohort that cannot have them; raises InputError."""
    if not spec.admission:
        return
    if spec.admission not in ADMISSIONS:
        raise InputError("admission", spec.admission[:50], ", ".join(ADMISSIONS))
    if spec.backend != SEALED:
        raise InputError("backend", spec.backend[:50], f"{SEALED} with seats")
    if spec.cohort_size > _MOST_SEATS:
        raise InputError("cohort_size", spec.cohort_size, f"at most {_MOST_SEATS}")
    if spec.admission == OPEN and spec.threat.malicious_server:
        raise InputError(
            "admission",
            OPEN,
            "enrolled or invited where the server may lie: it could invent people",
        )


def seats_note(spec: CohortSpec) -> RosterNote:
    """Return what stands in place of a roster: so many seats for whoever comes."""
    return RosterNote(digest=_SEATS, size=spec.cohort_size)


def arrival_transcript(poll: VisitorPoll) -> bytes:
    """Return what a visitor signs on arrival."""
    return canonical(
        "wallflower/v1/arrival",
        poll.version,
        poll.run_id,
        poll.visitor,
        poll.arrival,
        poll.certificate,
    )


@dataclass(frozen=True, slots=True)
class Invitation:
    """A one-time key and the inviter's certificate for it, as one short text.

    Whoever holds the text can come once. It belongs into a link's fragment or an app's
    message, which no server reads.
    """

    identity: NodeIdentity

    @classmethod
    def issue(cls, inviter: EnrolmentKey, *, not_after: int) -> Invitation:
        """Invite one person, by a name that says nothing about them."""
        name = secrets.token_hex(16)
        identity = NodeIdentity.generate(name)
        certificate = inviter.issue(name, identity.public_key, not_after=not_after)
        return cls(identity.enrolled(certificate))

    @classmethod
    def read(cls, text: str) -> Invitation:
        """Read what `text` wrote; raises MalformedMessageError."""
        try:
            body = base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
        except (binascii.Error, ValueError):
            raise MalformedMessageError("an invitation is garbled") from None
        if len(body) <= _SEED_BYTES:
            raise MalformedMessageError("an invitation is cut short")
        certificate = Certificate.from_bytes(body[_SEED_BYTES:])
        try:
            identity = NodeIdentity.from_private_bytes(
                certificate.node_id, body[:_SEED_BYTES], certificate
            )
        except InputError:
            raise MalformedMessageError("an invitation is for another key") from None
        return cls(identity)

    def text(self) -> str:
        """Return the invitation as URL-safe text."""
        certificate = self.identity.certificate
        assert certificate is not None
        body = self.identity.private_bytes() + certificate.to_bytes()
        return base64.urlsafe_b64encode(body).decode().rstrip("=")

    def __repr__(self) -> str:
        """Hide the key."""
        return f"Invitation({self.identity.node_id!r})"
