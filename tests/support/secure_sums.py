"""Drive secure sums in memory: every party in one process, no network."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeVar

from google.protobuf.message import Message

from tests.support.client_sessions import client_session
from wallflower.clients.secure_sum.keyring import ClientKeyring
from wallflower.clients.secure_sum.limits import ClientLimits
from wallflower.protocol.cohort import to_rational
from wallflower.protocol.errors import ProtocolError, RefusalError
from wallflower.protocol.identity.enrolment import EnrolmentKey, NodeIdentity, Trust
from wallflower.protocol.privacy.mechanism import mechanism_named
from wallflower.protocol.secure_sum.backends import BACKENDS, SEALED, SHUFFLE
from wallflower.protocol.secure_sum.context import unwrap, wrap
from wallflower.protocol.secure_sum.sealed.committee import dealing_spec, is_dealing
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
from wallflower.protocol.secure_sum.threat import Threat, quorum_for
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.strategy.secure_sum import (
    ServerKeyring,
    backend_modulus,
    server_session,
)

TENTH = Fraction(1, 10)
# Those whose sums the nodes make among themselves; `shuffled_sums` has the other one.
NODE_BACKENDS = tuple(backend for backend in BACKENDS if backend != SHUFFLE)
NOW = 1_800_000_000
MOST_SEALED = 7000  # what a user of a sealed test cohort may surely send
_NUMBERS = itertools.count()
Gate = Callable[[str, str], bool]  # stage, party → the message gets through


def cohort_spec(
    backend: str,
    parties: Mapping[str, int],
    *,
    modulus: int = 1009,
    quorum: int | None = None,
    cohort_id: str = "cohort-1",
    run_id: str = "run-1",
    threat: Threat | None = None,
    honest_floor: int = 1,
    proved: bool = False,
) -> CohortSpec:
    """Describe a cohort; the quorum is the least the threat allows unless given.

    A sealed sum is decoded in the window of its mechanism, so its modulus is that of
    a mechanism with fine rewards, whatever `modulus` says.
    """
    threat = threat or Threat(TENTH, TENTH)
    if quorum is None:
        most = sum(parties.values())
        quorum = max(2, min(quorum_for(honest_floor, parties, threat.corrupt), most))
    if backend == SEALED:
        return _sealed_spec(
            parties, quorum, cohort_id, run_id, threat, honest_floor, proved
        )
    return CohortSpec(
        run_id=run_id,
        batch=1,
        arm=0,
        cohort_id=cohort_id,
        mechanism="dist-dp",
        cohort_size=sum(parties.values()),
        honest_floor=honest_floor,
        quorum=quorum,
        backend=backend,
        modulus=backend_modulus(backend, modulus),
        threat=threat.to_wire(),
    )


def _sealed_spec(
    parties: Mapping[str, int],
    quorum: int,
    cohort_id: str,
    run_id: str,
    threat: Threat,
    honest_floor: int,
    proved: bool,
) -> CohortSpec:
    users = sum(parties.values())
    # A window wide enough for one bit per node in small cohorts.
    level = Fraction(5 if proved else 100 if users <= 64 else 1)
    scale = Fraction(1000)
    mechanism = mechanism_named("dist-rdp", level, scale).for_cohort(
        users, honest_floor, Fraction(1, 1000)
    )
    return CohortSpec(
        run_id=run_id,
        batch=1,
        arm=0,
        cohort_id=cohort_id,
        mechanism="dist-rdp",
        epsilon=to_rational(level),
        scale=to_rational(scale),
        wrap_probability=to_rational(Fraction(1, 1000)),
        cohort_size=users,
        honest_floor=honest_floor,
        quorum=quorum,
        backend=SEALED,
        modulus=mechanism.modulus,
        threat=threat.to_wire(),
        proved_inputs=proved,
    )


def names(count: int) -> dict[str, int]:
    """`count` nodes with one user each."""
    return {f"node-{index:05d}": 1 for index in range(count)}


@dataclass
class Enrolment:
    """An enrolment key and the identities it vouches for."""

    key: EnrolmentKey = field(default_factory=EnrolmentKey.generate)
    identities: dict[str, NodeIdentity] = field(default_factory=dict)

    @property
    def trust(self) -> Trust:
        return Trust(self.key.public_key, lambda: NOW)

    def trust_at(self, now: float) -> Trust:
        return Trust(self.key.public_key, lambda: now)

    def trust_minus(self, revoked: Container[int]) -> Trust:
        return Trust(self.key.public_key, lambda: NOW, revoked)

    def identity(self, party: str, capacity: int = 1000) -> NodeIdentity:
        if party not in self.identities:
            bare = NodeIdentity.generate(party)
            certificate = self.key.issue(
                party, bare.public_key, not_after=NOW + 1000, capacity=capacity
            )
            self.identities[party] = bare.enrolled(certificate)
        return self.identities[party]


@dataclass
class Cohort:
    """One cohort: a server, its clients, and what each client holds."""

    spec: CohortSpec
    parties: dict[str, int]
    values: dict[str, int]
    server: ServerSession
    clients: dict[str, ClientSession]
    keyrings: dict[str, ClientKeyring] = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=dict)

    def answer(self, party: str, body: bytes) -> bytes:
        request, value = self.clients[party].inspect(body), None
        if request.needs_value:
            value = Contribution(self.values[party], self.parties[party])
        return request.answer(value).body

    def step(self, ask: Ask, up: Gate, down: Gate) -> Step:
        """Carry out one stage; messages for which a gate is shut are lost."""
        for party, body in ask.messages.items():
            if not down(ask.stage, party):
                continue
            try:
                answer = self.answer(party, body)
            except (RefusalError, ProtocolError) as error:
                self.refusals[party] = error.code
                self.server.lose(party, error.code)
                continue
            if up(ask.stage, party):
                self.server.receive(party, answer)
        return self.server.advance()

    def run(
        self,
        up: Gate = lambda stage, party: True,
        down: Gate = lambda stage, party: True,
    ) -> SecureSum | Void:
        step = self.server.start()
        while isinstance(step, Ask):
            step = self.step(step, up, down)
        assert not isinstance(step, KeyReady)
        return step

    def expected(self, survivors: tuple[str, ...]) -> int:
        return sum(self.values[party] for party in survivors) % self.spec.modulus


def deal_key(
    run_id: str,
    threat: Threat,
    parties: dict[str, int],
    keyrings: dict[str, ClientKeyring],
    server_keyring: ServerKeyring,
    enrolment: Enrolment | None = None,
    dealing_id: str | None = None,
) -> Cohort:
    """Open both sides of a dealing; nothing is dealt before it is run."""
    named = dealing_id or f"dealing-{next(_NUMBERS)}"
    spec = dealing_spec(run_id, named, threat, parties)
    return open_cohort(
        spec,
        parties,
        enrolment=enrolment,
        keyrings=keyrings,
        server_keyring=server_keyring,
        values={},
    )


def run_dealing(dealing: Cohort, up: Gate | None = None) -> KeyReady | Void:
    """Carry a dealing out; answers for which the gate is shut are lost."""
    step = dealing.server.start()
    while isinstance(step, Ask):
        step = dealing.step(step, up or (lambda s, p: True), lambda s, p: True)
    assert not isinstance(step, SecureSum)
    return step


def open_cohort(
    spec: CohortSpec,
    parties: dict[str, int],
    values: Mapping[str, int] | None = None,
    *,
    enrolment: Enrolment | None = None,
    limits: ClientLimits | None = None,
    keyrings: dict[str, ClientKeyring] | None = None,
    server_keyring: ServerKeyring | None = None,
    trust: Trust | None = None,
) -> Cohort:
    """Open both sides of a cohort; values default to 7·i + 3 mod m."""
    if values is None:
        most = MOST_SEALED + 1 if spec.backend == SEALED else spec.modulus
        values = {p: (7 * i + 3) % most for i, p in enumerate(parties)}
    if trust is None and enrolment is not None:
        trust = enrolment.trust
    keyrings = {} if keyrings is None else keyrings
    if spec.backend == SEALED and not is_dealing(spec) and server_keyring is None:
        server_keyring = ServerKeyring(spec.run_id)
        threat = Threat.from_wire(spec.threat)
        run_dealing(
            deal_key(spec.run_id, threat, parties, keyrings, server_keyring, enrolment)
        )
    clients = {}
    for party in parties:
        ring = keyrings.setdefault(party, ClientKeyring(spec.run_id))
        identity = enrolment.identity(party) if enrolment else None
        clients[party] = client_session(
            spec, party, identity, trust, limits or ClientLimits(), ring
        )
    server = server_session(spec, parties, trust=trust, keyring=server_keyring)
    return Cohort(spec, parties, dict(values), server, clients, keyrings)


def asks(cohort: Cohort, stage: str, of: str | None = None) -> Ask:
    """Carry out a cohort up to a stage and give that stage's messages.

    A sum is put to some members first: where `of` is not among them, they are silent.
    """
    step = cohort.server.start()
    while isinstance(step, Ask) and step.stage != stage:
        step = cohort.step(step, lambda s, p: True, lambda s, p: True)
    assert isinstance(step, Ask), step
    if of is not None and of not in step.messages:
        step = cohort.server.advance()
        assert isinstance(step, Ask), step
    return step


Payload = TypeVar("Payload", bound=Message)


def forged(
    body: bytes, kind: type[Payload], change: Callable[[Payload], object]
) -> bytes:
    """Rewrite a message as a lying server would: well-formed, checksum and all."""
    envelope = unwrap(body)
    payload = kind.FromString(envelope.payload)
    change(payload)
    return wrap(
        envelope.stage,
        envelope.context,
        envelope.sender,
        envelope.receiver,
        payload.SerializeToString(),
    )
