"""Visits to a desk, good ones and others, made by hand."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import grpc
import grpc.aio

from tests.support.desk_fixtures import FAST, House
from tests.support.intruder import channel_to, good_token, hello_of
from wallflower.protocol.identity.enrolment import NodeIdentity
from wallflower.protocol.identity.tokens import (
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


def visit_of(
    house: House,
    identity: NodeIdentity,
    answers: Mapping[str, bytes] | None = None,
    *,
    at_ms: int | None = None,
    token: RunToken | None = None,
    standing: Mapping[bytes, bytes] | None = None,
    tamper: Callable[[desk_pb2.FromVisitor], None] = lambda visit: None,
    signer: NodeIdentity | None = None,
    fingerprint: bytes = b"",
    **changes: Any,
) -> bytes:
    """A correct visit, but for what is changed; `tamper` changes what was signed."""
    token = token or good_token(house, identity.node_id)
    changes.setdefault("instance", INSTANCE)
    brought = desk_pb2.Brought()
    for request_id, body in (answers or {}).items():
        brought.answers.add(request_id=request_id, body=body)
    for request, answer in (standing or {}).items():
        brought.standing.add(request=request, answer=answer)
    visit = desk_pb2.FromVisitor(
        hello=hello_of(house, identity, token, **changes),
        at_ms=time.time_ns() // 1_000_000 if at_ms is None else at_ms,
        server_fingerprint=fingerprint,
        body=brought.SerializeToString(),
    )
    said = visit_transcript(visit)
    visit.proof.signature = (signer or identity).sign(said)
    visit.proof.token_proof = token_proof(token, "node", said)
    tamper(visit)
    return visit.SerializeToString()


def read(raw: bytes) -> desk_pb2.Asked:
    return desk_pb2.Asked.FromString(desk_pb2.ToVisitor.FromString(raw).body)


async def call(port: int, raw: bytes) -> desk_pb2.Asked | tuple[str, str]:
    """Make one visit over TLS: the reply, or status and reason."""
    async with channel_to(port) as channel:
        try:
            return read(await channel.unary_unary(VISIT, None, None)(raw, timeout=60))
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

    def serve(self, raw: bytes) -> desk_pb2.Asked:
        return read(self.lobby.serve(raw, self.now))

    def _next_ms(self) -> int:
        self.now += 0.001
        return round(self.time() * 1000)
