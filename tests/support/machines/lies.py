"""A world whose server says whatever it can make of what it heard.

The server sends any message of a *pool* to any node at any time; what it heard grows
with every answer. Nodes may end once each, after their ledger was written and before
they answered. Nothing else happens: losses and delays are the server's silence.

One reduction. A node that gave up a cohort whose row is in its ledger answers nothing
about that cohort any more. A server that makes it do so gains nothing, and the step is
left out. `check_silent` asks such nodes everything that was ever answered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Protocol

from tests.support.machines.explore import Interned, ViolationError
from tests.support.machines.faults import ONCE, ROWS
from tests.support.machines.nodes import Actor, NodeState, Reply, close_request
from wallflower.protocol.secure_sum.context import unwrap
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.protocol.wire.node_pb2 import CohortStage, NodeRequest


@dataclass(frozen=True, slots=True)
class History:
    """One answer, and the request that it was given to."""

    party: str
    request: bytes
    answer: bytes

    @property
    def stage(self) -> CohortStage:
        """The request, read."""
        return NodeRequest.FromString(self.request).tasks[0].stage

    @property
    def number(self) -> int:
        """The stage's number."""
        return unwrap(self.answer).stage

    @property
    def payload(self) -> bytes:
        """What the node says."""
        return unwrap(self.answer).payload

    @property
    def asked(self) -> bytes:
        """What the node was asked."""
        return unwrap(self.stage.message).payload

    @property
    def context(self) -> bytes:
        """The cohort and roster that it belongs to."""
        return unwrap(self.answer).context

    @property
    def spec(self) -> CohortSpec:
        """The cohort as the node was told."""
        return self.stage.spec


class Liar(Protocol):
    """What a server can say with what it heard, and what it learns by it."""

    def messages(self, heard: Iterable[History]) -> Mapping[str, Iterable[bytes]]:
        """Return every request that can be made, by the node it is for."""
        ...

    def judge(self, heard: Iterable[History]) -> None:
        """Raise ViolationError where the server learns what it must not."""
        ...


class LieState(NamedTuple):
    """One state: numbers of the nodes' states, numbers of what was heard."""

    nodes: tuple[int, ...]
    heard: frozenset[int]


@dataclass
class LieWorld:
    """Nodes and a server that lies; `crashes` is how many nodes may end.

    `again` is how many it makes give up what has no row yet, once each: those begin
    anew with other keys. Without `rows` a missing row is overlooked.
    """

    actors: Mapping[str, Actor]
    states: Mapping[str, NodeState]
    liar: Liar
    cohorts: tuple[str, ...]
    crashes: int = 1
    again: int = 0
    rows: bool = True
    _nodes: Interned[NodeState] = field(default_factory=Interned)
    _bodies: Interned[bytes] = field(default_factory=Interned)
    _heard: Interned[History] = field(default_factory=Interned)
    _replies: dict[tuple[int, int, bool], tuple[int, int | None, bool]] = field(
        default_factory=dict
    )
    _pools: dict[frozenset[int], tuple[tuple[int, ...], ...]] = field(
        default_factory=dict
    )
    _good: set[frozenset[int]] = field(default_factory=set)
    _given_up: set[tuple[int, int, str]] = field(default_factory=set)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The nodes in the order of a state."""
        return tuple(self.actors)

    @property
    def asked(self) -> int:
        """How many different questions were put to nodes."""
        return len(self._replies)

    def first(self) -> LieState:
        """Return the state in which nothing was said."""
        nodes = (self._nodes.number(self.states[name]) for name in self.names)
        return LieState(tuple(nodes), frozenset())

    def next(self, state: LieState) -> Iterator[tuple[str, LieState]]:
        """Return all that the server can do."""
        pool = self._pool(state.heard)
        lives = [self._nodes.values[node].life for node in state.nodes]
        can_crash = sum(lives) < self.crashes
        begun = [self._nodes.values[node].forgot for node in state.nodes]
        can_begin = sum(begun) < self.again
        for index, name in enumerate(self.names):
            node = state.nodes[index]
            for body in pool[index]:
                after, heard, silent = self._reply(index, node, body, crash=False)
                if heard is None and (silent or begun[index] or not can_begin):
                    continue
                if after != node or heard is not None:
                    known = state.heard if heard is None else state.heard | {heard}
                    yield (
                        self._label(name, body, heard),
                        LieState(_put(state.nodes, index, after), known),
                    )
                if heard is not None and can_crash and not lives[index]:
                    after, _, _ = self._reply(index, node, body, crash=True)
                    yield (
                        f"{name} ends while it answers",
                        LieState(_put(state.nodes, index, after), state.heard),
                    )

    def check(self, state: LieState) -> None:
        """Raise ViolationError where the server learns what it must not."""
        if state.heard not in self._good:
            self.liar.judge([self._heard.values[one] for one in state.heard])
            self._good.add(state.heard)

    def check_silent(self) -> int:
        """Ask nodes that gave up a cohort all that was ever answered about it."""
        answered: dict[int, set[int]] = {}
        for (_, body, _), (_, heard, _) in list(self._replies.items()):
            if heard is not None:
                index = self.names.index(self._heard.values[heard].party)
                answered.setdefault(index, set()).add(body)
        for index, node, cohort in sorted(self._given_up):
            for body in sorted(answered.get(index, ())):
                if _cohort_of(self._bodies.values[body]) != cohort:
                    continue
                _, heard, _ = self._reply(index, node, body, crash=False)
                if heard is not None:
                    raise ViolationError(
                        ONCE, f"{self.names[index]} answers again about {cohort}"
                    )
        return len(self._given_up)

    def _pool(self, heard: frozenset[int]) -> tuple[tuple[int, ...], ...]:
        if heard not in self._pools:
            made = self.liar.messages([self._heard.values[one] for one in heard])
            closing = [close_request(cohort) for cohort in self.cohorts]
            self._pools[heard] = tuple(
                tuple(
                    dict.fromkeys(
                        self._bodies.number(body)
                        for body in (*made.get(name, ()), *closing)
                    )
                )
                for name in self.names
            )
        return self._pools[heard]

    def _reply(
        self, index: int, node: int, body: int, *, crash: bool
    ) -> tuple[int, int | None, bool]:
        """Return the node after a message, what was heard, and whether it gave up."""
        key = node, body, crash
        if key not in self._replies:
            name = self.names[index]
            reply = self.actors[name].ask(
                self._nodes.values[node], self._bodies.values[body], crash=crash
            )
            if reply.fault and self.rows:
                raise ViolationError(ROWS, f"{name}: {reply.fault}")
            self._replies[key] = self._noted(index, body, reply)
        return self._replies[key]

    def _noted(
        self, index: int, body: int, reply: Reply
    ) -> tuple[int, int | None, bool]:
        request, after = self._bodies.values[body], self._nodes.number(reply.state)
        if reply.answer:
            heard = History(self.names[index], request, reply.answer)
            return after, self._heard.number(heard), False
        cohort, rows = _cohort_of(request), reply.state.rows
        written = {one for one, *_ in (*rows.spends, *rows.one_time_answers)}
        if cohort in written and not _has_session(reply.state, cohort):
            self._given_up.add((index, after, cohort))
            return after, None, True
        return after, None, False

    def _label(self, name: str, body: int, heard: int | None) -> str:
        answered = "is silent" if heard is None else "answers"
        stage = NodeRequest.FromString(self._bodies.values[body]).tasks[0].stage
        number = unwrap(stage.message).stage if stage.message else 0
        return f"{name} {answered}: stage {number} of {stage.spec.cohort_id}"


def _cohort_of(body: bytes) -> str:
    task = NodeRequest.FromString(body).tasks[0]
    return task.close.cohort_id or task.stage.spec.cohort_id


def _has_session(state: NodeState, cohort: str) -> bool:
    return any(
        kind == "session" and name == cohort for (kind, _, name), _ in state.secrets
    )


def _put(nodes: tuple[int, ...], index: int, node: int) -> tuple[int, ...]:
    return (*nodes[:index], node, *nodes[index + 1 :])
