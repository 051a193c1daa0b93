"""From sealed batches to one heap, once: all that a shuffler does, without a network.

It opens each node's batch, finds messages that it cannot open, and gives them away in
an order drawn uniformly from the system's random numbers. A cohort is written down as
given before its heap leaves, and never given again: two heaps of different nodes would
tell what the difference sent.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from wallflower.protocol.cohort import cohort_mechanism
from wallflower.protocol.errors import (
    AuthenticationError,
    BeyondCapacityError,
    MalformedMessageError,
    ProtocolError,
    RefusalError,
    ReplayedMessageError,
    WallflowerError,
    WrongContextError,
)
from wallflower.protocol.identity.enrolment import Trust, verify_signature
from wallflower.protocol.secure_sum.backends import SHUFFLE
from wallflower.protocol.secure_sum.context import (
    context_of,
    read_roster,
    roster_digest,
)
from wallflower.protocol.secure_sum.envelope import parse
from wallflower.protocol.secure_sum.shuffle.deposits import TICKET_BYTES
from wallflower.protocol.secure_sum.shuffle.plan import (
    ShufflePlan,
    batch_info,
    batch_statement,
)
from wallflower.protocol.secure_sum.shuffle.seals import OpeningKey
from wallflower.protocol.secure_sum.threat import COMPLETE_UP_TO, Threat, quorum_for
from wallflower.protocol.wire.secure_sum_pb2 import RosterNote
from wallflower.protocol.wire.shuffle_pb2 import Batch, ReleaseAnswer, ReleaseRequest
from wallflower.shuffler.deposits import Deposits
from wallflower.shuffler.given import Given


class Shuffler:
    """Gives each cohort's heap once, or never.

    Parameters
    ----------
    key : OpeningKey
        To which nodes seal their batches.
    given : Given
        Cohorts that are over, on disk.
    trust : Trust, optional
        The enrolment key: batches must be signed by nodes it vouches for. Without it
        the server is believed not to make up nodes.
    deposits : Deposits, optional
        What nodes brought themselves.
    """

    def __init__(
        self,
        key: OpeningKey,
        given: Given,
        trust: Trust | None,
        deposits: Deposits | None = None,
    ) -> None:
        self._key = key
        self._given = given
        self._trust = trust
        self._deposits = deposits

    def release(self, body: bytes) -> bytes:
        """Answer a ReleaseRequest, both serialized; a refusal is for good."""
        try:
            request = parse(ReleaseRequest, body)
            context, plan, roster = self._cohort(request)
        except WallflowerError as error:
            return _refusal(error)
        # From here on the cohort is over, whatever happens.
        try:
            if not self._given.claim(context):
                raise ReplayedMessageError("this cohort was given before")
            answer = self._shuffled(request, context, plan, roster)
        except WallflowerError as error:
            return _refusal(error)
        finally:
            if self._deposits is not None:
                self._deposits.end(context)
        return answer.SerializeToString()

    def _cohort(
        self, request: ReleaseRequest
    ) -> tuple[bytes, ShufflePlan, dict[str, int] | None]:
        """Derive everything from the description; nothing is believed of it."""
        spec, note = request.spec, request.roster
        if spec.backend != SHUFFLE:
            raise WrongContextError("a cohort of another back-end")
        cohort_mechanism(spec)
        threat = Threat.from_wire(spec.threat)
        if threat.malicious_server and self._trust is None:
            raise RefusalError(
                "enrolment-required", "a lying server cannot be withstood without it"
            )
        roster = _roster(note, threat)
        if roster is not None and threat.malicious_server:
            needed = quorum_for(spec.honest_floor, roster, threat.corrupt)
            if spec.quorum < needed:
                raise RefusalError("quorum-too-small", f"{needed} users are needed")
        context = context_of(spec, note.digest, note.size)
        return context, ShufflePlan.of(spec, note.size), roster

    def _shuffled(
        self,
        request: ReleaseRequest,
        context: bytes,
        plan: ShufflePlan,
        roster: dict[str, int] | None,
    ) -> ReleaseAnswer:
        heaps: list[bytes] = []
        taken: dict[str, int] = {}
        refused: dict[str, str] = {}
        for batch in request.batches:
            if batch.party in taken:
                raise WrongContextError("a node is named twice")
            try:
                heaps.append(self._open(request, batch, context, plan, roster))
            except (ProtocolError, RefusalError) as error:
                refused[batch.party] = error.code
            else:
                taken[batch.party] = batch.answer.users
        quorum = request.spec.quorum
        if len(taken) < plan.least or sum(taken.values()) < quorum:
            raise RefusalError(
                "floor-not-met",
                f"{len(taken)} nodes with {sum(taken.values())} users; at least "
                f"{plan.least} with {quorum}",
            )
        heap = b"".join(in_random_order(heaps, plan.message_bytes))
        return ReleaseAnswer(heap=heap, parties=sorted(taken), refused=refused)

    def _open(
        self,
        request: ReleaseRequest,
        batch: Batch,
        context: bytes,
        plan: ShufflePlan,
        roster: dict[str, int] | None,
    ) -> bytes:
        party, answer = batch.party, batch.answer
        place = batch_info(context, party, answer.users, request.sealing_key)
        if roster is not None and not 1 <= answer.users <= roster.get(party, 0):
            raise WrongContextError("a node that is not on the roster, or not so large")
        if self._trust is not None:
            if not answer.certificate or not answer.signature:
                raise AuthenticationError("a batch without a signature")
            certificate = self._trust.verify(party, answer.certificate)
            statement = batch_statement(place, answer.sealed)
            verify_signature(certificate.public_key, answer.signature, statement)
            if answer.users > certificate.capacity:
                raise BeyondCapacityError("more users than the node is certified for")
        messages = self._key.open(answer.sealed, place)
        if self._deposits is not None and len(messages) == TICKET_BYTES:
            messages = self._deposits.take(context, messages)
        if len(messages) != plan.batch_bytes:
            raise MalformedMessageError("a batch of the wrong length")
        return messages


def _roster(note: RosterNote, threat: Threat) -> dict[str, int] | None:
    if not note.roster:
        if note.size <= COMPLETE_UP_TO or threat.malicious_server:
            raise MalformedMessageError("the roster is missing")
        return None
    roster = read_roster(note.roster)
    if roster_digest(note.roster) != note.digest or len(roster) != note.size:
        raise WrongContextError("the roster is not the one that was announced")
    return roster


def _refusal(error: WallflowerError) -> bytes:
    return ReleaseAnswer(refusal=str(error)[:200]).SerializeToString()


def in_random_order(heaps: Sequence[bytes], size: int) -> Iterator[bytes]:
    """Give the messages of all batches in a uniformly random order."""
    table = np.frombuffer(b"".join(heaps), dtype=np.dtype((np.void, size)))
    return (bytes(message) for message in table[random_order(len(table))])


def random_order(count: int) -> NDArray[np.intp]:
    """Draw a permutation from the system's bits, each exactly as likely.

    Random keys are sorted; given that all differ, every order is equally likely, and
    with 64 bits they hardly ever do not.
    """
    while True:
        keys = np.frombuffer(os.urandom(8 * count), dtype=np.uint64)
        order = np.argsort(keys)
        ranked = keys[order]
        if not bool((ranked[1:] == ranked[:-1]).any()):
            return order
