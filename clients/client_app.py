"""The Flower ClientApp: a node that Flower can call.

Flower calls one function per message, in a process that may be new each time. *hello*
tells the node's stable name; *work* answers one bundle of requests; *connect* goes to
the gRPC server and stays there until the run is over. What a node is made of comes from
its provider: its own home in a deployment, the experiment's file in a simulation.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import logging
import os
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar, cast

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from wallflower.clients.host.assemble import in_simulation
from wallflower.clients.rewards.source import Rewards, RewardsOf
from wallflower.clients.transport.grpc_client import Invitation
from wallflower.protocol.errors import (
    MalformedMessageError,
    ProtocolError,
    RefusalError,
    UnavailableError,
    WallflowerError,
)
from wallflower.protocol.files.logs import installed_from, log_context
from wallflower.protocol.identity.tokens import RunToken
from wallflower.protocol.messages import flower as flower_record
from wallflower.protocol.refusals import RefusalCode

# A Flower app's own source: made of the Context of the message that is answered.
#
# What a ClientApp kept in ``context.state``, such as a model that it has just trained,
# is there for its source. Flower hands over a Context with every message, so each
# message gets a source of its own, which is closed when the message is answered.


RewardsIn = Callable[[Context], Rewards]  # the source for one message, by its Context

_log = logging.getLogger(__name__)


class _Message:
    """The message under way in this task, and its source once somebody asked it."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.source: Rewards | None = None


_closing: set[asyncio.Task[None]] = set()  # asyncio itself keeps no task alive
_under_way: ContextVar[_Message] = ContextVar("wallflower-flower-message")


@asynccontextmanager
async def answering(context: Context) -> AsyncIterator[None]:
    """Answer a message inside the block; its source, if one was made, ends with it."""
    message = _Message(context)
    token = _under_way.set(message)
    try:
        yield
    finally:
        _under_way.reset(token)
        if message.source is not None:
            task = asyncio.create_task(_close(message.source))
            _closing.add(task)
            task.add_done_callback(_closing.discard)


async def _close(source: Rewards) -> None:
    """Close a source; neither its time nor its failure is seen in the answer."""
    try:
        await source.close()
    except Exception as error:
        # Its text may quote an outcome.
        _log.warning("a source of rewards cannot be closed (%s)", type(error).__name__)


class MessageRewards:
    """Whatever source the app makes for the message that is answered in this task."""

    def __init__(self, make: RewardsIn) -> None:
        self._make = make
        self._failures: set[str] = set()  # kinds whose traceback the log has

    def __getattr__(self, name: str) -> Any:
        """Return what the message's own source has: `pull`, `stream`, `ready`."""
        if name.startswith("__"):  # of Python itself, as for copies
            raise AttributeError(name)
        return getattr(self._source(), name)

    def _source(self) -> Rewards:
        message = _under_way.get()
        if message.source is None:
            try:
                message.source = self._make(message.context)
            except Exception as error:
                # Nobody was shown an arm yet: the node refuses, and its log says why.
                kind = type(error).__name__
                if kind not in self._failures:
                    self._failures.add(kind)
                    _log.exception("the ClientApp's rewards cannot be made")
                raise UnavailableError(f"rewards(context) raised {kind}") from None
        return message.source


def by_message(make: RewardsIn) -> RewardsOf:
    """Return the source of every node of an app, whatever its name."""
    source = cast(Rewards, MessageRewards(make))
    return lambda name: source


log = logging.getLogger("wallflower.flower")

Result = TypeVar("Result")
HOME = "wallflower-home"  # in a SuperNode's --node-config
PARTITION = "partition-id"  # what Flower's simulation gives to every node

# Who makes the nodes: "module:class" of a NodeProvider. Simulated nodes belong to the
# operator's tools, which clients never import; hence a name.
_OWN_HOME = "wallflower.clients.host.home:HomeProvider"
_SIMULATED = "wallflower.engines.simulated_nodes:SimulatedProvider"


class NodeProvider(Protocol):
    """Knows the nodes that this process serves."""

    def name(self, context: Context) -> str:
        """Return the node's stable name."""
        ...

    async def work(self, context: Context, body: bytes) -> bytes:
        """Answer one NodeRequest; state goes to the node's own store."""
        ...

    async def connect_node(self, context: Context, invitation: Invitation) -> str:
        """Stay connected until the run is over; return the server's reason."""
        ...


class LoopThread:
    """One event loop for all the messages that a process serves, in a daemon thread.

    Flower calls a ClientApp as a plain function, from any thread, once per message.
    Ledger, reward connections and the like belong to one loop that outlives a message:
    each call hands its coroutine over and waits. Started at the first use.
    """

    def __init__(self) -> None:
        self._start = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine on the loop; its result or exception is the caller's."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._running())
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """End the loop and its thread; a later `run` starts anew."""
        with self._start:
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._start:
            if self._loop is None:
                ready: threading.Event = threading.Event()
                self._loop = asyncio.new_event_loop()
                threading.Thread(
                    target=_serve, args=(self._loop, ready), daemon=True, name="node"
                ).start()
                ready.wait()
            return self._loop


def _serve(loop: asyncio.AbstractEventLoop, ready: threading.Event) -> None:
    asyncio.set_event_loop(loop)
    loop.call_soon(ready.set)
    try:
        loop.run_forever()
    finally:
        pending = asyncio.all_tasks(loop)
        for task in pending:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        loop.close()


_loop = LoopThread()


def serve_nodes(app: ClientApp, rewards: RewardsIn | None = None) -> ClientApp:
    """Let a ClientApp answer Wallflower's three queries.

    Parameters
    ----------
    app : ClientApp
        Yours; what else it serves, and its mods, stay as they are.
    rewards : Callable[[Context], RewardSource | RewardStream], optional
        Gives the source for a message, by Flower's Context: its ``state`` has what the
        app kept on this node. It stands in the place of ``[rewards]``: of the node's
        own file, or of a simulated experiment.

    Returns
    -------
    ClientApp
        The same app.
    """
    nodes = _Nodes(rewards)

    @app.query(flower_record.action(flower_record.HELLO))
    def hello(message: Message, context: Context) -> Message:
        """Return the node's stable name."""
        name = _guard_errors(lambda: nodes.provider(context).name(context))
        return _reply(message, {flower_record.NAME: name})

    @app.query(flower_record.action(flower_record.WORK))
    def work(message: Message, context: Context) -> Message:
        """Answer one bundle of requests."""
        body = _field(message, flower_record.BODY, bytes)
        answer = _guard_errors(
            lambda: _run(_work(nodes.provider(context), context, body))
        )
        return _reply(message, {flower_record.BODY: answer})

    @app.query(flower_record.action(flower_record.CONNECT))
    def connect_node(message: Message, context: Context) -> Message:
        """Go to the gRPC server and stay until the run is over."""
        return _reply(
            message, {flower_record.REASON: _connect(nodes, message, context)}
        )

    return app


async def _work(provider: NodeProvider, context: Context, body: bytes) -> bytes:
    async with answering(context):
        return await provider.work(context, body)


async def _stay_connected(
    provider: NodeProvider, context: Context, invitation: Invitation
) -> None:
    async with answering(context):
        await provider.connect_node(context, invitation)


def _connect(nodes: _Nodes, message: Message, context: Context) -> str:
    """Connect to the gRPC server that the message names; give why it was left."""
    invitation = Invitation(
        _field(message, flower_record.ADDRESS, str),
        _field(message, flower_record.CERTIFICATE, bytes),
        _field(message, flower_record.RUN_ID, str),
        RunToken.from_text(_field(message, flower_record.TOKEN, str)),
    )
    with installed_from(os.environ), log_context(run=invitation.run_id):
        try:
            _run(_stay_connected(nodes.provider(context), context, invitation))
        except WallflowerError as error:
            # Expected ways to leave early; the server decides whether to send again.
            log.warning("left the gRPC server: %s", error)
            return type(error).__name__
        return flower_record.RUN_OVER


class _Nodes:
    """The providers of one ClientApp, made when they are first needed.

    Flower's simulation sends the ClientApp to its actors anew with every message; an
    actor goes on with the providers that it has.
    """

    def __init__(self, rewards: RewardsIn | None, token: str = "") -> None:
        self._rewards = rewards
        self._token = token or secrets.token_hex(16)
        self._providers: dict[str, NodeProvider] = {}

    def __reduce__(self) -> tuple[object, ...]:
        return _known_nodes, (self._token, self._rewards)

    def provider(self, context: Context) -> NodeProvider:
        """Find who makes this node: its own home first, whatever the server says."""
        name = _OWN_HOME if HOME in context.node_config else _SIMULATED
        if name == _SIMULATED and PARTITION not in context.node_config:
            raise MalformedMessageError(
                "this SuperNode has no home; start it with "
                f"--node-config '{HOME}=\"…\"'"
            )
        if name == _SIMULATED and not in_simulation():
            raise RefusalError(
                RefusalCode.NO_HOME,
                f"a SuperNode with a {PARTITION} and no home would take its users' "
                "terms, rewards and noise from the server. Outside a simulation start "
                f"it with --node-config '{HOME}=\"…\"'",
            )
        if name not in self._providers:
            # Flower starts a process per message and has loaded most of itself into
            # it: the collector need not look through that again, now or at the end.
            gc.freeze()
            module, _, attribute = name.partition(":")
            make = getattr(importlib.import_module(module), attribute)
            rewards = self._rewards and by_message(self._rewards)
            self._providers[name] = make(rewards)
        return self._providers[name]


_known: dict[str, _Nodes] = {}


def _known_nodes(token: str, rewards: RewardsIn | None) -> _Nodes:
    return _known.setdefault(token, _Nodes(rewards, token))


def _run(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run on the loop of this process.

    Flower's simulation ships the handlers to its actors, with every global that they
    name: a function goes by its name, a loop and its lock would not go at all.
    """
    return _loop.run(coroutine)


def _guard_errors(function: Callable[[], Result]) -> Result:
    """Keep the text of errors on the node: Flower would send it on.

    It may hold paths, amounts and what was spent with other operators. A code goes on.
    """
    try:
        return function()
    except RefusalError as refusal:
        log.warning("refused: %s", refusal)
        raise RefusalError(
            RefusalCode(refusal.code), "the node's log says more"
        ) from None
    except ProtocolError:
        raise  # about the message alone, in constant words
    except WallflowerError as error:
        log.warning("the node cannot answer: %s", error)
        raise UnavailableError(
            f"the node cannot answer ({type(error).__name__}); its log says more"
        ) from None
    except Exception as error:
        log.exception("the node failed")
        raise RuntimeError(f"the node failed ({type(error).__name__})") from None


def _field(message: Message, key: str, kind: type[Result]) -> Result:
    record = message.content.config_records.get(flower_record.RECORD, ConfigRecord())
    value = record.get(key)
    if not isinstance(value, kind):
        raise MalformedMessageError(f'a Flower message has no "{key}"')
    return value


def _reply(message: Message, fields: dict[str, bytes | str]) -> Message:
    record = ConfigRecord(dict(fields))
    return Message(RecordDict({flower_record.RECORD: record}), reply_to=message)


app = serve_nodes(ClientApp())
