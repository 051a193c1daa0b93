"""A machine-level fault simulator: no network, no clock, one seed per schedule.

Every message may be lost, duplicated, delayed past others, flipped or replaced by one
of another stage or cohort; every client may crash for good or come back from its
snapshot; the server may be killed after any answer and restored from the last snapshot
and the answers spooled since. Every node's value is its own bit, so that a sum names
its summands and a double count would show.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.support.client_sessions import client_session
from tests.support.client_sessions import restore_session as restore_client
from tests.support.secure_sums import NODE_BACKENDS as BACKENDS
from tests.support.secure_sums import TENTH, Enrolment, cohort_spec, names
from wallflower.clients.secure_sum.keyring import ClientKeyring
from wallflower.clients.secure_sum.limits import ClientLimits
from wallflower.protocol.errors import ProtocolError, RefusalError
from wallflower.protocol.identity.enrolment import Trust
from wallflower.protocol.secure_sum.backends import SEALED
from wallflower.protocol.secure_sum.sealed.committee import dealing_spec
from wallflower.protocol.secure_sum.session import (
    Ask,
    ClientSession,
    Contribution,
    KeyReady,
    SecureSum,
    ServerSession,
    Step,
    Void,
)
from wallflower.protocol.secure_sum.threat import Threat
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.strategy.secure_sum import (
    ServerKeyring,
    restore_session,
    server_session,
)

ENROLMENT = Enrolment()


@dataclass
class Tally:
    """What happened over many schedules."""

    sums: int = 0
    partial: int = 0
    voids: Counter[str] = field(default_factory=Counter)
    injected: Counter[str] = field(default_factory=Counter)


@dataclass
class Schedule:
    """One cohort under one seed."""

    seed: int
    tally: Tally
    backends: Sequence[str] = BACKENDS

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        dice = self.dice
        self.rate = dice.choice([0.0, 0.02, 0.05, 0.15, 0.3])
        backend = dice.choice(self.backends)
        nodes = dice.choice([2, 3, 4, 5, 6, 7, 8])
        lying = dice.random() < 0.15 and nodes >= 5
        threat = Threat(TENTH, TENTH, malicious_server=lying)
        self.parties = names(nodes)
        self.values = {p: 1 << i for i, p in enumerate(self.parties)}
        self.trust: Trust | None = ENROLMENT.trust if lying else None
        self.spec = cohort_spec(
            backend,
            self.parties,
            modulus=dice.choice([521, 2**20, 2**31, 2**62 - 57]),
            threat=threat,
            cohort_id=f"cohort-{self.seed}",
            quorum=dice.randint(2, nodes),
        )
        self.rings = {p: ClientKeyring("run-1") for p in self.parties}
        self.keyring = ServerKeyring("run-1")
        self.clients: dict[str, ClientSession] = {}
        self.server: ServerSession
        self.snapshot = b""
        self.spooled: list[tuple[str, bytes]] = []
        self.stale: list[bytes] = []

    def happens(self, fault: str) -> bool:
        hit = self.dice.random() < self.rate
        self.tally.injected[fault] += hit
        return hit

    def run(self) -> SecureSum | Void:
        """Drive to the end, the dealing of a sealed sum included."""
        if self.spec.backend == SEALED:
            threat = Threat.from_wire(self.spec.threat)
            dealt = self._session(
                dealing_spec("run-1", f"deal-{self.seed}", threat, self.parties)
            )
            if isinstance(dealt, Void):
                return dealt
            assert isinstance(dealt, KeyReady)
        outcome = self._session(self.spec)
        assert not isinstance(outcome, KeyReady)
        return outcome

    def _session(self, spec: CohortSpec) -> SecureSum | KeyReady | Void:
        """Drive one session to its end; more than 20 stages would be a hang."""
        self.clients = {
            party: client_session(
                spec,
                party,
                ENROLMENT.identity(party) if self.trust else None,
                self.trust,
                ClientLimits(),
                ring,
            )
            for party, ring in self.rings.items()
        }
        self.server = server_session(
            spec, self.parties, trust=self.trust, keyring=self.keyring
        )
        step = self.server.start()
        for _ in range(20):
            if not isinstance(step, Ask):
                return step
            self.snapshot, self.spooled = self.server.snapshot(), []
            step = self._stage(step)
        raise AssertionError(f"seed {self.seed}: the session does not end")

    def _stage(self, ask: Ask) -> Step:
        answers = []
        for party, body in ask.messages.items():
            answers += self._client(party, body)
        self.dice.shuffle(answers)
        for party, answer in answers:
            self._deliver(party, answer)
            if self.happens("server-killed"):
                self._restore()
        return self.server.advance()

    def _client(self, party: str, body: bytes) -> list[tuple[str, bytes]]:
        """What comes out of a client for one request, if anything."""
        if self.happens("request-lost"):
            return []
        deliveries = [body]
        if self.happens("request-duplicated"):
            deliveries.append(body)
        answers = self._answers(party, deliveries)
        if self.happens("client-crashed"):
            self.clients[party].close()
        elif self.happens("client-restarted"):
            self._restart(party)
        if answers and self.happens("answer-lost"):
            return []
        if answers and self.happens("answer-duplicated"):
            answers.append(answers[0])
        self.stale += [answer for _, answer in answers]
        return answers

    def _answers(self, party: str, deliveries: list[bytes]) -> list[tuple[str, bytes]]:
        answers = []
        for copy in deliveries:
            if self.happens("request-flipped"):
                copy = self._flip(copy)
            try:
                answers.append((party, self._ask(party, copy)))
            except (ProtocolError, RefusalError) as error:
                self.server.lose(party, error.code)
                if self.dice.random() < 0.5:
                    break
        return answers

    def _ask(self, party: str, body: bytes) -> bytes:
        request, value = self.clients[party].inspect(body), None
        if request.needs_value:
            value = Contribution(self.values[party], 1)
        return request.answer(value).body

    def _restart(self, party: str) -> None:
        try:
            kept = self.clients[party].snapshot()
        except ProtocolError:
            return
        identity = ENROLMENT.identity(party) if self.trust else None
        # A share of the run's key lies in the node's own store.
        self.rings[party] = ClientKeyring(
            "run-1", key_shares=self.rings[party].key_shares
        )
        self.clients[party] = restore_client(
            kept, identity, self.trust, ClientLimits(), self.rings[party]
        )

    def _deliver(self, party: str, answer: bytes) -> None:
        if self.happens("answer-flipped"):
            answer = self._flip(answer)
        elif self.stale and self.happens("answer-replaced"):
            answer = self.dice.choice(self.stale)
        self.spooled.append((party, answer))
        self._receive(party, answer)

    def _receive(self, party: str, answer: bytes) -> None:
        try:
            self.server.receive(party, answer)
        except ProtocolError:
            self.tally.injected["answer-refused"] += 1

    def _restore(self) -> None:
        """The server dies; its last snapshot and the spooled answers bring it back."""
        self.server = restore_session(
            self.snapshot, trust=self.trust, keyring=self.keyring
        )
        for party, answer in self.spooled:
            self._receive(party, answer)
        again = self.server.start()
        assert isinstance(again, Ask)

    def _flip(self, body: bytes) -> bytes:
        raw = bytearray(body)
        raw[self.dice.randrange(len(raw))] ^= 1 << self.dice.randrange(8)
        return bytes(raw)


def run_schedules(seeds: range, backends: Sequence[str] = BACKENDS) -> Tally:
    """Run many; raises AssertionError naming the seed at the first wrong outcome."""
    tally = Tally()
    for seed in seeds:
        schedule = Schedule(seed, tally, backends)
        outcome = schedule.run()
        if isinstance(outcome, Void):
            assert outcome.code, seed
            assert outcome.detail, seed
            tally.voids[outcome.code] += 1
            continue
        expected = sum(schedule.values[party] for party in outcome.survivors)
        # One-hot: below the modulus the sum itself lists the survivors.
        assert outcome.total == expected % schedule.spec.modulus, f"seed {seed}"
        assert len(set(outcome.survivors)) == len(outcome.survivors), f"seed {seed}"
        assert outcome.users == len(outcome.survivors), f"seed {seed}"
        assert outcome.users >= schedule.spec.quorum, f"seed {seed}"
        tally.sums += 1
        tally.partial += len(outcome.survivors) < len(schedule.parties)
    return tally
