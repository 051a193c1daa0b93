"""`shuffle`, the server's side: say what was sent, have it shuffled, open the shuffled
batch.

The server sees the roster, of each node the digest of a ticket (or, where it carries
them, a sealed batch), which it can neither invert nor open, and a shuffled batch of
messages in an order that nobody knows. Who sent what it tells the shuffler only where
that must be checked.
"""

from __future__ import annotations

from wallflower.protocol.errors import (
    InputError,
    MalformedMessageError,
    ProtocolError,
    ReplayedMessageError,
)
from wallflower.protocol.secure_sum.backends import RELEASE, SUBMIT
from wallflower.protocol.secure_sum.context import parse
from wallflower.protocol.secure_sum.session import (
    OUT,
    SENT,
    SERVER,
    UNKNOWN,
    PartyId,
    SecureSum,
    Step,
)
from wallflower.protocol.secure_sum.shuffle.plan import (
    SHUFFLER,
    ShufflePlan,
    are_names_told,
)
from wallflower.protocol.secure_sum.shuffle.seals import (
    HYBRID,
    OpeningKey,
    seal_info,
    sealed_bytes,
)
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
from wallflower.strategy.secure_sum.machine import ServerMachine, SessionParams


class ShuffleServer(ServerMachine):
    """Collects batches, has them shuffled, and adds up what comes back."""

    def __init__(self, opening: SessionParams) -> None:
        super().__init__(opening)
        if SHUFFLER in opening.parties:
            raise InputError("parties", SHUFFLER, "names of nodes")
        self._plan = ShufflePlan.of(opening.spec, len(self.parties))
        self._key = OpeningKey.generate(self._plan.seal)
        self._uploads: dict[PartyId, SubmitAnswer] = {}
        self._closed: list[PartyId] = []
        self._shuffled: ReleaseAnswer | None = None

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
            payload = request.SerializeToString()
            asked = [p for p in self.parties if p not in self.lost]
            return {party: self.envelope(party, payload) for party in asked}
        return {SHUFFLER: self._release().SerializeToString(deterministic=True)}

    def _release(self) -> ReleaseRequest:
        spec, key = self.opening.spec, self._key.public
        if are_names_told(spec):
            batches = [Batch(party=p, answer=self._uploads[p]) for p in self._closed]
            return ReleaseRequest(
                spec=spec, roster=self.roster_note, sealing_key=key, batches=batches
            )
        sizes = [self._uploads[party].users for party in self._closed]
        return ReleaseRequest(
            spec=spec,
            roster=self.known_note,
            sealing_key=key,
            unnamed=[self._uploads[party].batch for party in self._as_unnamed()],
            users=sorted(sizes, reverse=True),
        )

    def _as_unnamed(self) -> list[PartyId]:
        """Order nodes by their batches, whose bytes look random and name nobody."""
        return sorted(self._closed, key=lambda party: self._uploads[party].batch)

    def receive(self, party: PartyId, body: bytes) -> None:
        """Take a node's batch, or the shuffler's shuffled batch."""
        if party != SHUFFLER:
            super().receive(party, body)
            return
        if self.over or SHUFFLER not in self.awaited:
            raise ReplayedMessageError("the shuffler is not awaited in this stage")
        self.awaited.discard(SHUFFLER)
        self._shuffled = parse(ReleaseAnswer, body)

    def _take(self, party: PartyId, envelope: Envelope) -> None:
        answer = parse(SubmitAnswer, envelope.payload)
        self.check_users(party, answer.users, self.parties[party])
        if len(answer.batch) != sealed_bytes(HYBRID, self._plan.batch_bytes):
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
        answer = self._shuffled
        if answer is None:
            word = self.lost.get(SHUFFLER, "no-answer")
            return self._void(
                "no-shuffled-batch",
                f"the shuffler gave no shuffled batch ({word[:60]})",
            )
        if answer.refusal:
            refusal = "".join(
                c if c.isprintable() else "?" for c in answer.refusal[:200]
            )
            return self._void("no-shuffled-batch", f"the shuffler refused: {refusal}")
        given, refused = self._list_given(answer)
        for party, word in sorted(refused.items()):
            if party in self._uploads:
                self.lost[party] = word[:60]
                self.found(party, SENT, word[:60])
        survivors = [party for party in self._closed if party in given]
        if len(survivors) != len(given) or self._users(survivors) < (
            self.opening.spec.quorum
        ):
            self.found("", SERVER, "shuffled-batch-does-not-fit")
            return self._void(
                "shuffled-batch-does-not-fit", "the shuffled batch is of other nodes"
            )
        try:
            total = self._plan.read(self._bodies(answer.messages), len(survivors))
        except ProtocolError as error:
            # Messages have no senders any more: whoever it was cannot be named.
            self.found("", UNKNOWN, error.code)
            return self._void("shuffled-batch-unreadable", str(error))
        spec = self.opening.spec
        return self._end(
            SecureSum(total, spec.modulus, tuple(survivors), self._users(survivors))
        )

    def _list_given(
        self, answer: ReleaseAnswer
    ) -> tuple[set[PartyId], dict[PartyId, str]]:
        """Say whose messages are in the shuffled batch, and why others' are not."""
        if are_names_told(self.opening.spec):
            return set(answer.parties), dict(answer.refused)
        listed = dict(enumerate(self._as_unnamed()))
        given = {p for place, p in listed.items() if place not in answer.left_out}
        left_out = answer.left_out.items()
        return given, {listed.get(place, ""): word for place, word in left_out}

    def _bodies(self, shuffled: bytes) -> list[bytes]:
        size = self._plan.message_bytes
        if len(shuffled) % size:
            raise MalformedMessageError("a shuffled batch with a broken message")
        info = seal_info(self.context, self.opening.keyring.shuffler)
        return [
            self._key.open(shuffled[start : start + size], info)
            for start in range(0, len(shuffled), size)
        ]

    def lose(self, party: PartyId, code: str) -> None:
        """Note that a node or the shuffler is gone."""
        if party == SHUFFLER and SHUFFLER in self.awaited:
            self.awaited.discard(SHUFFLER)
            self.lost[SHUFFLER] = code
            self.found("", OUT if code == "timeout" else SERVER, "no-shuffled-batch")
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
        self._shuffled = None
