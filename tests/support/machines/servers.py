"""The server's real machine as a pure function of its snapshot and one event.

Before every event the machine is restored from its snapshot, as after a restart. A
machine that was never restarted since its stage began gets the same event: both must
stand alike afterwards, or a restart would be noticed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from wallflower.protocol.errors import ProtocolError
from wallflower.protocol.identity.enrolment import Trust
from wallflower.protocol.secure_sum.context import parse
from wallflower.protocol.secure_sum.session import (
    Ask,
    KeyReady,
    SecureSum,
    ServerSession,
    Step,
    Void,
)
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.protocol.wire.sealed_pb2 import DealingState
from wallflower.protocol.wire.sum_state_pb2 import ServerState
from wallflower.strategy.secure_sum import (
    ServerKeyring,
    restore_session,
    server_session,
)
from wallflower.strategy.secure_sum.keyring import SharedKey

Event = tuple[str, str, bytes]  # "receive" or "lose", party, answer or code


class UnlikeError(AssertionError):
    """A restored machine does not stand where the one before it stood."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a session of the server stands; equal places go on alike.

    `began` and `events` are how it came to be here since its stage began.
    """

    snapshot: bytes
    outcome: SecureSum | KeyReady | Void | None = None
    key: bytes = b""  # a serialized DealingState, where one was dealt
    began: bytes = field(default=b"", compare=False)
    events: tuple[Event, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Cohort:
    """One session that an honest server drives."""

    spec: CohortSpec
    parties: Mapping[str, int]
    trust: Trust | None = None
    dealing: DealingState | None = None

    def begin(self) -> tuple[Place, Mapping[str, bytes]]:
        """Return the first place and the first messages."""
        keyring = self._keyring()
        session = server_session(
            self.spec, self.parties, trust=self.trust, keyring=keyring
        )
        return self._placed(session, session.start(), keyring)

    def happen(self, place: Place, event: Event) -> Place:
        """Return the place after an answer came or a party was lost."""
        restored = self._restore(place.snapshot)
        _apply(restored, event)
        events = (*place.events, event)
        lasting = self._restore(place.began)
        for past in events:
            _apply(lasting, past)
        snapshot = restored.snapshot()
        if lasting.snapshot() != snapshot:
            raise UnlikeError(f"a restart before {event[:2]} is noticed")
        return Place(snapshot, began=place.began, events=events)

    def is_complete(self, place: Place) -> bool:
        """Return whether the stage need not wait any longer."""
        return self._restore(place.snapshot).stage_complete

    def advance(self, place: Place) -> tuple[Place, Mapping[str, bytes]]:
        """End the stage: its deadline is over, or everybody was heard."""
        keyring = self._keyring()
        session = restore_session(place.snapshot, trust=self.trust, keyring=keyring)
        return self._placed(session, session.advance(), keyring)

    def _placed(
        self, session: ServerSession, step: Step, keyring: ServerKeyring
    ) -> tuple[Place, Mapping[str, bytes]]:
        if isinstance(step, KeyReady) and keyring.dealt is not None:
            return Place(b"", step, keyring.dealt.state.SerializeToString()), {}
        if not isinstance(step, Ask):
            return Place(b"", step), {}
        snapshot = session.snapshot()
        again = self._restore(snapshot).start()
        if again != step:
            raise UnlikeError(f"a restart asks otherwise in stage {step.stage}")
        return Place(snapshot, began=snapshot), step.messages

    def _restore(self, snapshot: bytes) -> ServerSession:
        return restore_session(snapshot, trust=self.trust, keyring=self._keyring())

    def _keyring(self) -> ServerKeyring:
        keyring = ServerKeyring(self.spec.run_id)
        if self.dealing is not None:
            keyring.deal(SharedKey(self.dealing))
        return keyring


def awaited(place: Place) -> tuple[str, ...]:
    """Name the parties that are asked and not heard."""
    return tuple(parse(ServerState, place.snapshot).awaited)


def _apply(session: ServerSession, event: Event) -> None:
    kind, party, payload = event
    if kind == "lose":
        session.lose(party, payload.decode())
        return
    try:
        session.receive(party, payload)
    except ProtocolError:
        return
