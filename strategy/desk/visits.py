"""Nodes that do not stay: each comes by with one short call, and may vanish in between.

A visit brings what the node answered and takes along what is asked of it; the answer
comes with a later visit, hours afterwards if an outcome takes hours. A visit proves as
much as the greeting of a stream, at once, and nothing is waited for.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import MutableMapping

from google.protobuf.message import DecodeError

from wallflower.listening.limits import TokenBucket
from wallflower.protocol.identity.canonical import LONGEST_NAME
from wallflower.protocol.messages.port import NodeId
from wallflower.protocol.wire import desk_pb2
from wallflower.strategy.desk.admission import Admission, RefusedError
from wallflower.strategy.desk.attendee import Attendee, Visits
from wallflower.strategy.desk.settings import DeskSettings
from wallflower.strategy.desk.stats import DeskStats

_MOST_STANDING = 4


class Lobby:
    """The visitors of a desk.

    Parameters
    ----------
    admission : Admission
        Who gets in.
    fingerprint : bytes
        Of the desk's TLS certificate.
    settings, stats : DeskSettings, DeskStats
        The desk's.
    attendees : MutableMapping[NodeId, Attendee]
        Every node that the desk knows; those who visit for the first time are added.
    """

    def __init__(
        self,
        admission: Admission,
        fingerprint: bytes,
        settings: DeskSettings,
        attendees: MutableMapping[NodeId, Attendee],
        stats: DeskStats,
    ) -> None:
        self.run_over: str | None = None
        self._admission = admission
        self._fingerprint = fingerprint
        self._settings = settings
        self._attendees = attendees
        self._stats = stats
        # By when each must be back; a visit puts its node at the end.
        self._until: OrderedDict[NodeId, float] = OrderedDict()

    def expected(self, now: float) -> frozenset[NodeId]:
        """Name the visitors who came by not long ago and will be back."""
        return frozenset(self._until) if self.count(now) else frozenset()

    def count(self, now: float) -> int:
        """Give how many are expected; who stays away for too long no longer is."""
        while self._until and next(iter(self._until.values())) < now:
            self._until.popitem(last=False)
        self._stats.visitors = len(self._until)
        return len(self._until)

    def check(self, visit: desk_pb2.VisitGreeting) -> bytes:
        """Check who comes, before the visit is read; give what was proved."""
        return self._admission.visit(visit, self._fingerprint)

    def serve(
        self, visit: desk_pb2.VisitGreeting, said: bytes, raw: bytes, now: float
    ) -> bytes:
        """Take a visit that was checked and give the reply; raises `RefusedError`."""
        if len(raw) > self._settings.most_visit_bytes:
            raise RefusedError("too-large")
        if hashlib.sha256(raw).digest() != visit.digest:
            raise RefusedError("malformed-message")
        try:
            brought = desk_pb2.Brought.FromString(raw)
        except DecodeError:
            raise RefusedError("malformed-message") from None
        attendee = self._let_in(visit, now)
        self._stats.visits += 1
        self._stats.bytes_in += len(raw)
        if self.run_over is not None:
            self._until.pop(attendee.node_id, None)
            asked = desk_pb2.Asked(run_over=self.run_over)
        else:
            asked = self._exchange(attendee, brought, now)
        body = asked.SerializeToString()
        self._stats.bytes_out += len(body)
        proof = self._admission.reply_proof(visit.hello, said, body)
        return desk_pb2.ToVisitor(body=body, desk_proof=proof).SerializeToString()

    def _let_in(self, visit: desk_pb2.VisitGreeting, now: float) -> Attendee:
        """Find the node of a visit that was proved, and see that it is a new one."""
        hello, settings = visit.hello, self._settings
        attendee = self._attendees.get(hello.node_id)
        if attendee is None:
            if len(self._attendees) >= settings.most_visitors:
                raise RefusedError("too-many-streams")
            attendee = Attendee(hello.node_id, self._stats, now)
            self._attendees[hello.node_id] = attendee
        if attendee.here:
            raise RefusedError("attends")
        visits = attendee.visits
        if visits is None:
            rate = 4 / settings.visit_s
            bucket = TokenBucket(rate, settings.visits_burst, now)
            visits = Visits(bucket, 0, settings.visit_s)
        if visit.at_ms <= visits.at_ms:
            raise RefusedError("visit-repeated")
        if not visits.bucket.take(now):
            raise RefusedError("too-fast")
        visits.at_ms = visit.at_ms
        attendee.visit(hello.instance, visits, now)
        return attendee

    def _exchange(
        self, attendee: Attendee, brought: desk_pb2.Brought, now: float
    ) -> desk_pb2.Asked:
        visits = attendee.visits
        assert visits is not None
        if any(not _is_sound(answer) for answer in brought.answers):
            raise RefusedError("malformed-message")
        asked = desk_pb2.Asked(
            most_bytes=self._settings.most_visit_bytes,
            trust_label=self._admission.label,
        )
        for answer in brought.answers:
            failure = answer.failure if answer.WhichOneof("kind") == "failure" else None
            if not attendee.answer(answer.request_id, answer.body, failure, now):
                asked.not_taken.append(answer.request_id[:LONGEST_NAME])
        if brought.standing:
            visits.standing = {
                one.request: one.answer for one in brought.standing[:_MOST_STANDING]
            }
        for request in attendee.unanswered(self._settings.most_bytes_out // 2):
            asked.requests.add(request_id=request.request_id, body=request.body)
        visits.next_s = self._pace()
        asked.next_ms = round(visits.next_s * 1000)
        self._until[attendee.node_id] = now + visits.patience_s
        self._until.move_to_end(attendee.node_id)
        self._stats.visitors = len(self._until)
        return asked

    def _pace(self) -> float:
        """Give when to come again: all together no more often than we like."""
        settings = self._settings
        return max(settings.visit_s, len(self._until) / settings.visits_per_s)


def _is_sound(answer: desk_pb2.DeskAnswer) -> bool:
    if answer.WhichOneof("kind") == "body":
        return True
    return 0 < len(answer.failure) <= LONGEST_NAME
