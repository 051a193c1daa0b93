"""A world with an honest server and a network that loses, repeats and delays.

Whatever was sent may arrive at any time, any number of times, or never; a stage may end
before anybody was heard; every node may end once, between two messages or after its
ledger was written and before it answered; the server may restart at any time.

A state is where the sessions and the nodes stand, what was sent, and who was hurt: too
late, refused or ended. With enough nodes unhurt a fair schedule must end with a sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from tests.support.machines.explore import Interned, ViolationError
from tests.support.machines.nodes import (
    Actor,
    NodeState,
    Reply,
    share_of,
    stage_request,
)
from tests.support.machines.servers import (
    Cohort,
    Event,
    Place,
    UnlikeError,
    awaited,
)
from wallflower.protocol.secure_sum.sealed.group import base
from wallflower.protocol.secure_sum.session import KeyReady, SecureSum, Void
from wallflower.protocol.wire.sealed_pb2 import DealingState
from wallflower.strategy.secure_sum.keyring import SharedKey

ENDS = "from every state with enough nodes a fair schedule ends"
QUORUM = "no sum below its quorum"
ONCE = "at most one opening of a cohort"
TWICE = "nobody in two sums"
ROWS = "no answer without its row on disk"
RIGHT = "a sum is that of its survivors"
ALIKE = "a restart of the server changes nothing"
ALL_INVARIANTS = (ENDS, QUORUM, ONCE, TWICE, ROWS, RIGHT, ALIKE)
_MOST_STEPS = 200

Outcome = SecureSum | KeyReady | Void
Enough = Callable[[frozenset[str]], bool]  # the parties that nothing happened to


class Session(NamedTuple):
    """Where one session is: numbers of places, requests and answers; who was hurt."""

    place: int
    requests: tuple[tuple[str, int], ...]  # of this stage: party, message
    past: frozenset[tuple[str, int]]  # of earlier stages
    answers: frozenset[tuple[str, int]]  # of this stage: party, event
    hurt: frozenset[str]


class FaultState(NamedTuple):
    """One state of the world: numbers of the nodes' states."""

    sessions: tuple[Session, ...]
    nodes: tuple[int, ...]


@dataclass
class FaultWorld:
    """Nodes and the cohorts that an honest server drives at the same time.

    `enough` says of each cohort whether the unhurt suffice for a sum; `crashes` is how
    many nodes may end.
    """

    actors: Mapping[str, Actor]
    states: Mapping[str, NodeState]
    cohorts: tuple[Cohort, ...]
    enough: tuple[Enough, ...]
    crashes: int = 1
    _nodes: Interned[NodeState] = field(default_factory=Interned)
    _places: Interned[Place] = field(default_factory=Interned)
    _bodies: Interned[bytes] = field(default_factory=Interned)
    _events: Interned[Event] = field(default_factory=Interned)
    _replies: dict[tuple[int, int, bool], tuple[int, int | None]] = field(
        default_factory=dict
    )
    _after: dict[tuple[int, int, int], int] = field(default_factory=dict)
    _advanced: dict[tuple[int, int], tuple[int, tuple[tuple[str, int], ...]]] = field(
        default_factory=dict
    )
    _complete: dict[tuple[int, int], bool] = field(default_factory=dict)
    _ends: dict[FaultState, tuple[Outcome, ...]] = field(default_factory=dict)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The nodes in the order of a state."""
        return tuple(self.actors)

    def first(self) -> FaultState:
        """Return the state in which every cohort has just been asked."""
        sessions = []
        for number, cohort in enumerate(self.cohorts):
            place, messages = cohort.begin()
            sessions.append(
                Session(
                    self._places.number(place),
                    self._requests(number, messages),
                    frozenset(),
                    frozenset(),
                    frozenset(),
                )
            )
        nodes = tuple(self._nodes.number(self.states[name]) for name in self.names)
        return FaultState(tuple(sessions), nodes)

    def next(self, state: FaultState) -> Iterator[tuple[str, FaultState]]:
        """Return all that can happen."""
        lives = [self._nodes.values[node].life for node in state.nodes]
        can_crash = sum(map(bool, lives)) < self.crashes
        for number, session in enumerate(state.sessions):
            yield from self._deliveries(state, number, session, lives, can_crash)
            if self._places.values[session.place].outcome is not None:
                continue
            for party, event in session.answers:
                yield f"server hears {party}", self._hear(state, number, event)
            yield "deadline", self._advance(state, number)
        if can_crash:
            for index, name in enumerate(self.names):
                if not lives[index]:
                    yield f"{name} restarts", self._restart(state, index)

    def check(self, state: FaultState) -> None:
        """Raise ViolationError for a wrong sum or a fair schedule that ends badly."""
        for number, session in enumerate(state.sessions):
            outcome = self._places.values[session.place].outcome
            if isinstance(outcome, SecureSum):
                self._check_sum(self.cohorts[number], outcome)
            if isinstance(outcome, KeyReady):
                self._check_key(state, self._places.values[session.place].key)
        self._check_two(state)
        ends = self._fair_end(state)
        for session, enough, end in zip(state.sessions, self.enough, ends, strict=True):
            unhurt = frozenset(self.names) - session.hurt
            if isinstance(end, Void) and enough(unhurt):
                raise ViolationError(ENDS, f"{end.code} with {sorted(unhurt)} unhurt")

    def _check_sum(self, cohort: Cohort, found: SecureSum) -> None:
        expected = sum(self.actors[party].value for party in found.survivors)
        if found.total != expected % found.modulus:
            raise ViolationError(RIGHT, f"{found.total} instead of {expected}")
        if found.users < cohort.spec.quorum or len(found.survivors) != found.users:
            raise ViolationError(QUORUM, f"{found.users} users")

    def _check_key(self, state: FaultState, body: bytes) -> None:
        """Every member that the server counts holds its share of the key."""
        key = SharedKey(DealingState.FromString(body))
        for name, node in zip(self.names, state.nodes, strict=True):
            share = share_of(self._nodes.values[node], key.dealing_id, key.dealers)
            counted = name in key.places and not self.actors[name].hosted
            if counted and (share is None or base(share) != key.key_of(name)):
                raise ViolationError(RIGHT, f"{name} does not hold its share")

    def _check_two(self, state: FaultState) -> None:
        summed: set[str] = set()
        for session in state.sessions:
            outcome = self._places.values[session.place].outcome
            if isinstance(outcome, SecureSum):
                if summed & set(outcome.survivors):
                    raise ViolationError(TWICE, f"{summed & set(outcome.survivors)}")
                summed |= set(outcome.survivors)

    # --- what happens -----------------------------------------------------------------

    def _deliveries(
        self,
        state: FaultState,
        number: int,
        session: Session,
        lives: list[int],
        can_crash: bool,
    ) -> Iterator[tuple[str, FaultState]]:
        for party, body in (*session.requests, *session.past):
            yield f"{party} is asked", self._deliver(state, number, party, body)
            if can_crash and not lives[self.names.index(party)]:
                ended = self._deliver(state, number, party, body, crash=True)
                yield f"{party} ends while it answers", ended

    def _deliver(
        self,
        state: FaultState,
        number: int,
        party: str,
        body: int,
        *,
        crash: bool = False,
    ) -> FaultState:
        index, session = self.names.index(party), state.sessions[number]
        after, event = self._reply(index, state.nodes[index], body, crash)
        nodes = (*state.nodes[:index], after, *state.nodes[index + 1 :])
        if crash:
            session = session._replace(hurt=session.hurt | {party})
        elif event is not None and (party, body) in session.requests:
            session = session._replace(answers=session.answers | {(party, event)})
            if self._events.values[event][0] == "lose":
                session = session._replace(hurt=session.hurt | {party})
        return FaultState(_put(state.sessions, number, session), nodes)

    def _reply(
        self, index: int, node: int, body: int, crash: bool
    ) -> tuple[int, int | None]:
        key = node, body, crash
        if key not in self._replies:
            name = self.names[index]
            reply = self.actors[name].ask(
                self._nodes.values[node], self._bodies.values[body], crash=crash
            )
            if reply.fault:
                raise ViolationError(ROWS, f"{name}: {reply.fault}")
            event = self._event(name, reply)
            self._replies[key] = self._nodes.number(reply.state), event
        return self._replies[key]

    def _event(self, name: str, reply: Reply) -> int | None:
        if reply.answer:
            return self._events.number(("receive", name, reply.answer))
        if reply.refusal:
            return self._events.number(("lose", name, reply.refusal.encode()))
        return None

    def _hear(self, state: FaultState, number: int, event: int) -> FaultState:
        session = state.sessions[number]
        key = number, session.place, event
        if key not in self._after:
            place = self._places.values[session.place]
            try:
                after = self.cohorts[number].happen(place, self._events.values[event])
            except UnlikeError as error:
                raise ViolationError(ALIKE, str(error)) from None
            self._after[key] = self._places.number(after)
        session = session._replace(place=self._after[key])
        return FaultState(_put(state.sessions, number, session), state.nodes)

    def _advance(self, state: FaultState, number: int) -> FaultState:
        session = state.sessions[number]
        key = number, session.place
        place = self._places.values[session.place]
        if key not in self._advanced:
            try:
                after, messages = self.cohorts[number].advance(place)
            except UnlikeError as error:
                raise ViolationError(ALIKE, str(error)) from None
            requests = self._requests(number, messages)
            self._advanced[key] = self._places.number(after), requests
        after_number, requests = self._advanced[key]
        late = () if self._is_complete(number, session.place) else awaited(place)
        session = Session(
            after_number,
            requests,
            session.past | set(session.requests),
            frozenset(),
            session.hurt | set(late),
        )
        return FaultState(_put(state.sessions, number, session), state.nodes)

    def _restart(self, state: FaultState, index: int) -> FaultState:
        name = self.names[index]
        after = self.actors[name].restart(self._nodes.values[state.nodes[index]])
        nodes = (
            *state.nodes[:index],
            self._nodes.number(after),
            *state.nodes[index + 1 :],
        )
        sessions = state.sessions
        if self.actors[name].hosted:  # what its process knew is gone
            sessions = tuple(
                session._replace(hurt=session.hurt | {name}) for session in sessions
            )
        return FaultState(sessions, nodes)

    def _requests(
        self, number: int, messages: Mapping[str, bytes]
    ) -> tuple[tuple[str, int], ...]:
        spec = self.cohorts[number].spec
        return tuple(
            (
                party,
                self._bodies.number(
                    stage_request(spec, (self.actors[party].user,), message)
                ),
            )
            for party, message in messages.items()
        )

    def _is_complete(self, number: int, place: int) -> bool:
        key = number, place
        if key not in self._complete:
            found = self.cohorts[number].is_complete(self._places.values[place])
            self._complete[key] = found
        return self._complete[key]

    # --- a fair schedule --------------------------------------------------------------

    def _fair_end(self, state: FaultState) -> tuple[Outcome, ...]:
        """Return how all sessions end if from now on every message arrives once."""
        way = []
        while state not in self._ends:
            way.append(state)
            after = self._fair_step(state)
            if after is None:
                self._ends[state] = self._outcomes(state)
                break
            state = after
            if len(way) > _MOST_STEPS:
                raise ViolationError(ENDS, f"not after {_MOST_STEPS} steps")
        for past in way:
            self._ends[past] = self._ends[state]
        return self._ends[state]

    def _outcomes(self, state: FaultState) -> tuple[Outcome, ...]:
        ends = []
        for session in state.sessions:
            outcome = self._places.values[session.place].outcome
            assert outcome is not None
            ends.append(outcome)
        return tuple(ends)

    def _fair_step(self, state: FaultState) -> FaultState | None:
        for number, session in enumerate(state.sessions):
            place = self._places.values[session.place]
            if place.outcome is not None:
                continue
            if self._is_complete(number, session.place):
                return self._advance(state, number)
            waiting, answered = set(awaited(place)), dict(session.answers)
            for party, body in session.requests:
                if party in waiting and party in answered:
                    return self._hear(state, number, answered[party])
                if party in waiting:
                    after = self._deliver(state, number, party, body)
                    if party in dict(after.sessions[number].answers):
                        return after
            return self._advance(state, number)
        return None


def _put(
    sessions: tuple[Session, ...], number: int, session: Session
) -> tuple[Session, ...]:
    return (*sessions[:number], session, *sessions[number + 1 :])
