"""The worlds that are explored, by name, and what is said of each."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.machines.explore import FoundError, World, explore
from tests.support.machines.lies import LieWorld
from tests.support.machines.nodes import Laboratory
from tests.support.machines.plants import PLANTS
from tests.support.machines.settings import (
    NAMES,
    SessionParams,
    faulty_dealing,
    faulty_sums,
    lied_dealing,
    lied_plus,
    lied_sealed,
)
from wallflower.protocol.secure_sum.backends import SEALED, SECAGG_PLUS

_TRIPLES = tuple(itertools.combinations(NAMES, 3))
_PAIRS = tuple(itertools.combinations(NAMES[:3], 2))


@dataclass(frozen=True, slots=True)
class Description:
    """How a world is made."""

    world: Callable[[SessionParams], World[Any]]
    nodes: int
    malicious: bool = True
    hosted: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """What an exploration found, in a line."""

    line: str
    held: bool
    states: int = 0
    transitions: int = 0


def _faults(
    name: str, make: Callable[[SessionParams], World[Any]], nodes: int
) -> dict[str, Description]:
    """Explore a bad network with both kinds of node, with and without enrolment."""
    return {
        f"{name}, {server} server, {kind} nodes": Description(
            make, nodes, malicious, hosted
        )
        for server, malicious in (("believed", False), ("watched", True))
        for kind, hosted in (("stored", False), ("hosted", True))
    }


WORLDS: Mapping[str, Description] = {
    **_faults("bad network: key of 3", lambda s: faulty_dealing(s, crashes=1), 3),
    **_faults(
        "bad network: sealed sum of 4",
        lambda s: faulty_sums(s, SEALED, cohorts=1, crashes=1),
        4,
    ),
    **_faults(
        "bad network: two sealed sums of 3",
        lambda s: faulty_sums(s, SEALED, cohorts=2, crashes=1),
        3,
    ),
    **_faults(
        "bad network: secagg-plus sum of 4",
        lambda s: faulty_sums(s, SECAGG_PLUS, cohorts=1, crashes=1),
        4,
    ),
    "lying server: key of 3": Description(
        lambda s: lied_dealing(s, (NAMES[:3], *_PAIRS)), 3
    ),
    "lying server: key of 2, every node ends": Description(
        lambda s: lied_dealing(s, (NAMES[:2],), crashes=2), 2
    ),
    "lying server: sealed sum of 4": Description(
        lambda s: lied_sealed(
            s, (("a", 3), ("a", 2)), (NAMES, *_TRIPLES[:1]), crashes=0
        ),
        4,
    ),
    "lying server: sealed sum of 4, every node ends": Description(
        lambda s: lied_sealed(s, (("a", 3),), (NAMES,), crashes=4), 4
    ),
    "lying server: two sealed sums of 4": Description(
        lambda s: lied_sealed(s, (("a", 3), ("b", 3)), (NAMES,), crashes=1), 4
    ),
    "lying server: secagg-plus sum of 2, begun again": Description(
        lambda s: lied_plus(s, (("a", 2),), (NAMES[:2],), again=1), 2
    ),
    "lying server: secagg-plus sum of 3, shares mixed up": Description(
        lambda s: lied_plus(s, (("a", 2),), (NAMES[:3],), garbled=True), 3
    ),
    "lying server: two secagg-plus sums of 3": Description(
        lambda s: lied_plus(s, (("a", 3), ("b", 3)), (NAMES[:3],)), 3
    ),
}

# What `make test` explores: the same in a few seconds.
SMALL_WORLDS: Mapping[str, Description] = {
    "bad network: key of 2": Description(
        lambda s: faulty_dealing(s, crashes=2), 2, hosted=True
    ),
    "bad network: sealed sum of 3": Description(
        lambda s: faulty_sums(s, SEALED, cohorts=1, crashes=1), 3
    ),
    "bad network: secagg-plus sum of 3": Description(
        lambda s: faulty_sums(s, SECAGG_PLUS, cohorts=1, crashes=1), 3, malicious=False
    ),
    "lying server: key of 2": Description(lambda s: lied_dealing(s, (NAMES[:2],)), 2),
    "lying server: sealed sum of 4": Description(
        lambda s: lied_sealed(s, (("a", 3),), (NAMES,)), 4
    ),
    "lying server: secagg-plus sum of 3": Description(
        lambda s: lied_plus(s, (("a", 3),), (NAMES[:3],)), 3
    ),
}


def explore_world(name: str, worlds: Mapping[str, Description] = WORLDS) -> Found:
    """Explore one world."""
    made = worlds[name]
    with Laboratory(malicious=made.malicious) as laboratory:
        world = made.world(SessionParams.of(laboratory, made.nodes, hosted=made.hosted))
        try:
            explored = explore(world)
            if isinstance(world, LieWorld):
                world.check_silent()
        except FoundError as found:
            return Found(f"{name}: BROKEN\n{found}", held=False)
    states, transitions = len(explored.seen), explored.transitions
    line = (
        f"{name}: {states:,} states, {transitions:,} transitions, "
        f"{explored.seconds:.0f} s"
    )
    return Found(line, True, states, transitions)


def find_plant(name: str) -> Found:
    """Explore a world with a planted bug until it is found."""
    plant = PLANTS[name]
    with plant.planted() as world:
        try:
            explored = explore(world)
        except FoundError as found:
            way = f"after {len(found.path)} steps: {found.violation}"
            right = found.violation.invariant == plant.invariant
            word = "found" if right else "FOUND AS SOMETHING ELSE"
            return Found(f"planted: {name}: {word} {way}", right)
    missed = f"planted: {name}: NOT FOUND in {len(explored.seen):,} states"
    return Found(missed, held=False)
