"""Visits to a desk, good ones and others, made by hand."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from typing import Any

import grpc
import grpc.aio

from tests.support.desk_fixtures import FAST, House
from tests.support.intruder import channel_to, good_token, hello_of
from wallflower.protocol.identity.enrolment import NodeIdentity
from wallflower.protocol.identity.tokens import (
    GREETING,
    VISIT,
    RunToken,
    token_proof,
    visit_transcript,
)
from wallflower.protocol.wire import desk_pb2
from wallflower.strategy.desk.admission import Admission
from wallflower.strategy.desk.attendee import Attendee
from wallflower.strategy.desk.settings import DeskSettings
from wallflower.strategy.desk.stats import DeskStats
from wallflower.strategy.desk.visits import Lobby

INSTANCE = b"i" * 16
Visit = tuple[bytes, bytes]  # what its headers say, and what it brings


def visit_of(
    house: House,
    identity: NodeIdentity,
    answers: Mapping[str, bytes] | None = None,
    *,
    at_ms: int | None = None,
    token: RunToken | None = None,
    standing: Mapping[bytes, bytes] | None = None,
    tamper: Callable[[desk_pb2.VisitGreeting], None] = lambda visit: None,
    brings: Callable[[bytes], bytes] = bytes,
    signer: NodeIdentity | None = None,
    fingerprint: bytes = b"",
    **changes: Any,
) -> Visit:
    """A correct visit, but for what is changed.

    `tamper` changes what was signed, `brings` what comes after the headers.
    """
    token = token or good_token(house, identity.node_id)
    changes.setdefault("instance", INSTANCE)
    brought = desk_pb2.Brought()
    for request_id, body in (answers or {}).items():
        brought.answers.add(request_id=request_id, body=body)
    for request, answer in (standing or {}).items():
        brought.standing.add(request=request, answer=answer)
    body = brought.SerializeToString()
    visit = desk_pb2.VisitGreeting(
        hello=hello_of(house, identity, token, **changes),
        at_ms=time.time_ns() // 1_000_000 if at_ms is None else at_ms,
        server_fingerprint=fingerprint,
        digest=hashlib.sha256(body).digest(),
    )
    said = visit_transcript(visit)
    visit.proof.signature = (signer or identity).sign(said)
    visit.proof.token_proof = token_proof(token, "node", said)
    tamper(visit)
    return visit.SerializeToString(), brings(body)


def read(raw: bytes) -> desk_pb2.Asked:
    return desk_pb2.Asked.FromString(desk_pb2.ToVisitor.FromString(raw).body)


async def call(port: int, visit: Visit) -> desk_pb2.Asked | tuple[str, str]:
    """Make one visit over TLS: the reply, or status and reason."""
    greeting, body = visit
    async with channel_to(port) as channel:
        begin = channel.unary_unary(VISIT, None, None)
        try:
            return read(await begin(body, metadata=((GREETING, greeting),), timeout=60))
        except grpc.aio.AioRpcError as error:
            return error.code().name, error.details() or ""


class Hall:
    """A lobby without a network, on a clock of its own."""

    def __init__(self, house: House, settings: DeskSettings = FAST) -> None:
        self.house = house
        self.now = 1000.0
        self.attendees: dict[str, Attendee] = {}
        self.stats = DeskStats()
        admission = Admission(
            house.tokens, house.admission()._keys, house.revoked, clock=self.time
        )
        self.lobby = Lobby(admission, b"f" * 32, settings, self.attendees, self.stats)

    def time(self) -> float:
        return time.time() + self.now - 1000.0

    def visit(
        self,
        identity: NodeIdentity,
        answers: Mapping[str, bytes] | None = None,
        **more: Any,
    ) -> desk_pb2.Asked:
        more.setdefault("at_ms", self._next_ms())
        return self.serve(visit_of(self.house, identity, answers, **more))

    def serve(self, visit: Visit) -> desk_pb2.Asked:
        greeting, body = desk_pb2.VisitGreeting.FromString(visit[0]), visit[1]
        said = self.lobby.check(greeting)
        return read(self.lobby.serve(greeting, said, body, self.now))

    def _next_ms(self) -> int:
        self.now += 0.001
        return round(self.time() * 1000)
