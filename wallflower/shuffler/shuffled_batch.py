"""From nodes' encrypted batches to one shuffled batch, without a network.

The shuffler decrypts each node's batch and finds messages that it cannot decrypt. It
releases them in an order drawn uniformly from the system's random numbers. A cohort is
recorded as released before its messages leave, and is never released again: two
shuffled batches of different nodes would show what the difference sent.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

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
from wallflower.protocol.refusals import RefusalCode
from wallflower.protocol.secure_sum.backends import SHUFFLE
from wallflower.protocol.secure_sum.context import (
    context_of,
    parse,
    read_roster,
    roster_digest,
)
from wallflower.protocol.secure_sum.shuffle.plan import (
    ShufflePlan,
    are_names_told,
    batch_info,
    batch_statement,
    unnamed_info,
)
from wallflower.protocol.secure_sum.shuffle.seals import OpeningKey
from wallflower.protocol.secure_sum.threat import Threat, quorum_for
from wallflower.protocol.wire.shuffle_pb2 import Batch, ReleaseAnswer, ReleaseRequest
from wallflower.shuffler.home import ReleasedCohorts


@dataclass(frozen=True, slots=True)
class _Cohort:
    context: bytes
    plan: ShufflePlan
    size: int
    roster: dict[str, int]


class Shuffler:
    """Releases each cohort's messages at most once.

    Parameters
    ----------
    key : OpeningKey
        To which nodes encrypt their batches.
    released : ReleasedCohorts
        Cohorts that are over, on disk.
    trust : Trust, optional
        The enrolment key. If the server may lie, batches must be signed by nodes it
        vouches for; without it no such cohort is served. Other cohorts name nobody.
    """

    def __init__(
        self, key: OpeningKey, released: ReleasedCohorts, trust: Trust | None
    ) -> None:
        self._key = key
        self._released = released
        self._trust = trust

    def release(self, body: bytes) -> bytes:
        """Answer a serialized ReleaseRequest; a refusal is final."""
        try:
            request = parse(ReleaseRequest, body)
            cohort = self._cohort(request)
            # From here on the cohort is over, whatever happens.
            if not self._released.claim(cohort.context):
                raise ReplayedMessageError("this cohort was released before")
            answer = self._shuffle(request, cohort)
        except WallflowerError as error:
            return ReleaseAnswer(refusal=str(error)[:200]).SerializeToString()
        return answer.SerializeToString()

    def _cohort(self, request: ReleaseRequest) -> _Cohort:
        """Return what follows from the description; the shuffler derives it itself."""
        spec, note = request.spec, request.roster
        if spec.backend != SHUFFLE:
            raise WrongContextError("a cohort of another back-end")
        cohort_mechanism(spec)
        context = context_of(spec, note.digest, note.size)
        roster = self._read_named_roster(request) if are_names_told(spec) else {}
        if not are_names_told(spec) and (note.roster or request.batches):
            raise MalformedMessageError("a release that must name nobody has names")
        return _Cohort(context, ShufflePlan.of(spec, note.size), note.size, roster)

    def _read_named_roster(self, request: ReleaseRequest) -> dict[str, int]:
        """Return the checked roster; raise if the quorum is below what it must be."""
        spec, note = request.spec, request.roster
        if self._trust is None:
            raise RefusalError(
                RefusalCode.ENROLMENT_REQUIRED,
                "a lying server cannot be withstood without it",
            )
        if not note.roster or request.unnamed:
            raise MalformedMessageError("the roster is missing, or a name")
        roster = read_roster(note.roster)
        if roster_digest(note.roster) != note.digest or len(roster) != note.size:
            raise WrongContextError("the roster is not the one that was announced")
        corrupt = Threat.from_wire(spec.threat).corrupt
        needed = quorum_for(spec.honest_floor, roster, corrupt)
        if spec.quorum < needed:
            raise RefusalError(RefusalCode.QUORUM_TOO_LOW, f"{needed} users are needed")
        return roster

    def _shuffle(self, request: ReleaseRequest, cohort: _Cohort) -> ReleaseAnswer:
        answer, plan = ReleaseAnswer(), cohort.plan
        take = self._open_named if are_names_told(request.spec) else self._open_unnamed
        batches, users = take(request, cohort, answer)
        quorum = request.spec.quorum
        if len(batches) < plan.least or users < quorum:
            raise RefusalError(
                RefusalCode.FLOOR_NOT_MET,
                f"{len(batches)} nodes with {users} users; at least {plan.least} with "
                f"{quorum}",
            )
        answer.messages = in_random_order(batches, plan.message_bytes)
        return answer

    def _open_named(
        self, request: ReleaseRequest, cohort: _Cohort, answer: ReleaseAnswer
    ) -> tuple[list[bytes], int]:
        """Return the messages of nodes whose signature fits, and their users."""
        batches: list[bytes] = []
        taken: dict[str, int] = {}
        for batch in request.batches:
            if batch.party in taken:
                raise WrongContextError("a node is named twice")
            try:
                place = self._check_batch(request, batch, cohort)
                batches.append(self._messages(batch.answer.batch, place, cohort))
            except (ProtocolError, RefusalError) as error:
                answer.refused[batch.party] = error.code
            else:
                taken[batch.party] = batch.answer.users
        answer.parties.extend(sorted(taken))
        return batches, sum(taken.values())

    def _open_unnamed(
        self, request: ReleaseRequest, cohort: _Cohort, answer: ReleaseAnswer
    ) -> tuple[list[bytes], int]:
        """Return the messages of batches without names, and their users at least."""
        count = len(request.unnamed)
        if count != len(request.users) or count > cohort.size:
            raise MalformedMessageError("other batches than nodes")
        batches: list[bytes] = []
        seen: set[bytes] = set()
        place = unnamed_info(cohort.context, request.sealing_key)
        for number, batch in enumerate(request.unnamed):
            try:
                if batch in seen:
                    raise ReplayedMessageError("a batch is listed twice")
                seen.add(batch)
                batches.append(self._messages(batch, place, cohort))
            except (ProtocolError, RefusalError) as error:
                answer.left_out[number] = error.code
        # Whose are missing is not known here: the largest nodes', at worst.
        return batches, sum(sorted(request.users)[: len(batches)])

    def _check_batch(
        self, request: ReleaseRequest, batch: Batch, cohort: _Cohort
    ) -> bytes:
        """Verify who sent a batch; return what it is bound to."""
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
        """Decrypt a node's batch; raise if its length is wrong."""
        messages = self._key.open(batch, place)
        if len(messages) != cohort.plan.batch_bytes:
            raise MalformedMessageError("a batch of the wrong length")
        return messages


def in_random_order(batches: Sequence[bytes], size: int) -> bytes:
    """Return the messages of all batches in a uniformly random order."""
    table = np.frombuffer(b"".join(batches), dtype=np.dtype((np.void, size)))
    return table[random_order(len(table))].tobytes()


def random_order(count: int) -> NDArray[np.intp]:
    """Return a permutation drawn uniformly from the system's random bits.

    Random 64-bit keys are sorted. Where two are equal, all are drawn again; given that
    all differ, every order is equally likely.
    """
    while True:
        keys = np.frombuffer(os.urandom(8 * count), dtype=np.uint64)
        order = np.argsort(keys)
        ranked = keys[order]
        if not bool((ranked[1:] == ranked[:-1]).any()):
            return order
