"""An operator that lies, and ways to its nodes: memory, gRPC, polling, Flower.

A `Reach` hands one request to one node and gives its answer; what the server asks, in
which order and how often, is the test's to decide.
"""

from __future__ import annotations

import asyncio
import datetime
import itertools
import time
from collections import defaultdict
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict

from tests.support.grpc_fixtures import FAST, QUICK, faster
from wallflower.clients.client_app import app
from wallflower.clients.host.home import NodeHome
from wallflower.clients.transport.grpc_client import Invitation, connect_node
from wallflower.clients.transport.polling import PollingClient
from wallflower.engines.in_process_grid import InProcessGrid
from wallflower.keys.store import KeyStore
from wallflower.protocol.errors import ProtocolError
from wallflower.protocol.identity.certificates import KeyPair
from wallflower.protocol.identity.enrolment import Trust
from wallflower.protocol.identity.tokens import RunTokens
from wallflower.protocol.messages import flower as flower_record
from wallflower.protocol.messages.port import NodeHandler, Request
from wallflower.protocol.privacy.honest_floor import cohort_floor
from wallflower.protocol.secure_sum.context import unwrap, wrap
from wallflower.protocol.secure_sum.sealed import feldman
from wallflower.protocol.secure_sum.sealed.committee import dealing_spec, sign_dealing
from wallflower.protocol.secure_sum.sealed.dealing import deal
from wallflower.protocol.secure_sum.session import Ask, ServerSession, Step
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.protocol.wire.node_pb2 import (
    CloseCohort,
    CohortStage,
    NodeAnswer,
    NodeRequest,
    Task,
    TaskAnswer,
)
from wallflower.strategy.bandit.policy import CohortRequest
from wallflower.strategy.config import (
    ExperimentConfig,
    ExperimentSettings,
    PrivacySettings,
)
from wallflower.strategy.run.cohort import describe_cohort
from wallflower.strategy.sections import SecureSumSettings
from wallflower.strategy.secure_sum import ServerKeyring, server_session
from wallflower.strategy.transport.grpc.admission import Admission, EnrolledKeys
from wallflower.strategy.transport.grpc.server import GrpcServer

TRANSPORTS = ("memory", "grpc", "flower")
NAMES = tuple(f"clinic-{number:02d}" for number in range(20))
RUN = "run-1"
_NUMBERS = itertools.count()
NODE_FILE = """
[node]
users = 1
keys = "{keys}"

[policy]
smallest-cohort = 4
smallest-floor-fraction = 0.1
malicious-server = true

[rewards]
means = [0.5, 0.5]
"""
Reach = Callable[[str, NodeRequest], Awaitable[list[TaskAnswer]]]
Tamper = Callable[[bytes], bytes]  # what a dishonest node makes of its answer


def key_store(folder: Path, capacity: int = 1) -> KeyStore:
    """Twenty enrolled nodes with one user each, or more."""
    store = KeyStore(folder)
    store.create("Test", ["127.0.0.1"], days=1)
    now = datetime.datetime.now(datetime.UTC)
    for name in NAMES:
        store.add_node(name, capacity=capacity, days=1, now=now)
    return store


def furnish(
    store: KeyStore,
    folder: Path,
    names: Sequence[str] = NAMES,
    node_file: str = NODE_FILE,
) -> dict[str, NodeHome]:
    """Return nodes homes that insist on withstanding a lying server."""
    for name in names:
        (folder / name).mkdir(parents=True)
        text = node_file.format(keys=store.nodes / name)
        (folder / name / "node.toml").write_text(text)
    return {name: NodeHome(folder / name) for name in names}


@asynccontextmanager
async def reach(
    transport: str,
    homes: dict[str, NodeHome],
    store: KeyStore,
    polling: Sequence[str] = (),
) -> AsyncIterator[Reach]:
    """Reach the nodes; the ledgers of their homes outlive it.

    Over gRPC, the `polling` nodes call now and then; the others stay connected.
    """
    if transport == "flower":
        with InProcessGrid(app, {}):  # gives this process an identity at Flower
            yield _by_message(homes)
        return
    async with AsyncExitStack() as stack:
        nodes = {
            name: home.node(stack.enter_context(home.ledger()))
            for name, home in homes.items()
        }
        if transport == "memory":

            async def direct(name: str, request: NodeRequest) -> list[TaskAnswer]:
                body = await nodes[name].handle(request.SerializeToString())
                return list(NodeAnswer.FromString(body).answers)

            yield direct
            return
        for name in polling:
            nodes[name].polls = True
        yield await stack.enter_async_context(
            _over_grpc(homes, dict(nodes), store, polling)
        )


def _by_message(homes: dict[str, NodeHome]) -> Reach:
    """Reach nodes as Flower does: every message makes node and keyring anew."""

    async def ask(name: str, request: NodeRequest) -> list[TaskAnswer]:
        record = ConfigRecord({flower_record.BODY: request.SerializeToString()})
        content = RecordDict({flower_record.RECORD: record})
        message = Message(content, 7, flower_record.WORK)
        config: dict[str, str] = {"wallflower-home": str(homes[name].path)}
        context = Context(1, 7, dict(config), RecordDict(), {})
        reply = await asyncio.to_thread(app, message=message, context=context)
        body = reply.content.config_records[flower_record.RECORD][flower_record.BODY]
        assert isinstance(body, bytes)
        return list(NodeAnswer.FromString(body).answers)

    return ask


@asynccontextmanager
async def _over_grpc(
    homes: dict[str, NodeHome],
    nodes: dict[str, NodeHandler],
    store: KeyStore,
    polling: Sequence[str],
) -> AsyncIterator[Reach]:
    tokens = RunTokens(RUN, RunTokens.new_secret())
    operator = store.operator
    trust = next(iter(homes.values())).trust()
    assert trust is not None
    pair = KeyPair(
        (operator / "server.crt").read_bytes(), (operator / "server.key").read_bytes()
    )
    admission = Admission(tokens, EnrolledKeys(trust.enrolment_key))
    grpc_server = GrpcServer(
        admission, pair, faster(FAST, poll_s=1.0, polls_burst=1000)
    )
    port = await grpc_server.open("127.0.0.1:0")
    expiry = int(time.time()) + 3600
    numbers = itertools.count()

    async def ask(name: str, request: NodeRequest) -> list[TaskAnswer]:
        # A new id each time: this server hopes to be answered twice.
        wrapped = Request(name, f"ask-{next(numbers)}", request.SerializeToString())
        async with aclosing(grpc_server.ask([wrapped], timeout_s=60)) as answers:
            async for answer in answers:
                assert answer.failure is None, answer.failure
                return list(NodeAnswer.FromString(answer.body).answers)
        raise AssertionError("the node did not answer")

    def come(name: str, node: NodeHandler) -> Coroutine[Any, Any, str]:
        invitation = Invitation(
            f"127.0.0.1:{port}",
            homes[name].authority(b""),
            RUN,
            tokens.issue(name, expiry=expiry),
        )
        if name in polling:
            return PollingClient(invitation, homes[name].identity, node).keep()
        return connect_node(invitation, homes[name].identity, node, settings=QUICK)

    connections = [
        asyncio.create_task(come(name, node)) for name, node in nodes.items()
    ]
    try:
        assert not await grpc_server.wait_for(nodes, timeout_s=60)
        yield ask
    finally:
        await grpc_server.close("finished")
        await asyncio.wait(connections, timeout=30)
        for task in connections:
            task.cancel()


@dataclass
class Liar:
    """A server that keeps to the protocol until it has what it wants."""

    spec: CohortSpec
    session: ServerSession
    reach: Reach
    keyring: ServerKeyring
    user: str = "u0"  # whom each node is asked about
    refused: dict[str, str] = field(default_factory=dict)
    sent: defaultdict[str, list[bytes]] = field(
        default_factory=lambda: defaultdict(list)
    )
    heard: defaultdict[str, list[bytes]] = field(
        default_factory=lambda: defaultdict(list)
    )

    async def ask(self, party: str, message: bytes) -> bytes:
        """Ask one node; its message, or nothing where it refuses."""
        users = [self.user] if self.spec.mechanism else []  # a dealing asks nobody
        stage = CohortStage(spec=self.spec, users=users, message=message)
        request = NodeRequest(run_id=RUN, tasks=[Task(task_id="t", stage=stage)])
        self.sent[party].append(message)
        (answer,) = await self.reach(party, request)
        if answer.message:
            self.heard[party].append(answer.message)
        return answer.message

    async def until(self, stage: str) -> Ask:
        """Keep to the protocol up to a stage; give its messages."""
        step = self.session.start()
        while isinstance(step, Ask) and step.stage != stage:
            step = await self.carry_out(step)
        assert isinstance(step, Ask), step
        return step

    async def carry_out(
        self, ask: Ask, dishonest: Mapping[str, Tamper] | None = None
    ) -> Step:
        """Carry out a stage; `dishonest` nodes send what they make of their answers."""
        answers = await asyncio.gather(
            *(self.ask(party, message) for party, message in ask.messages.items())
        )
        for party, answer in zip(ask.messages, answers, strict=True):
            if not answer:
                self.session.lose(party, "refused")
                continue
            tamper = (dishonest or {}).get(party)
            try:
                self.session.receive(party, tamper(answer) if tamper else answer)
            except ProtocolError as error:
                self.refused[party] = error.code
        return self.session.advance()

    async def to_the_end(
        self, stage: str = "", dishonest: Mapping[str, Tamper] | None = None
    ) -> Step:
        """Carry a session out, with dishonest nodes in one stage."""
        step = self.session.start()
        while isinstance(step, Ask):
            step = await self.carry_out(step, dishonest if step.stage == stage else {})
        return step

    async def close(self, parties: Sequence[str]) -> None:
        task = Task(task_id="c", close=CloseCohort(cohort_id=self.spec.cohort_id))
        request = NodeRequest(run_id=RUN, tasks=[task])
        await asyncio.gather(*(self.reach(party, request) for party in parties))


def liar(
    backend: str,
    trust: Trust,
    reach: Reach,
    *,
    parties: Sequence[str] = NAMES,
    dropout: Fraction = Fraction(1, 10),
    keyring: ServerKeyring | None = None,
    inputs: str = "trusted",
    window_ms: int = 0,
    user: str = "u0",
) -> Liar:
    """Open a cohort of these nodes, one user each, against a lying server."""
    config = _config(backend, dropout, inputs)
    keyring = keyring or ServerKeyring(RUN)
    floor = cohort_floor([1] * len(parties), Fraction(1, 10), dropout)
    cohort_request = CohortRequest(1, 0, len(parties), Fraction(1, 10**6))
    spec = describe_cohort(config, RUN, cohort_request, floor, 1)
    spec.window_ms = window_ms
    users = dict.fromkeys(parties, 1)
    session = server_session(spec, users, trust=trust, keyring=keyring)
    return Liar(spec, session, reach, keyring, user)


def dealing(
    trust: Trust,
    reach: Reach,
    parties: Sequence[str],
    *,
    dropout: Fraction = Fraction(1, 10),
    keyring: ServerKeyring | None = None,
) -> Liar:
    """Open a dealing among these nodes, for sealed sums."""
    threat = _config("sealed", dropout, "trusted").secure_sum.threat
    users = dict.fromkeys(parties, 1)
    spec = dealing_spec(RUN, f"dealing-{next(_NUMBERS)}", threat, users)
    keyring = keyring or ServerKeyring(RUN)
    session = server_session(spec, users, trust=trust, keyring=keyring)
    return Liar(spec, session, reach, keyring)


def _config(backend: str, dropout: Fraction, inputs: str) -> ExperimentConfig:
    return ExperimentConfig(
        ExperimentSettings("test", ("a", "b")),
        PrivacySettings(epsilon=Fraction(1)),
        secure_sum=SecureSumSettings(
            server="malicious", backend=backend, dropout=dropout, inputs=inputs
        ),
    )


def crooked(home: NodeHome, dealer: str) -> Callable[[Liar], Tamper]:
    """Deal shares that are off by one, committed to, sealed and signed perfectly."""

    def spoil(dealt: Liar, answer: bytes) -> bytes:
        session: Any = dealt.session
        honest, envelope = feldman.evaluate, unwrap(answer)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(feldman, "evaluate", lambda f, x: honest(f, x) + 1)
            spoilt, _ = deal(session._terms, dealer, list(session._holders.values()))
        message = sign_dealing(spoilt, session._terms, home.identity)
        payload = message.SerializeToString()
        return wrap(envelope.stage, envelope.context, dealer, "", payload)

    return lambda dealt: lambda answer: spoil(dealt, answer)
