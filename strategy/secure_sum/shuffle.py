"""`shuffle`, the server's side: name who sent, have it shuffled, open the heap.

The server sees the roster, one sealed ticket of each node (or, where it carries them,
one sealed batch), which only the shuffler can open, and a heap of messages in an order
that nobody knows.
"""

from __future__ import annotations

from wallflower.protocol.errors import (
    InputError,
    MalformedMessageError,
    ProtocolError,
    ReplayedMessageError,
)
from wallflower.protocol.secure_sum.envelope import parse
from wallflower.protocol.secure_sum.session import (
    OUT,
    SENT,
    SERVER,
    UNKNOWN,
    PartyId,
    SecureSum,
    Step,
)
from wallflower.protocol.secure_sum.shuffle.deposits import TICKET_BYTES, admission
from wallflower.protocol.secure_sum.shuffle.plan import SHUFFLER, ShufflePlan
from wallflower.protocol.secure_sum.shuffle.seals import (
    HYBRID,
    OpeningKey,
    seal_info,
    sealed_bytes,
)
from wallflower.protocol.secure_sum.stages import RELEASE, SUBMIT
from wallflower.protocol.wire.secure_sum_pb2 import Envelope
from wallflower.protocol.wire.shuffle_pb2 import (
    Batch,
    ReleaseAnswer,
    ReleaseRequest,
    ShuffleState,
    SubmitAnswer,
    SubmitRequest,
)
from wallflower.protocol.wire.sum_state_pb2 import ServerState
from wallflower.strategy.secure_sum.machine import Opening, ServerMachine


class ShuffleServer(ServerMachine):
    """Collects batches, has them shuffled, and adds up what comes back."""

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        if SHUFFLER in opening.parties:
            raise InputError("parties", SHUFFLER, "names of nodes")
        self._plan = ShufflePlan.of(opening.spec, len(self.parties))
        self._key = OpeningKey.generate(self._plan.seal)
        self._uploads: dict[PartyId, SubmitAnswer] = {}
        self._closed: list[PartyId] = []
        self._heap: ReleaseAnswer | None = None

    def _first(self) -> Step:
        if not self.opening.keyring.shuffler:
            return self._void("no-shuffler", "no shuffler's key is configured")
        return self.enter(SUBMIT)

    def _messages(self) -> dict[PartyId, bytes]:
        if self.stage == SUBMIT:
            request = SubmitRequest(
                roster=self.roster_note,
                sealing_key=self._key.public,
                shuffler_key=self.opening.keyring.shuffler,
            )
            deposits = self.opening.keyring.deposits
            if deposits is not None:
                request.address = deposits.address
                request.authority = deposits.authority
                request.admission = admission(deposits.token, self.context)
            payload = request.SerializeToString()
            asked = [p for p in self.parties if p not in self.lost]
            return {party: self.envelope(party, payload) for party in asked}
        release = ReleaseRequest(
            spec=self.opening.spec,
            roster=self.roster_note,
            sealing_key=self._key.public,
            batches=[
                Batch(party=party, answer=self._uploads[party])
                for party in self._closed
            ],
        )
        return {SHUFFLER: release.SerializeToString(deterministic=True)}

    def receive(self, party: PartyId, body: bytes) -> None:
        """Take a node's batch, or the shuffler's heap."""
        if party != SHUFFLER:
            super().receive(party, body)
            return
        if self.over or SHUFFLER not in self.awaited:
            raise ReplayedMessageError("the shuffler is not awaited in this stage")
        self.awaited.discard(SHUFFLER)
        self._heap = parse(ReleaseAnswer, body)

    def _take(self, party: PartyId, envelope: Envelope) -> None:
        answer = parse(SubmitAnswer, envelope.payload)
        self.check_users(party, answer.users, self.parties[party])
        relayed = self.opening.keyring.deposits is None
        length = self._plan.batch_bytes if relayed else TICKET_BYTES
        if len(answer.sealed) != sealed_bytes(HYBRID, length):
            raise MalformedMessageError("a batch of the wrong length")
        self._uploads[party] = answer

    def _next(self) -> Step:
        return self._close_set() if self.stage == SUBMIT else self._add_up()

    def _close_set(self) -> Step:
        quorum = self.opening.spec.quorum
        self._closed = [party for party in self.parties if party in self._uploads]
        if len(self._closed) < self._plan.least:
            return self._void(
                "too-few-contributors",
                f"{len(self._closed)} nodes contributed; {self._plan.least} needed",
            )
        users = self._users(self._closed)
        if users < quorum:
            return self._void(
                "quorum-not-met", f"{users} users contributed; quorum {quorum}"
            )
        return self.enter(RELEASE)

    def _users(self, parties: list[PartyId]) -> int:
        return sum(self._uploads[party].users for party in parties)

    def _add_up(self) -> Step:
        answer = self._heap
        if answer is None:
            word = self.lost.get(SHUFFLER, "no-answer")
            return self._void("no-heap", f"the shuffler gave no heap ({word[:60]})")
        if answer.refusal:
            said = "".join(c if c.isprintable() else "?" for c in answer.refusal[:200])
            return self._void("no-heap", f"the shuffler refused: {said}")
        for party, word in sorted(answer.refused.items()):
            if party in self._uploads:
                self.lost[party] = word[:60]
                self.found(party, SENT, word[:60])
        survivors = [party for party in self._closed if party in set(answer.parties)]
        if len(survivors) != len(answer.parties) or self._users(survivors) < (
            self.opening.spec.quorum
        ):
            self.found("", SERVER, "heap-does-not-fit")
            return self._void("heap-does-not-fit", "the heap is of other nodes")
        try:
            total = self._plan.read(self._bodies(answer.heap), len(survivors))
        except ProtocolError as error:
            # Messages have no senders any more: whoever it was cannot be named.
            self.found("", UNKNOWN, error.code)
            return self._void("heap-unreadable", str(error))
        spec = self.opening.spec
        return self._end(
            SecureSum(total, spec.modulus, tuple(survivors), self._users(survivors))
        )

    def _bodies(self, heap: bytes) -> list[bytes]:
        size = self._plan.message_bytes
        if len(heap) % size:
            raise MalformedMessageError("a heap with a broken message")
        info = seal_info(self.context, self.opening.keyring.shuffler)
        return [
            self._key.open(heap[start : start + size], info)
            for start in range(0, len(heap), size)
        ]

    def lose(self, party: PartyId, code: str) -> None:
        """Note that a node or the shuffler is gone."""
        if party == SHUFFLER and SHUFFLER in self.awaited:
            self.awaited.discard(SHUFFLER)
            self.lost[SHUFFLER] = code
            self.found("", OUT if code == "timeout" else SERVER, "no-heap")
            return
        super().lose(party, code)

    def _write(self, state: ServerState) -> None:
        state.closed.extend(self._closed)
        for party, upload in self._uploads.items():
            state.uploads[party] = upload.SerializeToString()
        own = ShuffleState(seal=self._key.kind, opening_key=self._key.private_bytes())
        state.own = own.SerializeToString()

    def _read(self, state: ServerState) -> None:
        self._closed = list(state.closed)
        self._uploads = {
            party: parse(SubmitAnswer, body) for party, body in state.uploads.items()
        }
        own = parse(ShuffleState, state.own)
        self._key = OpeningKey(own.seal, own.opening_key)

    def _forget(self) -> None:
        self._uploads = {}
        self._heap = None
