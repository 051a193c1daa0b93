"""Real secure sums through any port: real machines, one-hot values, wire messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from google.protobuf.message import DecodeError

from tests.support.client_sessions import client_session
from tests.support.secure_sums import cohort_spec
from wallflower.clients.secure_sum.keyring import ClientKeyring
from wallflower.clients.secure_sum.limits import ClientLimits
from wallflower.protocol.errors import (
    MalformedMessageError,
    ProtocolError,
    RefusalError,
)
from wallflower.protocol.identity.enrolment import NodeIdentity, Trust
from wallflower.protocol.messages.port import Answer, NodeTransport, Request
from wallflower.protocol.refusals import RefusalCode
from wallflower.protocol.secure_sum.backends import SEALED, SECAGG_PLUS
from wallflower.protocol.secure_sum.sealed.committee import dealing_spec
from wallflower.protocol.secure_sum.session import (
    ClientSession,
    Contribution,
    KeyReady,
    SecureSum,
    Void,
)
from wallflower.protocol.secure_sum.threat import Threat
from wallflower.protocol.wire import node_pb2
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.strategy.run.driver import Deadlines, Refusal, run_dealing, run_session
from wallflower.strategy.secure_sum import (
    ServerKeyring,
    restore_session,
    server_session,
)
from wallflower.strategy.store.spool import CohortSpool, Spool

# The largest prime below 2⁶²: room for one bit per node, so a double count shows.
MODULUS = 2**62 - 57


@dataclass
class SumNode:
    """A node's handler that takes part in secure sums with a fixed value."""

    party: str
    value: int
    run_id: str = "run-1"
    identity: NodeIdentity | None = None
    trust: Trust | None = None
    keyring: ClientKeyring = field(init=False)
    sessions: dict[str, ClientSession] = field(default_factory=dict)
    stages: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.keyring = ClientKeyring(self.run_id)

    async def handle(self, body: bytes) -> bytes:
        answer = node_pb2.NodeAnswer()
        try:
            request = node_pb2.NodeRequest.FromString(body)
        except DecodeError:
            return answer.SerializeToString()
        for task in request.tasks:
            entry = answer.answers.add(task_id=task.task_id)
            if task.WhichOneof("kind") == "close":
                session = self.sessions.pop(task.close.cohort_id, None)
                if session is not None:
                    session.close()
                entry.closed.SetInParent()
                continue
            try:
                entry.message = self._stage(task.stage)
            except (RefusalError, ProtocolError) as error:
                entry.refusal.code = error.code
        return answer.SerializeToString()

    def _stage(self, stage: node_pb2.CohortStage) -> bytes:
        spec = stage.spec
        if spec.run_id != self.run_id:
            raise RefusalError(RefusalCode.WRONG_RUN, "not the run of this node")
        session = self.sessions.get(spec.cohort_id)
        if session is None:
            session = self.sessions[spec.cohort_id] = client_session(
                spec,
                self.party,
                self.identity,
                self.trust,
                ClientLimits(),
                self.keyring,
            )
        request = session.inspect(stage.message)
        value = Contribution(self.value, 1) if request.needs_value else None
        return request.answer(value).body


def one_hot(count: int) -> dict[str, SumNode]:
    """Nodes whose values are 1, 2, 4, …: any sum names its summands."""
    return {f"n{i:02d}": SumNode(f"n{i:02d}", 1 << i) for i in range(count)}


def exact(nodes: dict[str, SumNode], outcome: SecureSum) -> int:
    return sum(nodes[party].value for party in outcome.survivors) % outcome.modulus


@dataclass
class Sum:
    """One cohort's secure sum over nodes, driven by `run_session`."""

    nodes: dict[str, SumNode]
    backend: str = SECAGG_PLUS
    cohort_id: str = "c1"
    quorum: int | None = None
    deadline_s: float = 60.0
    dealings: int = 0
    keyring: ServerKeyring = field(default_factory=lambda: ServerKeyring("run-1"))

    @property
    def parties(self) -> dict[str, int]:
        return dict.fromkeys(self.nodes, 1)

    @cached_property
    def spec(self) -> CohortSpec:
        return cohort_spec(
            self.backend,
            self.parties,
            modulus=MODULUS,
            quorum=self.quorum,
            cohort_id=self.cohort_id,
        )

    def wrap(self, party: str, stage: str, message: bytes) -> Request:
        return Request(party, f"{self.cohort_id}/{stage}", self._body(stage, message))

    def _body(self, stage: str, message: bytes) -> bytes:
        task = node_pb2.Task(
            task_id=stage,
            stage=node_pb2.CohortStage(spec=self.spec, message=message),
        )
        return node_pb2.NodeRequest(run_id="run-1", tasks=[task]).SerializeToString()

    async def _deal(self, port: NodeTransport) -> KeyReady | Void:
        """Deal the run's key; after a crash it is dealt anew."""
        self.dealings += 1
        threat = Threat.from_wire(self.spec.threat)
        name = f"{self.cohort_id}-deal-{self.dealings}"
        spec = dealing_spec("run-1", name, threat, self.parties)

        def wrap(party: str, stage: str, message: bytes) -> Request:
            task = node_pb2.Task(
                task_id=stage, stage=node_pb2.CohortStage(spec=spec, message=message)
            )
            body = node_pb2.NodeRequest(run_id="run-1", tasks=[task])
            return Request(party, f"{name}/{stage}", body.SerializeToString())

        session = server_session(spec, self.parties, keyring=self.keyring)
        deadlines = Deadlines(self.deadline_s)
        return await run_dealing(session, port, wrap, self.unwrap, deadlines)

    @staticmethod
    def unwrap(answer: Answer) -> bytes | Refusal:
        try:
            body = node_pb2.NodeAnswer.FromString(answer.body)
        except DecodeError:
            raise MalformedMessageError("a node's answer is garbled") from None
        if len(body.answers) != 1:
            raise MalformedMessageError("a node's answer has not one part")
        [entry] = body.answers
        if entry.WhichOneof("kind") == "message":
            return entry.message
        return Refusal(entry.refusal.code or "no-message")

    async def run(
        self, port: NodeTransport, spool: CohortSpool | None = None
    ) -> SecureSum | Void:
        """Run fresh, or go on from what the spool has."""
        snapshot = None if spool is None else await spool.snapshot()
        if self.backend == SEALED and self.keyring.dealt is None and snapshot is None:
            dealt = await self._deal(port)
            if isinstance(dealt, Void):
                return dealt
        if snapshot is None:
            session = server_session(self.spec, self.parties, keyring=self.keyring)
        else:
            session = restore_session(snapshot, keyring=self.keyring)
        return await run_session(
            session,
            port,
            self.wrap,
            self.unwrap,
            Deadlines(self.deadline_s),
            spool,
        )


async def run_spooled(
    secure_sum: Sum, port: NodeTransport, path: Path
) -> SecureSum | Void:
    with Spool(path) as spool:
        return await secure_sum.run(port, spool.cohort(secure_sum.cohort_id))
