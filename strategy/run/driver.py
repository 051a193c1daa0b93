"""Drive one secure sum through a transport: ask, collect until the deadline, go on.

The machine (`ServerSession`) knows the protocol, the transport knows the nodes, the
spool knows what to remember. This is the only place where the three meet.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from wallflower.protocol.errors import InputError, ProtocolError
from wallflower.protocol.messages.port import Answer, NodeTransport, Request
from wallflower.protocol.secure_sum.backends import stage_named
from wallflower.protocol.secure_sum.session import (
    Ask,
    KeyReady,
    PartyId,
    SecureSum,
    ServerSession,
    Void,
)
from wallflower.protocol.secure_sum.shuffle.plan import SHUFFLER
from wallflower.strategy.store.spool import CohortSpool, StageEvent

_log = logging.getLogger(__name__)
LARGE = 32  # parties whose messages are worth a thread of their own
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A node declined; `code` is the kebab-case word of its NodeAnswer.

    `terms`: its policy will refuse the same again. `untouched`: it says that no user
    was shown the arm.
    """

    code: str
    terms: bool = False
    untouched: bool = False


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How long each stage waits for its answers."""

    default_s: float
    by_stage: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a stage that could never be answered."""
        for stage, seconds in {"default": self.default_s, **self.by_stage}.items():
            if not seconds > 0:
                raise InputError(f"deadline of {stage}", seconds, "more than 0 seconds")

    def of(self, stage: str) -> float:
        """Return seconds for `stage`."""
        return self.by_stage.get(stage, self.default_s)


# Waits until it is known whom a session leaves out, before its set is closed.
Settle = Callable[[ServerSession], Awaitable[None]]
Wrap = Callable[[PartyId, str, bytes], Request]
Unwrap = Callable[[Answer], bytes | Refusal]


async def run_session(
    session: ServerSession,
    transport: NodeTransport,
    wrap: Wrap,
    unwrap: Unwrap,
    deadlines: Deadlines,
    spool: CohortSpool | None = None,
    settle: Settle | None = None,
) -> SecureSum | Void:
    """Bring one session to its end.

    Parameters
    ----------
    session : ServerSession
        A fresh machine, or one restored from the snapshot that `spool` holds.
    transport : NodeTransport
        How parties are reached.
    wrap : Callable[[PartyId, str, bytes], Request]
        Make the request that carries a stage's message to a party. The request id must
        be a function of (cohort, stage, party) alone: after a restart the same id asks
        the node for the answer it has stored.
    unwrap : Callable[[Answer], bytes | Refusal]
        Take the machine's message out of a node's reply; raises ProtocolError for a
        reply that makes no sense. Never called for an answer that is a failure.
    deadlines : Deadlines
        Seconds per stage; a resumed stage gets its full time again, because the nodes
        must first come back.
    spool : CohortSpool, optional
        Where the state goes before any message that depends on it leaves. The outcome
        stays there until the caller has written it down and forgets the cohort.
    settle : Settle, optional
        Called when the contributions are in, before the set is closed.

    Returns
    -------
    SecureSum | Void
        The exact sum over the reported survivors, or no sum and a reason.
    """
    if spool is not None:
        if (outcome := await spool.outcome()) is not None:
            return outcome
        events = await spool.events()
        await _run_work(partial(_replay, session, events), len(events))
    drive = _Drive(session, transport, wrap, unwrap, deadlines=deadlines, settle=settle)
    step = await drive.to_end(spool)
    if isinstance(step, KeyReady):
        raise InputError("session", "a dealing", "a cohort; see run_dealing")
    if spool is not None:
        await spool.finish(step)
    return step


async def run_dealing(
    session: ServerSession,
    transport: NodeTransport,
    wrap: Wrap,
    unwrap: Unwrap,
    deadlines: Deadlines,
) -> KeyReady | Void:
    """Bring a dealing to its end; none of it is spooled, it is simply dealt again."""
    step = await _Drive(session, transport, wrap, unwrap, deadlines).to_end(None)
    if isinstance(step, SecureSum):
        raise InputError("session", "a cohort", "a dealing; see run_session")
    return step


@dataclass(frozen=True, slots=True)
class _Drive:
    """One session on its way, and what it needs for it."""

    session: ServerSession
    transport: NodeTransport
    wrap: Wrap
    unwrap: Unwrap
    deadlines: Deadlines
    settle: Settle | None = None

    async def to_end(self, spool: CohortSpool | None) -> SecureSum | KeyReady | Void:
        step = await _run_work(self.session.start, LARGE)
        while isinstance(step, Ask):
            size = len(step.messages)
            if spool is not None:
                snapshot = await _run_work(self.session.snapshot, size)
                await spool.enter_stage(step.stage, snapshot)
            if step.messages:
                await self._collect(step, spool)
            if self.settle is not None and stage_named(step.stage).takes_reward:
                await self.settle(self.session)
            # A shuffled batch is one message, and is opened message by message.
            step = await _run_work(
                self.session.advance, LARGE if SHUFFLER in step.messages else size
            )
        return step

    async def _collect(self, step: Ask, spool: CohortSpool | None) -> None:
        """Let the session hear the answers of a stage, all that have come in one go."""
        requests = {}
        for number, (party, message) in enumerate(step.messages.items()):
            request = self.wrap(party, step.stage, message)
            requests[request.node_id, request.request_id] = request, party
            await _let_others(number)
        stream = self.transport.ask(
            [request for request, _ in requests.values()],
            timeout_s=self.deadlines.of(step.stage),
        )
        came: list[StageEvent] = []
        more = asyncio.Event()

        async def listen() -> None:
            try:
                async with aclosing(stream) as answers:
                    number = 0
                    async for answer in answers:
                        _, party = requests[answer.node_id, answer.request_id]
                        came.append(_event(party, answer, self.unwrap))
                        more.set()
                        number += 1
                        await _let_others(number)
            finally:
                more.set()

        listening = asyncio.create_task(listen())
        try:
            while not (listening.done() and not came):
                await more.wait()
                more.clear()
                events, came[:] = list(came), []
                for event in events:
                    if spool is not None:
                        spool.note(event)
                await _run_work(partial(_apply_all, self.session, events), len(events))
                if self.session.stage_complete:
                    break
                if listening.done():
                    more.set()
        finally:
            listening.cancel()
            await asyncio.wait([listening])
        if not listening.cancelled():
            listening.result()  # what the transport failed with, if it did


async def _run_work(work: Callable[[], Result], size: int) -> Result:
    """Do what takes long for many parties beside the loop, which must hear the nodes.

    Nobody else touches the session meanwhile. A few parties are not worth a thread.
    """
    return await asyncio.to_thread(work) if size >= LARGE else work()


async def _let_others(number: int) -> None:
    """Let the loop turn now and then in a long row of short work."""
    if number % LARGE == 0:
        await asyncio.sleep(0)


def _event(party: PartyId, answer: Answer, unwrap: Unwrap) -> StageEvent:
    """Say what an answer means for its party."""
    if answer.failure is not None:
        return StageEvent(party, lost=answer.failure)
    try:
        inside = unwrap(answer)
    except ProtocolError as error:
        return StageEvent(party, lost=error.code)
    if isinstance(inside, Refusal):
        return StageEvent(party, lost=inside.code)
    return StageEvent(party, inside)


def _replay(session: ServerSession, events: Sequence[StageEvent]) -> None:
    for event in events:
        _apply(session, event)


def _apply_all(session: ServerSession, events: Sequence[StageEvent]) -> None:
    for event in events:
        _apply(session, event)
        if session.stage_complete:
            return  # who comes later is not needed any more


def _apply(session: ServerSession, event: StageEvent) -> None:
    """Hand one event to the machine; a message it refuses costs only its sender."""
    if event.body is None:
        session.lose(event.party, event.lost or "")
        return
    try:
        session.receive(event.party, event.body)
    except ProtocolError as error:
        _log.warning(
            "answer refused",
            extra={
                "event": "answer-refused",
                "node_id": event.party,
                "reason": error.code,
            },
        )
