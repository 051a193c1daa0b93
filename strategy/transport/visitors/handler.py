"""The handler of polls of people who arrive: bytes in, bytes out.

Everything about a poll is checked before the store is written: who comes, and the whole
contribution. A reply holds a seat's terms, an arm or a code, and no other text: nothing
in it, nor its size, depends on an outcome.
"""

from __future__ import annotations

import logging
import re
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from wallflower.protocol.errors import (
    AuthenticationError,
    ConfigError,
    JournalError,
    MalformedMessageError,
    ProtocolError,
    RefusalError,
    UnavailableError,
)
from wallflower.protocol.files.keyfiles import REVOKED, read_public
from wallflower.protocol.files.watched import RevokedSerials
from wallflower.protocol.identity.canonical import check_name
from wallflower.protocol.identity.enrolment import Trust, verify_signature
from wallflower.protocol.refusals import RefusalCode
from wallflower.protocol.secure_sum.context import parse
from wallflower.protocol.visitors import (
    ARRIVAL_BYTES,
    ENROLLED,
    LARGEST_POLL,
    LONGEST_STAY_S,
    OPEN,
    VERSION,
    arrival_transcript,
)
from wallflower.protocol.wire.visitors_pb2 import (
    AnswerTaken,
    NoSeat,
    PollRefused,
    Seat,
    VisitorPoll,
    VisitorReply,
)
from wallflower.strategy.config import ExperimentConfig
from wallflower.strategy.secure_sum.contributions import SeatTerms, answered_cohort
from wallflower.strategy.store.seats import (
    AnswerResult,
    NoFreeSeat,
    SeatedCohort,
    TakenSeat,
)
from wallflower.strategy.transport.grpc.host import enrolment_key, revoked_serials

_log = logging.getLogger(__name__)
# Of people whose certificates are remembered; each is shown twice, soon after another.
MOST_REMEMBERED: Final = 4096
_MOST_COHORTS = 256  # whose terms a worker keeps
_OPEN_NAME = re.compile(r"[0-9a-f]{32}")
# What honest visitors run into as well; the others are held against their network.
_BLAMELESS = frozenset(
    {
        RefusalCode.REPLAYED_MESSAGE,
        RefusalCode.STORE_UNAVAILABLE,
        RefusalCode.TOO_LATE,
    }
)
_ANSWER_REFUSALS = {
    AnswerResult.ANOTHER: RefusalCode.REPLAYED_MESSAGE,
    AnswerResult.TOO_LATE: RefusalCode.TOO_LATE,
    AnswerResult.NO_SEAT: RefusalCode.NO_SEAT,
}


class Seats(Protocol):
    """The workers' half of the seats, for the tasks of an event loop."""

    async def read_cohort(self, cohort_id: str) -> SeatedCohort | None:
        """See `SeatStore.read_cohort`."""
        ...

    async def take_seat(self, visitor: str, arrival: bytes) -> TakenSeat | NoFreeSeat:
        """See `SeatStore.take_seat`."""
        ...

    async def store_answer(
        self, visitor: str, arrival: bytes, cohort_id: str, body: bytes
    ) -> AnswerResult:
        """See `SeatStore.store_answer`."""
        ...


@dataclass(frozen=True, slots=True)
class VisitorRun:
    """What a worker knows of its run.

    Attributes
    ----------
    run_id : the run that seats belong to.
    arms : names of all arms.
    admission : ``enrolled``, ``invited`` or ``open``.
    trust : the key that vouches for visitors: enrolment's or the inviter's; None where
        anybody may come.
    """

    run_id: str
    arms: tuple[str, ...]
    admission: str
    trust: Trust | None

    def __post_init__(self) -> None:
        assert (self.trust is None) == (self.admission == OPEN)


@dataclass(frozen=True, slots=True)
class PollResult:
    """A reply, and what became of the poll.

    Attributes
    ----------
    reply : a serialized VisitorReply.
    event : ``seat``, ``no-seat``, ``answer`` or ``refused``.
    reason : the reason in a NoSeat, the code of a refusal; else empty.
    """

    reply: bytes
    event: str
    reason: str = ""

    @property
    def blamed(self) -> bool:
        """Whether no honest visitor sends such a poll."""
        return self.event == "refused" and self.reason not in _BLAMELESS


class VisitorHandler:
    """Answers polls; any number of tasks may call `handle`.

    Parameters
    ----------
    run : VisitorRun
        The run that people come for.
    seats : Seats
        What all workers and the orchestrator agree on.
    clock : Callable[[], float]
        Seconds since the epoch.
    """

    def __init__(
        self, run: VisitorRun, seats: Seats, clock: Callable[[], float] = time.time
    ) -> None:
        self._run = run
        self._seats = seats
        self._clock = clock
        # Of those who answer: they were let in when they took their seats.
        self._seated = None if run.trust is None else run.trust.after(LONGEST_STAY_S)
        self._terms: OrderedDict[str, tuple[SeatTerms, float]] = OrderedDict()

    async def handle(self, body: bytes) -> PollResult:
        """Answer one serialized VisitorPoll."""
        try:
            poll = self._read(body)
            work = self._answer(poll) if poll.answer else self._arrive(poll)
            return await work
        except (ProtocolError, RefusalError) as error:
            return refuse(error.code)
        except (JournalError, UnavailableError) as error:
            _log.error(str(error), extra={"event": "store-unavailable"})
            return refuse(RefusalCode.STORE_UNAVAILABLE, again=True)

    def _read(self, body: bytes) -> VisitorPoll:
        """Check what can be checked of any poll without keys."""
        if len(body) > LARGEST_POLL:
            raise MalformedMessageError(f"a poll of {len(body)} bytes")
        poll = parse(VisitorPoll, body)
        if poll.version != VERSION:
            raise MalformedMessageError(f"a poll of version {poll.version}")
        if poll.run_id != self._run.run_id:
            raise RefusalError(RefusalCode.WRONG_RUN, "a poll for another run")
        check_name(poll.visitor)
        if self._run.admission == OPEN and not _OPEN_NAME.fullmatch(poll.visitor):
            raise MalformedMessageError("a visitor's name is not 32 hex digits")
        if len(poll.arrival) != ARRIVAL_BYTES:
            raise MalformedMessageError(f"an arrival of {len(poll.arrival)} bytes")
        return poll

    async def _arrive(self, poll: VisitorPoll) -> PollResult:
        self._admit(poll)
        place = await self._seats.take_seat(poll.visitor, poll.arrival)
        if isinstance(place, NoFreeSeat):
            return self._show_unmeasured(place.arm, place.reason)
        terms = await self._terms_of(place.cohort_id)
        if terms is None:
            return self._show_unmeasured(place.arm, "cohort-closed")
        seat = Seat(request=terms.request_for(poll.visitor), arms=self._run.arms)
        return PollResult(VisitorReply(seat=seat).SerializeToString(), "seat")

    def _admit(self, poll: VisitorPoll) -> None:
        """Raise ProtocolError unless the visitor may come and signed this arrival."""
        trust = self._run.trust
        if trust is None:
            if poll.certificate or poll.signature:
                raise MalformedMessageError("a certificate where anybody may come")
            return
        certificate = trust.verify(poll.visitor, poll.certificate)
        try:
            verify_signature(
                certificate.public_key, poll.signature, arrival_transcript(poll)
            )
        except AuthenticationError:
            raise AuthenticationError("an arrival is not signed") from None

    async def _answer(self, poll: VisitorPoll) -> PollResult:
        cohort_id = answered_cohort(poll.answer)
        terms = await self._terms_of(cohort_id)
        if terms is None:
            return refuse(RefusalCode.TOO_LATE)
        body = terms.check_answer(poll.visitor, poll.answer)
        result = await self._seats.store_answer(
            poll.visitor, poll.arrival, cohort_id, body
        )
        if result in _ANSWER_REFUSALS:
            return refuse(_ANSWER_REFUSALS[result])
        reply = VisitorReply(taken=AnswerTaken())
        return PollResult(reply.SerializeToString(), "answer")

    async def _terms_of(self, cohort_id: str) -> SeatTerms | None:
        """Return the terms of a cohort whose answers are still taken."""
        known = self._terms.get(cohort_id)
        if known is None:
            cohort = await self._seats.read_cohort(cohort_id)
            if cohort is None:
                return None
            known = SeatTerms(cohort.terms, self._seated), cohort.answers_until
            self._terms[cohort_id] = known
            while len(self._terms) > _MOST_COHORTS:
                self._terms.popitem(last=False)
        terms, answers_until = known
        return terms if self._clock() <= answers_until else None

    def _show_unmeasured(self, arm: int, reason: str) -> PollResult:
        shown = NoSeat(arm=arm, arm_name=self._run.arms[arm], reason=reason)
        reply = VisitorReply(no_seat=shown).SerializeToString()
        return PollResult(reply, "no-seat", reason)


def refuse(code: str, *, again: bool = False) -> PollResult:
    """Return a refusal; `again`: the same poll may succeed later."""
    refused = PollRefused(code=code, again=again)
    reply = VisitorReply(refused=refused).SerializeToString()
    return PollResult(reply, "refused", code)


# Who vouches for the people who arrive at a run.


def visitor_trust(config: ExperimentConfig) -> Trust | None:
    """Return who vouches for an experiment's visitors; None where anybody may come."""
    assert config.visitors is not None
    if config.visitors.admission == OPEN:
        return None
    if config.visitors.admission == ENROLLED:
        key = enrolment_key(config)
        if key is None:
            raise ConfigError(
                "secure-sum.enrolment", 'is missing; admission = "enrolled" needs it'
            )
        return Trust(key, time.time, revoked_serials(config), MOST_REMEMBERED)
    path = config.visitors.inviter
    if path is not None and not path.exists():
        raise ConfigError(
            str(path), "no such file; `wallflower invite` makes it (visitors.inviter)"
        )
    if path is None:
        raise ConfigError(
            "visitors.inviter", "is missing; `wallflower invite` makes the key"
        )
    revoked = RevokedSerials(path.with_name(REVOKED))
    return Trust(read_public(path), time.time, revoked, MOST_REMEMBERED)
