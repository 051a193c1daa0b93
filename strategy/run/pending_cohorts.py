"""Cohorts under way when the server stops: which are finished, which are void.

A cohort whose set was closed (every contribution is in, the tally was being asked for)
is finished from the spool after a restart: no user is asked again and the sum is the
same. Any other cohort that was under way is void and its users stay used.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from wallflower.protocol.cohort import cohort_mechanism
from wallflower.protocol.identity.enrolment import Trust
from wallflower.protocol.messages.port import NodeId
from wallflower.protocol.secure_sum.backends import is_closed
from wallflower.protocol.secure_sum.context import parse
from wallflower.protocol.secure_sum.session import PartyId, SecureSum, ServerSession
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.protocol.wire.sealed_pb2 import DealingState
from wallflower.strategy.bandit.policy import CohortRequest
from wallflower.strategy.secure_sum import (
    ServerKeyring,
    restore_session,
    server_session,
)
from wallflower.strategy.secure_sum.keyring import SharedKey
from wallflower.strategy.store.entries import INVITED, CohortRecord
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.store.spool import CohortSpool, Spool
from wallflower.strategy.transport.shuffler import ShufflerPlace

_STOPPED = "server-stopped"


# Who arrived and answered, each with a contribution that was checked.
Contributions: TypeAlias = Callable[[], Iterable[tuple[PartyId, bytes]]]


class SessionFactory(Protocol):
    """Opens the server's half of a secure sum, anew or from a snapshot."""

    def open(
        self,
        spec: CohortSpec,
        parties: Mapping[NodeId, int],
        contributions: Contributions | None = None,
        /,
    ) -> ServerSession:
        """Open a session for a new cohort, or for people who arrived and answered."""
        ...

    @property
    def shared_key(self) -> SharedKey | None:
        """The key that sealed sums of the run are made under, if there is one."""
        ...

    def restore(self, snapshot: bytes) -> ServerSession:
        """Go on with a session from its snapshot."""
        ...


class PendingCohorts:
    """The cohorts of the round under way, in the journal and in the spool.

    Parameters
    ----------
    journal : Journal
        The run's record.
    sessions : SessionFactory
        Opens and restores machines.
    spool : Spool, optional
        Where sessions are kept. Without one (nodes in the server's own process would
        not outlive it either) every cohort under way is void after a restart.
    """

    def __init__(
        self, journal: Journal, sessions: SessionFactory, spool: Spool | None
    ) -> None:
        self._journal = journal
        self._sessions = sessions
        self._spool = spool
        self._closed: dict[int, CohortRecord] = {}  # by arm

    def __contains__(self, cohort_id: str) -> bool:
        return any(cohort_id == kept.cohort_id for kept in self._closed.values())

    async def recover(self, number: int | None) -> None:
        """Sort the cohorts that were under way in round `number`.

        None says that the run is over and nothing can be used.
        """
        if self._spool is None:
            await self._journal.call(self._journal.void_open, _STOPPED)
            return
        for cohort in await self._journal.call(self._journal.cohorts):
            if cohort.state != INVITED:
                continue
            if cohort.round_number == number and await self._is_closed(cohort):
                self._closed[cohort.arm] = await self._journal.call(
                    self._record, cohort
                )
            else:
                await self._journal.call(self._journal.void, cohort.cohort_id, _STOPPED)
        kept = {record.cohort_id for record in self._closed.values()}
        left = await self._spool.open_cohorts()
        await self.forget(name for name in left if name not in kept)

    def take(self, cohort_request: CohortRequest) -> CohortRecord | None:
        """Return the closed cohort that answers a request, once."""
        record = self._closed.get(cohort_request.arm)
        if record is None or (record.batch, record.size) != (
            cohort_request.batch,
            cohort_request.size,
        ):
            return None
        return self._closed.pop(cohort_request.arm)

    async def drop(self) -> None:
        """Void what nobody took: the policy stopped before it could be used."""
        for record in self._closed.values():
            await self.give_up(record)
        self._closed.clear()

    async def give_up(self, record: CohortRecord) -> None:
        """Void a cohort that was taken or kept, and forget it."""
        await self._journal.call(self._journal.void, record.cohort_id, _STOPPED)
        await self.forget([record.cohort_id])

    @property
    def shared_key(self) -> SharedKey | None:
        """The key that sealed sums of the run are made under, if there is one."""
        return self._sessions.shared_key

    async def session(
        self,
        spec: CohortSpec,
        parties: Mapping[NodeId, int],
        read: Contributions | None = None,
    ) -> tuple[ServerSession, CohortSpool | None]:
        """Open a cohort's machine, or restore it, with the place that keeps it.

        `read` gives the answers of people who arrived, who are then the parties.
        """
        kept = self._place(spec)
        snapshot = None if kept is None else await kept.snapshot()
        if snapshot is not None:
            return self._sessions.restore(snapshot), kept
        if read is None:
            return self._sessions.open(spec, parties), kept
        answers = await self._journal.call(lambda: list(read()))
        visitors = {visitor: 1 for visitor, _ in answers}
        return self._sessions.open(spec, visitors, lambda: answers), kept

    async def forget(self, cohort_ids: Iterable[str]) -> None:
        """Drop cohorts from the spool, once the journal has their end."""
        if self._spool is not None:
            for cohort_id in cohort_ids:
                await self._spool.cohort(cohort_id).forget()

    def _place(self, spec: CohortSpec) -> CohortSpool | None:
        # A sum that the server itself noises is never written down without the noise.
        if self._spool is None or cohort_mechanism(spec).server_noise() is not None:
            return None
        return self._spool.cohort(spec.cohort_id)

    async def _is_closed(self, cohort: CohortRecord) -> bool:
        assert self._spool is not None
        kept = self._spool.cohort(cohort.cohort_id)
        stage = await kept.stage()
        if stage is not None and is_closed(stage):
            return True
        return isinstance(await kept.outcome(), SecureSum)

    def _record(self, cohort: CohortRecord) -> CohortRecord:
        users = {
            node_id: users
            for cohort_id, node_id, users in self._journal.invitations()
            if cohort_id == cohort.cohort_id
        }
        return dataclasses.replace(cohort, users=users)


@dataclass(frozen=True, slots=True)
class RunSessions:
    """Opens sessions that share one keyring for the run."""

    trust: Trust | None
    keyring: ServerKeyring

    def open(
        self,
        spec: CohortSpec,
        parties: Mapping[NodeId, int],
        contributions: Contributions | None = None,
    ) -> ServerSession:
        """Open a session for a new cohort, or for people who arrived and answered."""
        return server_session(
            spec,
            parties,
            trust=self.trust,
            keyring=self.keyring,
            contributions=contributions,
        )

    @property
    def shared_key(self) -> SharedKey | None:
        """The key that sealed sums of the run are made under, if there is one."""
        return self.keyring.dealt

    def restore(self, snapshot: bytes) -> ServerSession:
        """Go on with a session from its snapshot."""
        return restore_session(snapshot, trust=self.trust, keyring=self.keyring)

    def restore_key(self, state: bytes) -> None:
        """Go on with a key that an earlier server had dealt, from its public state."""
        self.keyring.deal(SharedKey(parse(DealingState, state)))


def make_session_factory(
    run_id: str, trust: Trust | None, place: ShufflerPlace | None = None
) -> RunSessions:
    """Return the factory for one run; `place` where sums go through a shuffler."""
    keyring = ServerKeyring(run_id)
    if place is not None:
        keyring.shuffler = place.files.public_key
    return RunSessions(trust, keyring)
