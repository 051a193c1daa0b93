"""Breadth-first search over everything that can happen, states told apart by hash."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

State = TypeVar("State", bound=Hashable)


class ViolationError(AssertionError):
    """An invariant does not hold; `invariant` is its name."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant


class World(Protocol[State]):
    """What can be explored."""

    def first(self) -> State:
        """Return the state in which everything begins."""
        ...

    def next(self, state: State) -> Iterable[tuple[str, State]]:
        """Return what can happen in a state, and the state after each."""
        ...

    def check(self, state: State) -> None:
        """Raise ViolationError where an invariant does not hold."""
        ...


@dataclass(frozen=True, slots=True)
class Explored(Generic[State]):
    """How much there was to see; `seen` are the states in the order of their depth."""

    seen: dict[State, tuple[State, str] | None]
    transitions: int
    seconds: float


class FoundError(Exception):
    """A violation and the way to it, one step a line."""

    def __init__(self, violation: ViolationError, path: list[str]) -> None:
        super().__init__("\n".join([str(violation), *path]))
        self.violation = violation
        self.path = path


def explore(world: World[State]) -> Explored[State]:
    """Explore every state once; raises FoundError at the first violation."""
    began, transitions = time.monotonic(), 0
    first = world.first()
    seen: dict[State, tuple[State, str] | None] = {first: None}
    waiting = deque([first])
    while waiting:
        state = waiting.popleft()
        try:
            world.check(state)
            for label, after in world.next(state):
                transitions += 1
                if after not in seen:
                    seen[after] = state, label
                    waiting.append(after)
        except ViolationError as violation:
            raise FoundError(violation, path_to(seen, state)) from None
    return Explored(seen, transitions, time.monotonic() - began)


def path_to(seen: dict[State, tuple[State, str] | None], state: State) -> list[str]:
    """Return the labels of the steps that lead to a state."""
    steps = []
    before = seen[state]
    while before is not None:
        steps.append(before[1])
        before = seen[before[0]]
    return steps[::-1]


class Interned(Generic[State]):
    """Numbers for values: the same number for equal ones."""

    def __init__(self) -> None:
        self._numbers: dict[State, int] = {}
        self.values: list[State] = []

    def number(self, value: State) -> int:
        """Return the number of a value, a new one for a new value."""
        found = self._numbers.get(value)
        if found is None:
            found = self._numbers[value] = len(self.values)
            self.values.append(value)
        return found
