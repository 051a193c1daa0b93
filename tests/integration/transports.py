"""One lying server, three ways to reach the same nodes: memory, desk, Flower.

A `Reach` hands one request to one node and gives its answer; what the server asks, in
which order and how often, is the test's to decide.
"""

from __future__ import annotations

import asyncio
import datetime
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict

from clients.attendance import Invitation, attend
from clients.client_app import app
from clients.ledger import Ledger
from clients.node_home import NodeHome
from protocol import flower_record
from protocol.attendance import RunTokens
from protocol.certificates import KeyPair
from protocol.port import NodeHandler, Request
from protocol.wire.node_pb2 import NodeAnswer, NodeRequest, TaskAnswer
from strategy.desk import Desk
from strategy.desk_admission import Admission, EnrolledKeys
from tests.strategy.desk_fixtures import FAST, QUICK
from wallflower.in_process_grid import InProcessGrid
from wallflower.keystore import KeyStore

TRANSPORTS = ("memory", "desk", "flower")
NAMES = tuple(f"clinic-{number:02d}" for number in range(20))
RUN = "run-1"
NODE_FILE = """
[node]
users = 1
keys = "{keys}"

[policy]
smallest-floor-fraction = 0.1
malicious-server = true

[rewards]
means = [0.5, 0.5]
"""
Reach = Callable[[str, NodeRequest], Awaitable[list[TaskAnswer]]]


def key_store(folder: Path) -> KeyStore:
    """Twenty enrolled nodes with one user each."""
    store = KeyStore(folder)
    store.create("Test", ["127.0.0.1"], days=1)
    now = datetime.datetime.now(datetime.UTC)
    for name in NAMES:
        store.add_node(name, capacity=1, days=1, now=now)
    return store


def furnish(store: KeyStore, folder: Path) -> dict[str, NodeHome]:
    """Give every node a home that insists on withstanding a lying server."""
    for name in NAMES:
        (folder / name).mkdir(parents=True)
        text = NODE_FILE.format(keys=store.nodes / name)
        (folder / name / "node.toml").write_text(text)
    return {name: NodeHome(folder / name) for name in NAMES}


@asynccontextmanager
async def reach(
    transport: str, homes: dict[str, NodeHome], store: KeyStore
) -> AsyncIterator[Reach]:
    """Reach the nodes; the ledgers of their homes outlive it."""
    if transport == "flower":
        with InProcessGrid(app, {}):  # gives this process an identity at Flower
            yield _by_message(homes)
        return
    async with AsyncExitStack() as stack:
        nodes = {
            name: home.node(stack.enter_context(Ledger(home.path / "ledger.sqlite")))
            for name, home in homes.items()
        }
        if transport == "memory":

            async def direct(name: str, request: NodeRequest) -> list[TaskAnswer]:
                body = await nodes[name].handle(request.SerializeToString())
                return list(NodeAnswer.FromString(body).answers)

            yield direct
            return
        yield await stack.enter_async_context(_at_a_desk(homes, dict(nodes), store))


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
async def _at_a_desk(
    homes: dict[str, NodeHome], nodes: dict[str, NodeHandler], store: KeyStore
) -> AsyncIterator[Reach]:
    tokens = RunTokens(RUN, RunTokens.new_secret())
    operator = store.operator
    trust = next(iter(homes.values())).trust()
    assert trust is not None
    pair = KeyPair(
        (operator / "server.crt").read_bytes(), (operator / "server.key").read_bytes()
    )
    admission = Admission(tokens, EnrolledKeys(trust.enrolment_key))
    desk = Desk(admission, pair, FAST)
    port = await desk.open("127.0.0.1:0")
    expiry = int(time.time()) + 3600
    numbers = itertools.count()

    async def ask(name: str, request: NodeRequest) -> list[TaskAnswer]:
        # A new id each time: this server hopes to be answered twice.
        wrapped = Request(name, f"ask-{next(numbers)}", request.SerializeToString())
        async with aclosing(desk.ask([wrapped], timeout_s=60)) as answers:
            async for answer in answers:
                assert answer.failure is None, answer.failure
                return list(NodeAnswer.FromString(answer.body).answers)
        raise AssertionError("the node did not answer")

    attending = [
        asyncio.create_task(
            attend(
                Invitation(
                    f"127.0.0.1:{port}",
                    homes[name].authority(b""),
                    RUN,
                    tokens.issue(name, expiry=expiry),
                ),
                homes[name].identity,
                node,
                settings=QUICK,
            )
        )
        for name, node in nodes.items()
    ]
    try:
        assert not await desk.wait_for(nodes, timeout_s=60)
        yield ask
    finally:
        await desk.close("finished")
        await asyncio.wait(attending, timeout=30)
        for task in attending:
            task.cancel()
