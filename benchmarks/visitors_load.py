"""People who arrive, as bytes: real keys, signatures, answers encrypted beforehand.

Whoever is measured is the server; what a visitor's device does is done beforehand, for
each arm that the visitor may be shown. Connections are kept, as a proxy keeps them, and
each poll names a caller's address as a proxy does: limits count by network.
"""

from __future__ import annotations

import asyncio
import random
import time
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.support.seat_server import SeatServer
from tests.support.seated_sums import RUN, Person
from wallflower.protocol.secure_sum.backends import SEAL
from wallflower.protocol.secure_sum.context import unwrap, wrap
from wallflower.protocol.secure_sum.sealed.cipher import (
    encrypt,
    prove_sender,
    sealed_context,
    statement,
)
from wallflower.protocol.secure_sum.sealed.group import Point
from wallflower.protocol.wire.node_pb2 import NodeAnswer, NodeRequest, TaskAnswer
from wallflower.protocol.wire.sealed_pb2 import SealAnswer, SealRequest
from wallflower.protocol.wire.visitors_pb2 import VisitorReply
from wallflower.serve.http_wire import POLL_PATH
from wallflower.strategy.store.seats import SeatedCohort

GOOD, UNSIGNED, SILENT, TWICE = "good", "unsigned", "silent", "twice"
# How many of a hundred do what no honest visitor does, or vanish.
MIX = {UNSIGNED: 2, SILENT: 5, TWICE: 3}


@dataclass(frozen=True, slots=True)
class Prepared:
    """One visitor's bytes: an arrival, and an answer for each cohort."""

    kind: str
    arriving: bytes
    answers: dict[str, bytes]


class Sealer:
    """Makes contributions to one cohort as a client's session does."""

    def __init__(self, cohort: SeatedCohort, run_id: str = RUN) -> None:
        self._run_id = run_id
        (task,) = NodeRequest.FromString(cohort.terms).tasks
        envelope = unwrap(task.stage.message)
        note = SealRequest.FromString(envelope.payload).dealing
        self._context, self._task_id = envelope.context, task.task_id
        self._public = Point.parse(note.key)
        self._bound = sealed_context(envelope.context, note.name)

    def seal(self, person: Person, value: int) -> bytes:
        """Return the poll of an answer."""
        sealed, opening = encrypt(self._public, value)
        one, two = bytes(sealed.one), bytes(sealed.two)
        said = statement(self._bound, person.name, 1, one, two)
        answer = SealAnswer(
            one=one, two=two, users=1, proof=prove_sender(opening, said)
        )
        if person.identity is not None:
            answer.certificate = person.certificate
            answer.signature = person.identity.sign(said)
        body = answer.SerializeToString()
        message = wrap(SEAL, self._context, person.name, "", body)
        answers = [TaskAnswer(task_id=self._task_id, message=message)]
        given = NodeAnswer(answers=answers).SerializeToString()
        return person.answering(given, self._run_id).SerializeToString()


def prepare(
    server: SeatServer, cohorts: Sequence[SeatedCohort], count: int, seed: int
) -> list[Prepared]:
    """Make so many visitors; some of them misbehave."""
    draw, sealers = random.Random(seed), {c.cohort_id: Sealer(c) for c in cohorts}
    people = []
    for _ in range(count):
        person, place = server.run.person(), draw.randrange(100)
        kind = GOOD
        for wrong, share in MIX.items():
            if place < share:
                kind = wrong
                break
            place -= share
        poll = person.arriving()
        if kind == UNSIGNED and poll.signature:
            poll.signature = bytes(64)
        answers = {
            name: sealer.seal(person, draw.randrange(2))
            for name, sealer in sealers.items()
        }
        people.append(Prepared(kind, poll.SerializeToString(), answers))
    return people


def _choose_address(body: bytes) -> str:
    """Return an address in one of 65,536 networks, by the poll's bytes."""
    first, second, third = zlib.crc32(body).to_bytes(4)[:3]
    return f"10.{first}.{second}.{third}"


class Connection(asyncio.Protocol):
    """One kept connection, which carries a poll at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._reply: asyncio.Future[bytes] | None = None
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail what waits."""
        self.lost = True
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(ConnectionError("lost"))

    def data_received(self, data: bytes) -> None:
        """Hand over a reply when it is here in full."""
        self._buffer += data
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found or self._reply is None or self._reply.done():
            return
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r", 1)[0])
        if len(rest) >= length:
            self._buffer = rest[length:]
            ok = head.startswith(b"HTTP/1.1 200")
            self._reply.set_result(rest[:length] if ok else b"")

    async def poll(self, body: bytes) -> bytes:
        """Send a poll; return the reply, empty if it was no reply."""
        assert self._transport is not None
        self._reply = asyncio.get_running_loop().create_future()
        self._transport.write(
            f"POST {POLL_PATH} HTTP/1.1\r\nHost: load\r\nContent-Type: application/"
            f"proto\r\nX-Forwarded-For: {_choose_address(body)}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        return await self._reply


@dataclass
class Load:
    """What visitors saw: seconds to each reply, and what became of them."""

    port: int
    arrived_s: list[float] = field(default_factory=list)
    answered_s: list[float] = field(default_factory=list)
    became: Counter[str] = field(default_factory=Counter)
    taken: set[bytes] = field(default_factory=set)
    _free: list[Connection] = field(default_factory=list)

    async def poll(self, body: bytes) -> VisitorReply:
        """Send a poll until it has a reply, as real clients do."""
        while True:
            try:
                connection = await self._connection()
                reply = await connection.poll(body)
            except OSError:
                await asyncio.sleep(0.05)
                continue
            self._free.append(connection)
            if reply:
                parsed = VisitorReply.FromString(reply)
                if not parsed.refused.again:
                    return parsed
            await asyncio.sleep(0.05)

    async def _connection(self) -> Connection:
        while self._free:
            kept = self._free.pop()
            if not kept.lost:
                return kept
        loop = asyncio.get_running_loop()
        _, made = await loop.create_connection(Connection, "127.0.0.1", self.port)
        return made

    async def come(self, person: Prepared, due: float, think_s: float) -> None:
        """Be one visitor, who is due at this moment of the loop's clock."""
        clock = asyncio.get_running_loop().time
        reply = await self.poll(person.arriving)
        self.arrived_s.append(clock() - due)
        kind = reply.WhichOneof("kind")
        if kind != "seat":
            self.became[reply.refused.code or reply.no_seat.reason] += 1
            return
        if person.kind == SILENT:
            self.became[SILENT] += 1
            return
        await asyncio.sleep(think_s)
        (task,) = NodeRequest.FromString(reply.seat.request).tasks
        body = person.answers[task.task_id]
        for _ in range(2 if person.kind == TWICE else 1):
            begun = clock()
            reply = await self.poll(body)
            self.answered_s.append(clock() - begun)
            self.became[reply.WhichOneof("kind") or ""] += 1
            if reply.WhichOneof("kind") == "taken":
                self.taken.add(person.arriving)


async def arrive_by_poisson(
    load: Load, people: Sequence[Prepared], rate: float, seed: int, think_s: float = 0.5
) -> float:
    """Let people arrive at so many a second; return how long it took."""
    draw, loop = random.Random(seed), asyncio.get_running_loop()
    begun = due = loop.time()
    async with asyncio.TaskGroup() as group:
        for person in people:
            due += draw.expovariate(rate)
            if (wait_s := due - loop.time()) > 0:
                await asyncio.sleep(wait_s)
            group.create_task(load.come(person, due, draw.expovariate(1 / think_s)))
    return loop.time() - begun


async def arrive_as_fast_as_served(
    load: Load, people: Sequence[Prepared], at_once: int
) -> float:
    """Keep so many visitors in the server's hands; return how long it took."""
    left = iter(people)
    begun = time.perf_counter()

    async def come_one_after_another() -> None:
        for person in left:
            now = asyncio.get_running_loop().time()
            await load.come(person, now, 0.0)

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(come_one_after_another())
    return time.perf_counter() - begun
