"""The gRPC server: a ``grpc.aio`` service to which the nodes of a run connect, and a
`NodeTransport`.

Each node keeps one outbound stream over TLS, or polls now and then with one call. The
orchestrator asks; the gRPC server sends, waits through reconnects, and hands over each
answer once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Sequence

import grpc
import grpc.aio

from wallflower.listening.descriptors import SPARE_STREAMS, streams_allowed
from wallflower.listening.grpc_log import GrpcLines
from wallflower.listening.health import HealthService
from wallflower.listening.limits import FairPlaces, address_of, network_of
from wallflower.protocol.errors import ConfigError, InputError
from wallflower.protocol.identity.certificates import KeyPair, fingerprint
from wallflower.protocol.messages.port import Answer, NodeId, Request
from wallflower.protocol.wire import node_service_pb2
from wallflower.strategy.transport.grpc.admission import Admission, RefusedError
from wallflower.strategy.transport.grpc.gc_tuning import TunedGc
from wallflower.strategy.transport.grpc.node_queue import NodeQueue
from wallflower.strategy.transport.grpc.poll_queue import PollQueue
from wallflower.strategy.transport.grpc.rpc_gate import RpcGate, end
from wallflower.strategy.transport.grpc.settings import GrpcServerSettings
from wallflower.strategy.transport.grpc.stats import GrpcServerStats
from wallflower.strategy.transport.grpc.stream import NodeStream, shake_hands
from wallflower.strategy.transport.pending_requests import Inbox, ask_all

_log = logging.getLogger(__name__)
_SERVICE = "wallflower.v1.NodeService"
_Context = grpc.aio.ServicerContext[bytes, bytes]
# Room for field numbers, lengths and ids around the body of a request.
_FRAME_BYTES = 1024
_CLOSING_S = 5.0  # how long a graceful shutdown waits for nodes to hang up


class GrpcServer:
    """Where the nodes of one run connect.

    Parameters
    ----------
    admission : Admission
        Who gets in, and to which run.
    server : KeyPair
        The TLS certificate (chain) and key nodes see.
    settings : GrpcServerSettings
        Limits.
    expected : Iterable[NodeId]
        Nodes known from before a restart: they get `return_s` seconds to come back
        before asking them fails.
    """

    def __init__(
        self,
        admission: Admission,
        server: KeyPair,
        settings: GrpcServerSettings | None = None,
        expected: Iterable[NodeId] = (),
    ) -> None:
        self.stats = GrpcServerStats()
        self.trust_label = admission.label
        self.run_id = admission.run_id
        self._admission = admission
        self._server_key = server
        self._fingerprint = fingerprint(server.certificate)
        self._settings = settings or GrpcServerSettings()
        self._most_streams = self._settings.most_streams
        self._expected = tuple(expected)
        self._node_queues: dict[NodeId, NodeQueue] = {}
        self._streams: dict[NodeId, NodeStream] = {}
        self._polls = PollQueue(
            admission, self._fingerprint, self._settings, self._node_queues, self.stats
        )
        self._gate = RpcGate(admission, self._settings, self.stats)
        self._handshakes = FairPlaces(self._settings.most_handshakes)
        self._came_or_went = asyncio.Condition()
        self._closing = False
        self._server: grpc.aio.Server | None = None
        self._health: HealthService | None = None
        self._sweeping: asyncio.Task[None] | None = None
        self._gc = TunedGc()
        self._printed: GrpcLines | None = None

    async def open(self, address: str, *, hosted: int = 0) -> int:
        """Listen on ``host:port`` (port 0: any free one); give the port.

        So many nodes are `hosted` by this process and need descriptors of their own.
        """
        now = asyncio.get_running_loop().time()
        for node_id in self._expected:
            self._node_queues[node_id] = NodeQueue(node_id, self.stats, now)
        wanted = self._settings.most_streams
        if hosted:  # nobody else comes; some of them may come again
            wanted = min(wanted, hosted + SPARE_STREAMS)
        self._most_streams = streams_allowed(wanted, hosted)
        self._server = grpc.aio.server(
            options=self._settings.channel_options(self._most_streams)
        )
        methods = {
            "Connect": grpc.stream_stream_rpc_method_handler(self._connect),
            # Not unary: such a handler begins when its message is there, not before.
            "Poll": grpc.stream_unary_rpc_method_handler(self._poll),
        }
        self._health = HealthService(
            ("", _SERVICE),
            self._gate.stranger,
            self._settings.most_watching,
            count_refusal=self.stats.count_refusal,
            count_watching=self.stats.count_watching,
        )
        self._server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(_SERVICE, methods),
                self._health.handler(),
            )
        )
        credentials = grpc.ssl_server_credentials(
            [(self._server_key.private_key, self._server_key.certificate)]
        )
        try:
            port = self._server.add_secure_port(address, credentials)
        except RuntimeError:
            port = 0
        if port == 0:
            raise InputError(
                "gRPC server address", address, "a local address whose port is free"
            )
        self._printed = GrpcLines(self.stats.count_failed_handshake)
        await self._server.start()
        self._sweeping = asyncio.create_task(self._sweep())
        self._event("server-open", address=address, port=port)
        return port

    async def close(self, run_over: str | None = None) -> None:
        """Stop: tell nodes that the run is over, or that the gRPC server will be back.

        Parameters
        ----------
        run_over : str, optional
            ``finished``, ``failed`` or ``cancelled``: nodes disconnect. None: the
            gRPC server restarts; nodes come back.
        """
        if self._server is None:
            return
        server, self._server = self._server, None
        self._closing, self._polls.run_over = True, run_over
        if self._health is not None:
            self._health.close()
        for stream in list(self._streams.values()):
            if run_over is None:
                stream.end("server-closing")
            else:
                stream.say_run_over(run_over)
        await self._until(lambda: not self._streams, _CLOSING_S)
        for stream in list(self._streams.values()):
            stream.end("server-closing")
        if run_over is not None:  # polling nodes hear of it when they come by
            clock = asyncio.get_running_loop().time
            await self._until(
                lambda: not self._polls.count(clock()), self._settings.farewell_s
            )
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.wait([self._sweeping])
            self._gc.close()
        now = asyncio.get_running_loop().time()
        for node_queue in self._node_queues.values():
            node_queue.fail_all("server-closed", now)
        await server.stop(grace=0.2)
        if self._printed is not None:
            self._printed.close()
        self._event("server-closed")

    async def _until(self, holds: Callable[[], bool], timeout_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s), self._came_or_went:
                await self._came_or_went.wait_for(holds)

    async def nodes(self) -> Sequence[NodeId]:
        """Name the nodes that are connected now, or came by and are expected again."""
        return sorted(self._there())

    def _there(self) -> frozenset[NodeId]:
        now = asyncio.get_running_loop().time()
        return self._polls.expected(now) | self._streams.keys()

    async def wait_for(
        self, nodes: Collection[NodeId], *, timeout_s: float
    ) -> frozenset[NodeId]:
        """Wait until all of `nodes` are connected or time is up; give those missing."""
        wanted = frozenset(nodes)
        await self._until(
            # The count first: a thousand arrivals must not compare sets.
            lambda: (
                len(self._streams) + self.stats.polling_nodes >= len(wanted)
                and wanted <= self._there()
            ),
            timeout_s,
        )
        return wanted - self._there()

    def revoke(self, node_id: NodeId) -> None:
        """Shut a node out now and for the rest of the process."""
        self._admission.revoked.add(node_id)
        if node_id in self._streams:
            self._streams[node_id].end("revoked")

    def ask(
        self, requests: Sequence[Request], *, timeout_s: float
    ) -> AsyncGenerator[Answer, None]:
        """Ask nodes through their streams (see `NodeTransport.ask`)."""
        return ask_all(requests, timeout_s, self._post, self._abandon)

    async def _abandon(self, inbox: Inbox) -> None:
        for node_id, request_id in inbox.close():
            if node_id in self._node_queues:
                self._node_queues[node_id].stop_waiting(request_id, inbox)
                self._wake(node_id)

    def _post(self, request: Request, inbox: Inbox, _deadline: float) -> None:
        now = asyncio.get_running_loop().time()
        failure = None
        node_queue = self._node_queues.get(request.node_id)
        if node_queue is None:
            failure = "not-connected"
        elif self._closing:
            failure = "server-closed"
        elif len(request.body) + _FRAME_BYTES > self._settings.most_bytes_out:
            failure = "too-large"
        elif node_queue.is_away(now, self._settings.return_s):
            failure = "node-gone"
        if node_queue is None or failure is not None:
            inbox.refuse(request, failure or "not-connected")
            return
        node_queue.ask(request, inbox, now)
        self._wake(request.node_id)

    def _wake(self, node_id: NodeId) -> None:
        if node_id in self._streams:
            self._streams[node_id].wake()

    async def _connect(self, _: object, context: _Context) -> None:
        """Serve one stream; the gRPC method."""
        hello = None
        try:
            hello = self._gate.hello(context)
            await self._let_in(context, hello)
        except RefusedError as refused:
            await self._gate.refuse(context, refused.reason, hello)
            return
        await end(context, await self._carry_frames(context, hello))

    async def _poll(self, _: object, context: _Context) -> bytes:
        """Serve one poll; the other gRPC method."""
        hello = None
        try:
            handshake = self._gate.check_poll(context)
            hello = handshake.hello
            if self._closing and self._polls.run_over is None:
                raise RefusedError("server-closing")
            node = self._polls.check(handshake)
            async with asyncio.timeout(self._settings.handshake_s):
                raw = await context.read()
            if not isinstance(raw, bytes):
                raise RefusedError("unexpected-message")
            now = asyncio.get_running_loop().time()
            reply = self._polls.serve(handshake, node, raw, now)
        except (RefusedError, TimeoutError) as error:
            reason = getattr(error, "reason", "handshake-late")
            await self._gate.refuse(context, reason, hello)
            raise  # not reached: `abort` does not return
        await self._notify_waiters()
        return reply

    async def _let_in(self, context: _Context, hello: node_service_pb2.Hello) -> None:
        stats, network = self.stats, network_of(address_of(context.peer()))
        if self._closing:
            raise RefusedError("server-closing")
        open_streams = self._handshakes.taken + len(self._streams)
        if open_streams >= self._most_streams or not self._handshakes.take(network):
            raise RefusedError("too-many-streams")
        stats.handshake = self._handshakes.taken
        try:
            await shake_hands(
                context,
                hello,
                self._admission,
                self._fingerprint,
                settings=self._settings,
                beat_s=self._pace(),
            )
        except grpc.aio.BaseError:
            raise RefusedError("unexpected-message") from None
        finally:
            self._handshakes.give_back(network)
            stats.handshake = self._handshakes.taken

    async def _carry_frames(
        self, context: _Context, hello: node_service_pb2.Hello
    ) -> str:
        """Carry frames for a node that was let in; give the reason why it ended."""
        loop = asyncio.get_running_loop()
        node_id = hello.node_id
        if node_id in self._streams:  # the newer stream wins: the older may be dead
            self._streams[node_id].end("superseded")
        again = node_id in self._node_queues
        node_queue = self._node_queues.setdefault(
            node_id, NodeQueue(node_id, self.stats, loop.time())
        )
        node_queue.arrive(hello.instance, loop.time())
        stream = NodeStream(
            wire=context,
            hello=hello,
            node_queue=node_queue,
            settings=self._settings,
            stats=self.stats,
            clock=loop.time,
            pace=self._pace,
        )
        self._streams[node_id] = stream
        self.stats.connections += 1
        self.stats.reconnects += again
        self.stats.connected = len(self._streams)
        self._event("connected", node_id=node_id, again=again)
        reason = "connection-lost"
        try:
            await self._notify_waiters()
            reason = await stream.serve()
        finally:
            self.stats.ended[reason] += 1
            if self._streams.get(node_id) is stream:
                del self._streams[node_id]
                node_queue.depart(loop.time())
            self.stats.connected = len(self._streams)
            self._event("left", logging.INFO, reason, node_id=node_id)
            await self._notify_waiters()
        return reason

    async def _notify_waiters(self) -> None:
        async with self._came_or_went:
            self._came_or_went.notify_all()

    async def _sweep(self) -> None:
        """End streams that fell silent or were revoked; give up on nodes long gone."""
        settings = self._settings
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(settings.heartbeat_s, settings.return_s) / 3)
            now = loop.time()
            for stream in list(self._streams.values()):
                if now - stream.heard_at > 3 * stream.beat_s:
                    stream.end("heartbeat-lost")
            self._expel()
            self._gc.tune(len(self._streams), now)
            for node_queue in self._node_queues.values():
                if not node_queue.idle and node_queue.is_away(now, settings.return_s):
                    node_queue.give_up(now)

    def _pace(self) -> float:
        """Return the seconds between a node's heartbeats; more with many nodes."""
        settings = self._settings
        return max(settings.heartbeat_s, len(self._streams) / settings.beats_per_s)

    def _expel(self) -> None:
        try:
            hellos = [stream.hello for stream in self._streams.values()]
            for node_id, reason in self._admission.find_expelled(hellos).items():
                self._streams[node_id].end(reason)
        except ConfigError as error:
            # Nobody new gets in until the file is back; who is in stays.
            self._event("revocations-unreadable", logging.ERROR, str(error))

    def _event(
        self,
        event: str,
        level: int = logging.INFO,
        reason: str | None = None,
        **details: object,
    ) -> None:
        extra = {"event": event, "run_id": self.run_id, **details}
        if reason is not None:
            extra["reason"] = reason
        _log.log(level, event, extra=extra)
