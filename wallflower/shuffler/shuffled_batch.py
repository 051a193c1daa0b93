"""From sealed batches to one heap, once: all that a shuffler does, without a network.

It opens each node's batch, finds messages that it cannot open, and gives them away in
an order drawn uniformly from the system's random numbers. A cohort is written down as
given before its heap leaves, and never given again: two heaps of different nodes would
tell what the difference sent.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

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
from wallflower.protocol.secure_sum.shuffle.deposits import REFERENCE_BYTES
from wallflower.protocol.secure_sum.shuffle.plan import (
    ShufflePlan,
    batch_info,
    batch_statement,
    names_are_told,
    unnamed_info,
)
from wallflower.protocol.secure_sum.shuffle.seals import OpeningKey
from wallflower.protocol.secure_sum.threat import Threat, quorum_for
from wallflower.protocol.wire.shuffle_pb2 import Batch, ReleaseAnswer, ReleaseRequest
from wallflower.shuffler.deposits import Deposits
from wallflower.shuffler.given import Given


@dataclass(frozen=True, slots=True)
class _Cohort:
    context: bytes
    plan: ShufflePlan
    size: int
    roster: dict[str, int]
    brought: dict[bytes, bytes] = field(default_factory=dict)


class Shuffler:
    """Gives each cohort's heap once, or never.

    Parameters
    ----------
    key : OpeningKey
        To which nodes seal their batches.
    given : Given
        Cohorts that are over, on disk.
    trust : Trust, optional
        The enrolment key: of cohorts whose server may lie, batches must be signed by
        nodes it vouches for. Without it no such cohort is served. Of other cohorts
        nobody's name is told.
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
            cohort = self._cohort(request)
        except WallflowerError as error:
            return _refusal(error)
        # From here on the cohort is over, whatever happens.
        try:
            if not self._given.claim(cohort.context):
                raise ReplayedMessageError("this cohort was given before")
            if self._deposits is not None:
                brought = self._deposits.take(cohort.context, request.sealing_key)
                cohort = replace(cohort, brought=brought)
            answer = self._shuffled(request, cohort)
        except WallflowerError as error:
            return _refusal(error)
        finally:
            if self._deposits is not None:
                self._deposits.end(cohort.context)
        return answer.SerializeToString()

    def _cohort(self, request: ReleaseRequest) -> _Cohort:
        """Derive everything from the description; nothing is believed of it."""
        spec, note = request.spec, request.roster
        if spec.backend != SHUFFLE:
            raise WrongContextError("a cohort of another back-end")
        cohort_mechanism(spec)
        context = context_of(spec, note.digest, note.size)
        roster = self._named_roster(request) if names_are_told(spec) else {}
        if not names_are_told(spec) and (note.roster or request.batches):
            raise MalformedMessageError("names that nobody needs here")
        return _Cohort(context, ShufflePlan.of(spec, note.size), note.size, roster)

    def _named_roster(self, request: ReleaseRequest) -> dict[str, int]:
        """Check that who answered can be checked, and that enough must have."""
        spec, note = request.spec, request.roster
        if self._trust is None:
            raise RefusalError(
                "enrolment-required", "a lying server cannot be withstood without it"
            )
        if not note.roster or request.unnamed:
            raise MalformedMessageError("the roster is missing, or a name")
        roster = read_roster(note.roster)
        if roster_digest(note.roster) != note.digest or len(roster) != note.size:
            raise WrongContextError("the roster is not the one that was announced")
        corrupt = Threat.from_wire(spec.threat).corrupt
        needed = quorum_for(spec.honest_floor, roster, corrupt)
        if spec.quorum < needed:
            raise RefusalError("quorum-too-small", f"{needed} users are needed")
        return roster

    def _shuffled(self, request: ReleaseRequest, cohort: _Cohort) -> ReleaseAnswer:
        answer, plan = ReleaseAnswer(), cohort.plan
        take = self._named if names_are_told(request.spec) else self._unnamed
        heaps, users = take(request, cohort, answer)
        quorum = request.spec.quorum
        if len(heaps) < plan.least or users < quorum:
            raise RefusalError(
                "floor-not-met",
                f"{len(heaps)} nodes with {users} users; at least {plan.least} with "
                f"{quorum}",
            )
        answer.heap = in_random_order(heaps, plan.message_bytes)
        return answer

    def _named(
        self, request: ReleaseRequest, cohort: _Cohort, answer: ReleaseAnswer
    ) -> tuple[list[bytes], int]:
        """Open the batches of nodes that are who the server says; count their users."""
        heaps: list[bytes] = []
        taken: dict[str, int] = {}
        for batch in request.batches:
            if batch.party in taken:
                raise WrongContextError("a node is named twice")
            try:
                place = self._checked(request, batch, cohort)
                heaps.append(self._messages(batch.answer.batch, place, cohort))
            except (ProtocolError, RefusalError) as error:
                answer.refused[batch.party] = error.code
            else:
                taken[batch.party] = batch.answer.users
        answer.parties.extend(sorted(taken))
        return heaps, sum(taken.values())

    def _unnamed(
        self, request: ReleaseRequest, cohort: _Cohort, answer: ReleaseAnswer
    ) -> tuple[list[bytes], int]:
        """Open batches of nobody; count the users that surely stand behind them."""
        count = len(request.unnamed)
        if count != len(request.users) or count > cohort.size:
            raise MalformedMessageError("other batches than nodes")
        heaps: list[bytes] = []
        seen: set[bytes] = set()
        place = unnamed_info(cohort.context, request.sealing_key)
        for number, batch in enumerate(request.unnamed):
            try:
                if batch in seen:
                    raise ReplayedMessageError("a batch is listed twice")
                seen.add(batch)
                heaps.append(self._messages(batch, place, cohort))
            except (ProtocolError, RefusalError) as error:
                answer.left_out[number] = error.code
        # Whose are missing is not known here: the largest nodes', at worst.
        return heaps, sum(sorted(request.users)[: len(heaps)])

    def _checked(self, request: ReleaseRequest, batch: Batch, cohort: _Cohort) -> bytes:
        """Verify who sent a batch; give what it is sealed for."""
        party, answer = batch.party, batch.answer
        if not 1 <= answer.users <= cohort.roster.get(party, 0):
            raise WrongContextError("a node that is not on the roster, or not so large")
        if not answer.certificate or not answer.signature:
            raise AuthenticationError("a batch without a signature")
        assert self._trust is not None
        certificate = self._trust.verify(party, answer.certificate)
        place = batch_info(cohort.context, party, answer.users, request.sealing_key)
        statement = batch_statement(place, answer.batch)
        verify_signature(certificate.public_key, answer.signature, statement)
        if answer.users > certificate.capacity:
            raise BeyondCapacityError("more users than the node is certified for")
        return place

    def _messages(self, batch: bytes, place: bytes, cohort: _Cohort) -> bytes:
        """Find a node's messages, among the deposits or in the batch itself."""
        if len(batch) == REFERENCE_BYTES:
            if batch not in cohort.brought:
                raise RefusalError("no-deposit", "nothing was brought for it")
            messages = cohort.brought.pop(batch)
        else:
            messages = self._key.open(batch, place)
        if len(messages) != cohort.plan.batch_bytes:
            raise MalformedMessageError("a batch of the wrong length")
        return messages


def _refusal(error: WallflowerError) -> bytes:
    return ReleaseAnswer(refusal=str(error)[:200]).SerializeToString()


def in_random_order(heaps: Sequence[bytes], size: int) -> bytes:
    """Give the messages of all batches in a uniformly random order."""
    table = np.frombuffer(b"".join(heaps), dtype=np.dtype((np.void, size)))
    return table[random_order(len(table))].tobytes()


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
