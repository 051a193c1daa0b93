"""Cohorts through a shuffler in one process, without a network."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

from tests.support.client_sessions import client_session
from tests.support.secure_sums import Enrolment, names
from wallflower.clients.secure_sum.keyring import ClientKeyring
from wallflower.clients.secure_sum.limits import ClientLimits
from wallflower.protocol.cohort import to_rational
from wallflower.protocol.privacy.mechanism import mechanism_named
from wallflower.protocol.secure_sum.backends import SHUFFLE, backend_modulus
from wallflower.protocol.secure_sum.context import unwrap
from wallflower.protocol.secure_sum.session import (
    Ask,
    Contribution,
    SecureSum,
    ServerSession,
    Void,
)
from wallflower.protocol.secure_sum.shuffle.plan import SHUFFLER
from wallflower.protocol.secure_sum.shuffle.seals import HYBRID, OpeningKey
from wallflower.protocol.secure_sum.threat import Threat, quorum_for
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.protocol.wire.shuffle_pb2 import ReleaseRequest, SubmitAnswer
from wallflower.shuffler.home import ReleasedCohorts
from wallflower.shuffler.shuffled_batch import Shuffler
from wallflower.strategy.run.pending_cohorts import make_session_factory
from wallflower.strategy.secure_sum import server_session
from wallflower.strategy.transport.shuffler import ShufflerFiles, ShufflerPlace

KEY = OpeningKey.generate(HYBRID)
FINGERPRINT = hashlib.sha256(KEY.public).hexdigest()
TOKEN = b"the operator's token"
LEVEL = Fraction(1, 1000)


def shuffled_spec(
    nodes: int = 5,
    *,
    mechanism: str = "shuffle-dp",
    epsilon: Fraction = Fraction(1),
    malicious: bool = False,
    cohort_id: str = "cohort-1",
    floor: int = 2,
) -> CohortSpec:
    """Describe a cohort of nodes with one user each."""
    threat = Threat(Fraction(1, 10), Fraction(1, 10), malicious_server=malicious)
    cohort = mechanism_named(mechanism, epsilon).for_cohort(nodes, floor, LEVEL)
    return CohortSpec(
        run_id="run-1",
        batch=1,
        arm=0,
        cohort_id=cohort_id,
        mechanism=mechanism,
        epsilon=to_rational(epsilon),
        scale=to_rational(Fraction(10)),
        wrap_probability=to_rational(LEVEL),
        cohort_size=nodes,
        honest_floor=floor,
        quorum=quorum_for(floor, names(nodes), threat.corrupt),
        backend=SHUFFLE,
        modulus=backend_modulus(SHUFFLE, cohort.modulus),
        threat=threat.to_wire(),
    )


@dataclass
class ShuffledCohort:
    """One cohort: server, nodes, and what they sent.

    The shuffler is at `place`, or has this module's own key.
    """

    spec: CohortSpec
    enrolment: Enrolment | None = None
    silent: frozenset[str] = frozenset()
    place: ShufflerPlace | None = None
    values: dict[str, int] = field(default_factory=dict)
    answers: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.parties = names(self.spec.cohort_size)
        if self.place is None:
            files = ShufflerFiles(KEY.public, b"", TOKEN)
            self.place = ShufflerPlace("127.0.0.1:1", files)
        self.trust = None if self.enrolment is None else self.enrolment.trust
        opener = make_session_factory(self.spec.run_id, self.trust, self.place)
        self.keyring = opener.keyring
        self.pin = self.place.files.fingerprint

    def submitted(self) -> tuple[ServerSession, bytes | Void]:
        """Collect everybody's batch; return the request for the shuffler."""
        server = server_session(
            self.spec, self.parties, trust=self.trust, keyring=self.keyring
        )
        step = server.start()
        assert isinstance(step, Ask)
        for number, (party, body) in enumerate(step.messages.items()):
            if party in self.silent:
                server.lose(party, "node-gone")
                continue
            self.values[party] = number + 1
            self.answers[party] = self.node_answer(party, body, number + 1)
            server.receive(party, self.answers[party])
        following = server.advance()
        if isinstance(following, Void):
            return server, following
        assert isinstance(following, Ask)
        return server, following.messages[SHUFFLER]

    def batch(self, party: str) -> bytes:
        """Return a node's encrypted batch, as it was sent."""
        return SubmitAnswer.FromString(unwrap(self.answers[party]).payload).batch

    def node_answer(self, party: str, body: bytes, value: int) -> bytes:
        """Return a node's answer."""
        identity = None if self.enrolment is None else self.enrolment.identity(party)
        client = client_session(
            self.spec,
            party,
            identity,
            self.trust,
            ClientLimits(shufflers=(self.pin,)),
            ClientKeyring(self.spec.run_id),
        )
        inspected = client.inspect(body)
        assert inspected.needs_value
        return inspected.answer(Contribution(value, self.parties[party])).body


def new_shuffler(folder: Path, enrolment: Enrolment | None = None) -> Shuffler:
    """Return a shuffler with the key that nodes have pinned."""
    trust = None if enrolment is None else enrolment.trust
    return Shuffler(KEY, ReleasedCohorts(folder), trust)


def finished(server: ServerSession, shuffled: bytes) -> SecureSum | Void:
    """Hand the shuffler's answer to the server."""
    server.receive(SHUFFLER, shuffled)
    step = server.advance()
    assert isinstance(step, SecureSum | Void)
    return step


def changed(request: bytes, **fields: object) -> ReleaseRequest:
    """Parse a request and set fields of its description."""
    parsed = ReleaseRequest.FromString(request)
    for name, value in fields.items():
        setattr(parsed.spec, name, value)
    return parsed


async def started(
    home: Path, script: str = "", log: int | None = None, words: Sequence[str] = ()
) -> tuple[asyncio.subprocess.Process, ShufflerPlace]:
    """Start a shuffler as a process on loopback; stop it by its pid.

    `script` is run in it first; `words` are further options of the command.
    """
    main = f"{script}\nfrom wallflower.cli import main\nmain()"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", main, "shuffler", "--home", str(home), *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=log,
    )
    assert process.stdout is not None
    ready = json.loads(await process.stdout.readline())
    files = ShufflerFiles.read(home / "operator")
    assert ready["fingerprint"] == files.fingerprint
    return process, ShufflerPlace(ready["shuffler"], files)
