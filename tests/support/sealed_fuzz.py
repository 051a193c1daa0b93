"""Changed messages in well-formed envelopes, sent to both sides of a sealed sum.

Payloads are cut, flipped, spliced with others and refilled field by field. Nothing but
ProtocolError and RefusalError ever comes out of a machine, and an answer that was taken
although it was changed never gives a wrong sum.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import Message

from tests.support.client_sessions import restore_session as restore_client
from tests.support.secure_sums import (
    TENTH,
    Cohort,
    Enrolment,
    cohort_spec,
    deal_key,
    names,
    open_cohort,
)
from wallflower.clients.secure_sum.keyring import ClientKeyring
from wallflower.clients.secure_sum.limits import ClientLimits
from wallflower.protocol.errors import ProtocolError, RefusalError
from wallflower.protocol.secure_sum.context import unwrap, wrap
from wallflower.protocol.secure_sum.session import Ask, Contribution, SecureSum
from wallflower.protocol.secure_sum.threat import Threat
from wallflower.protocol.wire import sealed_pb2 as wire
from wallflower.strategy.secure_sum import ServerKeyring, restore_session

ENROLMENT = Enrolment()
KINDS: dict[str, tuple[type[Message], type[Message]]] = {
    "enlist": (wire.EnlistRequest, wire.MemberKey),
    "deal": (wire.DealRequest, wire.DealAnswer),
    "check": (wire.CheckRequest, wire.CheckAnswer),
    "seal": (wire.SealRequest, wire.SealAnswer),
    "open": (wire.OpenRequest, wire.OpenAnswer),
}


@dataclass
class Target:
    """Both sides of a stage, frozen just before it."""

    stage: str
    session: Cohort
    server: bytes
    clients: dict[str, bytes]
    requests: dict[str, bytes]
    answers: dict[str, bytes]


@dataclass
class Fuzz:
    """Sends changed messages to machines that come fresh from their snapshots."""

    seed: int
    outcomes: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        lying = self.seed % 2 == 1
        self.threat = Threat(TENTH, TENTH, malicious_server=lying)
        self.enrolment = ENROLMENT if lying else None
        self.trust = ENROLMENT.trust if lying else None
        self.parties = names(5)
        self.rings: dict[str, ClientKeyring] = {}
        self.ring = ServerKeyring("run-1")
        self.targets: list[Target] = []
        dealing = deal_key(
            "run-1", self.threat, self.parties, self.rings, self.ring, self.enrolment
        )
        self._collect(dealing)
        spec = cohort_spec(
            "sealed", self.parties, threat=self.threat, proved=self.seed % 4 > 1
        )
        self.cohort = open_cohort(
            spec,
            self.parties,
            enrolment=self.enrolment,
            keyrings=self.rings,
            server_keyring=self.ring,
        )
        self._collect(self.cohort)

    def _collect(self, session: Cohort) -> None:
        step = session.server.start()
        while isinstance(step, Ask):
            clients = {p: c.snapshot() for p, c in session.clients.items()}
            server = session.server.snapshot()
            requests = dict(step.messages)
            answers = {p: session.answer(p, body) for p, body in requests.items()}
            self.targets.append(
                Target(step.stage, session, server, clients, requests, answers)
            )
            for party, answer in answers.items():
                session.server.receive(party, answer)
            step = session.server.advance()

    def changed(self, body: bytes, kind: type[Message]) -> bytes:
        """Change a payload; the envelope stays perfect."""
        envelope, dice = unwrap(body), self.dice
        payload = bytearray(envelope.payload)
        how = dice.randrange(5)
        if how == 0 and payload:
            for _ in range(dice.choice([1, 1, 2, 8])):
                payload[dice.randrange(len(payload))] ^= 1 << dice.randrange(8)
        elif how == 1 and payload:
            del payload[dice.randrange(len(payload)) :]
        elif how == 2:
            other = dice.choice(self.targets)
            donor = dice.choice(list(other.requests.values()))
            payload = bytearray(unwrap(donor).payload)
        elif how == 3:
            start = dice.randrange(len(payload) + 1)
            payload[start:start] = dice.randbytes(dice.choice([1, 33, 64]))
        else:
            message = kind()
            message.ParseFromString(bytes(payload))
            self._refill(message)
            payload = bytearray(message.SerializeToString())
        return wrap(
            envelope.stage,
            envelope.context,
            envelope.sender,
            envelope.receiver,
            bytes(payload),
        )

    def _refill(self, message: Any) -> None:
        """Return one field, somewhere inside, another value of its kind."""
        fields = list(message.DESCRIPTOR.fields)
        chosen = self.dice.choice(fields)
        value = getattr(message, chosen.name)
        if chosen.is_repeated:
            if value and self.dice.random() < 0.5:
                del value[self.dice.randrange(len(value))]
            elif value:
                first = value[self.dice.randrange(len(value))]
                value.append(first) if not isinstance(first, Message) else (
                    value.add().CopyFrom(first)
                )
        elif isinstance(value, Message):
            self._refill(value)
        elif isinstance(value, bytes):
            edge = [b"", bytes(len(value)), b"\xff" * len(value), value[::-1]]
            setattr(message, chosen.name, self.dice.choice(edge))
        elif isinstance(value, str):
            setattr(
                message, chosen.name, self.dice.choice(["", "node-00001", "x" * 99])
            )
        elif isinstance(value, bool):
            setattr(message, chosen.name, not value)
        else:
            edges = [0, 1, value + 1, 2**31, 2**32 - 1]
            setattr(message, chosen.name, self.dice.choice(edges))

    def send(self) -> None:
        """One changed message to one side."""
        target = self.dice.choice(self.targets)
        party = self.dice.choice(list(target.requests))
        request, answer = KINDS[target.stage]
        if self.dice.random() < 0.5:
            self._to_server(target, party, self.changed(target.answers[party], answer))
        else:
            self._to_client(
                target, party, self.changed(target.requests[party], request)
            )

    def _to_server(self, target: Target, party: str, body: bytes) -> None:
        keyring = ServerKeyring("run-1")
        keyring.dealt = self.ring.dealt
        server = restore_session(target.server, trust=self.trust, keyring=keyring)
        try:
            server.receive(party, body)
        except ProtocolError as error:
            self.outcomes[error.code] += 1
            return
        self.outcomes["taken"] += 1
        for other, answer in target.answers.items():
            if other != party:
                server.receive(other, answer)
        outcome = server.advance()
        if target.stage == "open" and isinstance(outcome, SecureSum):
            assert outcome.total == self.cohort.expected(outcome.survivors)

    def _to_client(self, target: Target, party: str, body: bytes) -> None:
        key_shares = self.rings[party].key_shares
        assert isinstance(key_shares, dict)
        ring = ClientKeyring("run-1", key_shares=dict(key_shares))
        client = restore_client(
            target.clients[party],
            ENROLMENT.identity(party) if self.enrolment else None,
            self.trust,
            ClientLimits(),
            ring,
        )
        try:
            request = client.inspect(body)
            request.answer(Contribution(3, 1) if request.needs_value else None)
        except (ProtocolError, RefusalError) as error:
            self.outcomes[error.code] += 1
            return
        self.outcomes["answered"] += 1


def fuzz(seeds: range, messages: int) -> Counter[str]:
    """Send so many per seed; count what came of them. Raises at the first surprise."""
    total: Counter[str] = Counter()
    for seed in seeds:
        one = Fuzz(seed)
        for number in range(messages):
            try:
                one.send()
            except Exception as error:
                raise AssertionError(f"seed {seed}, message {number}") from error
        total += one.outcomes
    return total
