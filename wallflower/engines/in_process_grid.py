"""A Flower Grid in this process: real ServerApp and ClientApp, no SuperLink, no Ray.

Flower's own engines cost seconds to start; this grid drives the same ClientApp from a
thread pool, thousands of messages a second. Tests and notebooks run the Flower app on
it as it is: what a message carries, which errors come back and when it expires are
Flower's rules.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Self
from uuid import uuid4

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from wallflower.clients.host.assemble import simulated_here

NodeConfig = Mapping[str, bool | float | int | str]
_RUN_ID = 1
_SERVER_NODE_ID = 1
_IDENTITY = ("_task_id", "_run_id", "_node_id")


def partitions(count: int) -> dict[int, NodeConfig]:
    """Return the node configs that Flower's simulation gives to `count` nodes."""
    return {
        # Flower's node ids are large and random; an offset shows up mixed-up ids.
        1_000_000 + index: {"partition-id": index, "num-partitions": count}
        for index in range(count)
    }


class InProcessGrid(Grid):
    """Serves a ClientApp for a set of nodes; use it as a context manager.

    Parameters
    ----------
    client_app : ClientApp
        What every node runs.
    nodes : Mapping[int, NodeConfig]
        Flower's node ids and each node's own config.
    run_config : NodeConfig
        The run config that ClientApps see.
    workers : int
        How many messages are handled at the same time.
    """

    def __init__(
        self,
        client_app: ClientApp,
        nodes: Mapping[int, NodeConfig],
        run_config: NodeConfig | None = None,
        *,
        workers: int = 4,
    ) -> None:
        self._client_app = client_app
        self._contexts = {
            node_id: Context(
                run_id=_RUN_ID,
                node_id=node_id,
                node_config=dict(config),
                state=RecordDict(),
                run_config=dict(run_config or {}),
            )
            for node_id, config in nodes.items()
        }
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="client-app")
        self._lock = Lock()
        self._replies: dict[str, Message] = {}
        self._expiry: dict[str, float] = {}
        self._notify: Callable[[], None] | None = None
        self._identity: dict[str, int | None] = {}

    def __enter__(self) -> Self:
        # flwr keeps the identity of "the task of this process" in class attributes.
        self._identity = {name: vars(TaskIdentity)[name] for name in _IDENTITY}
        TaskIdentity.task_id, TaskIdentity.run_id = 1, _RUN_ID
        TaskIdentity.node_id = _SERVER_NODE_ID
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        for name, value in self._identity.items():
            setattr(TaskIdentity, name, value)

    def notify(self, callback: Callable[[], None]) -> None:
        """Call this, from a worker thread, whenever a reply can be pulled."""
        self._notify = callback

    def set_run(self, run: Run) -> None:
        """Accept the run; an in-process grid has exactly one."""

    @property
    def run(self) -> Run:
        """Describe the only run."""
        return Run.create_empty(_RUN_ID)

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Create a message (Flower's older way; new code calls ``Message``)."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """List the nodes."""
        return list(self._contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Hand messages to the pool; one for an unknown node gets no id."""
        accepted: list[str] = []
        for message in messages:
            if message.metadata.dst_node_id not in self._contexts:
                continue
            message_id = str(uuid4())
            message.metadata.__dict__["_message_id"] = message_id
            with self._lock:
                self._expiry[message_id] = time.monotonic() + message.metadata.ttl
            self._pool.submit(self._serve, message)
            accepted.append(message_id)
        return accepted

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies that are there, each once."""
        with self._lock:
            found = [self._replies.pop(i) for i in message_ids if i in self._replies]
            for reply in found:
                self._expiry.pop(reply.metadata.reply_to_message_id, None)
        return found

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Push, then pull until every reply is there or the time is over."""
        outstanding = set(self.push_messages(list(messages)))
        end = None if timeout is None else time.monotonic() + timeout
        replies: list[Message] = []
        while outstanding and (end is None or time.monotonic() < end):
            arrived = list(self.pull_messages(outstanding))
            replies += arrived
            outstanding -= {reply.metadata.reply_to_message_id for reply in arrived}
            if outstanding and not arrived:
                time.sleep(0.001)
        return replies

    def _serve(self, message: Message) -> None:
        """Run the ClientApp for one message, as a SuperNode would."""
        context = self._contexts[message.metadata.dst_node_id]
        try:
            with simulated_here():
                reply = self._client_app(message=message, context=context)
        except Exception as error:
            # Flower sends the text of an exception to the server; its class is enough.
            failure = Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, type(error).__name__)
            reply = Message(failure, reply_to=message)
        message_id = message.metadata.message_id
        with self._lock:
            if time.monotonic() > self._expiry[message_id]:
                late = Error(ErrorCode.MESSAGE_UNAVAILABLE, "expired")
                reply = Message(late, reply_to=message)
            self._replies[message_id] = reply
        if self._notify is not None:
            self._notify()
