"""What a contributor of a sealed sum is sent, and how its answer is checked.

The check is the same wherever a contribution arrives: in a session with known nodes,
and at a worker that takes the answers of people who arrive, before they are stored.
"""

from __future__ import annotations

from dataclasses import dataclass

from wallflower.protocol.accounting.truncation import Truncation, truncation
from wallflower.protocol.cohort import cohort_mechanism
from wallflower.protocol.errors import (
    AuthenticationError,
    BeyondCapacityError,
    MalformedMessageError,
    WrongContextError,
)
from wallflower.protocol.identity.enrolment import Trust, verify_signature
from wallflower.protocol.secure_sum.backends import MOST_USERS, SEAL
from wallflower.protocol.secure_sum.context import (
    check_place,
    context_of,
    parse,
    unwrap,
    wrap,
)
from wallflower.protocol.secure_sum.sealed import ranges
from wallflower.protocol.secure_sum.sealed.cipher import (
    Ciphertext,
    sealed_context,
    shows_sender,
    statement,
)
from wallflower.protocol.secure_sum.sealed.committee import UnprovedError
from wallflower.protocol.secure_sum.sealed.group import Point
from wallflower.protocol.visitors import LARGEST_POLL, seats_note
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.protocol.wire.node_pb2 import (
    CohortStage,
    NodeAnswer,
    NodeRequest,
    Task,
)
from wallflower.protocol.wire.sealed_pb2 import DealingNote, SealAnswer, SealRequest


def check_claim(party: str, users: int, *, invited: int, capacity: int) -> None:
    """Refuse a number of users that others would refuse."""
    if users > capacity:
        raise BeyondCapacityError(
            f"{party} speaks for {users} users and is certified for {capacity}"
        )
    if not 1 <= users <= min(invited, MOST_USERS):
        raise WrongContextError(f"{party} claims {users} users")


@dataclass(frozen=True, slots=True)
class ContributionCheck:
    """What the contributions to one sum are checked against.

    Attributes
    ----------
    bound : the context of the cohort and its key.
    trust : who vouches for the contributors; None believes names.
    truncation : the range that contributions prove, where they do.
    """

    bound: bytes
    trust: Trust | None
    truncation: Truncation | None

    def check(self, party: str, answer: SealAnswer, invited: int) -> Ciphertext:
        """Return the ciphertext of a contribution; its proof of range is left unread.

        Proofs of range are cheaper to check together: see `claim`.
        """
        capacity, statement = MOST_USERS, self._statement(party, answer)
        if self.trust is not None:
            certificate = self.trust.verify(party, answer.certificate)
            capacity = certificate.capacity
            try:
                verify_signature(certificate.public_key, answer.signature, statement)
            except AuthenticationError:
                raise AuthenticationError(
                    f"{party} did not sign its contribution"
                ) from None
        check_claim(party, answer.users, invited=invited, capacity=capacity)
        sealed = Ciphertext(Point.parse(answer.one), Point.parse(answer.two))
        if not shows_sender(sealed.one, answer.proof, statement):
            raise UnprovedError(f"{party} does not know what it sealed")
        if (self.truncation is None) != (not answer.range):
            raise MalformedMessageError("a proof of range is missing, or too much")
        return sealed

    def claim(self, party: str, answer: SealAnswer, sealed: Ciphertext) -> ranges.Claim:
        """Return what a contribution's proof of range must show."""
        assert self.truncation is not None
        allowed = ranges.Range(*self.truncation.allowed(answer.users))
        return ranges.Claim(
            sealed, allowed, self._statement(party, answer), answer.range
        )

    def _statement(self, party: str, answer: SealAnswer) -> bytes:
        return statement(self.bound, party, answer.users, answer.one, answer.two)


def without_range(answer: SealAnswer) -> SealAnswer:
    """Leave out the proof of range: it is for the server alone."""
    bare = SealAnswer()
    bare.CopyFrom(answer)
    bare.ClearField("range")
    return bare


# --- Seats: every visitor of a cohort is sent the same terms.


def seat_terms(spec: CohortSpec, note: DealingNote) -> bytes:
    """Return the terms of a cohort's seats: a NodeRequest that names no visitor."""
    roster = seats_note(spec)
    payload = SealRequest(roster=roster, dealing=note).SerializeToString()
    context = context_of(spec, roster.digest, roster.size)
    stage = CohortStage(spec=spec, message=wrap(SEAL, context, "", "", payload))
    task = Task(task_id=spec.cohort_id, stage=stage)
    return NodeRequest(run_id=spec.run_id, tasks=[task]).SerializeToString()


class SeatTerms:
    """One cohort's terms as a worker needs them: read once, used for every visitor.

    Parameters
    ----------
    terms : bytes
        What `seat_terms` made.
    trust : Trust | None
        Who vouches for the visitors: enrolment, the inviter, or nobody.
    """

    def __init__(self, terms: bytes, trust: Trust | None) -> None:
        self._request = parse(NodeRequest, terms)
        (task,) = self._request.tasks
        self._task_id = task.task_id
        spec = task.stage.spec
        envelope = unwrap(task.stage.message)
        self._context, self._payload = envelope.context, envelope.payload
        note = parse(SealRequest, envelope.payload).dealing
        self._public = Point.parse(note.key)
        self.admission = spec.admission
        proved = spec.proved_inputs
        self._check = ContributionCheck(
            sealed_context(self._context, note.name),
            trust,
            truncation(cohort_mechanism(spec)) if proved else None,
        )

    def request_for(self, visitor: str) -> bytes:
        """Return the request that a visitor is sent with their seat."""
        request = NodeRequest()
        request.CopyFrom(self._request)
        stage = request.tasks[0].stage
        stage.users.append(visitor)
        stage.message = wrap(SEAL, self._context, "", visitor, self._payload)
        return request.SerializeToString()

    def check_answer(self, visitor: str, body: bytes) -> bytes:
        """Return a visitor's contribution as it is stored, or raise ProtocolError.

        Everything is checked here, proofs of range too, and what is not part of a
        contribution is dropped: what is stored is added up as it is.
        """
        reply = parse(NodeAnswer, body)
        if len(reply.answers) != 1 or reply.answers[0].task_id != self._task_id:
            raise WrongContextError("an answer to another request")
        if reply.answers[0].WhichOneof("kind") != "message":
            raise MalformedMessageError("an answer without a contribution")
        envelope = unwrap(reply.answers[0].message, largest=LARGEST_POLL)
        check_place(
            envelope, stage=SEAL, context=self._context, sender=visitor, receiver=""
        )
        answer = parse(SealAnswer, envelope.payload)
        sealed = self._check.check(visitor, answer, 1)
        if self._check.truncation is not None:
            claim = self._check.claim(visitor, answer, sealed)
            if ranges.wrong_claims(self._public, [claim]):
                raise UnprovedError(f"{visitor} sent what is not in range")
        kept = without_range(answer)
        kept.DiscardUnknownFields()
        return kept.SerializeToString(deterministic=True)


def answered_cohort(body: bytes) -> str:
    """Return which cohort an answer says it is for; raise MalformedMessageError."""
    reply = parse(NodeAnswer, body)
    if len(reply.answers) != 1:
        raise MalformedMessageError(f"{len(reply.answers)} answers for one seat")
    return reply.answers[0].task_id
