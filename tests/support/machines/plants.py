"""Bugs that are planted in the real machines, each of which must be found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from tests.support.machines import faults
from tests.support.machines.dealing_lies import SHOWN
from tests.support.machines.explore import World
from tests.support.machines.nodes import Laboratory
from tests.support.machines.settings import (
    NAMES,
    SessionParams,
    faulty_sums,
    lied_dealing,
    lied_plus,
    lied_sealed,
)
from wallflower.clients.node import ledger_tables, spends
from wallflower.clients.node.ledger import Ledger
from wallflower.clients.node.node import Node
from wallflower.clients.secure_sum import (
    sealed_dealing,
    secagg_plus,
)
from wallflower.clients.secure_sum.machine import ClientMachine
from wallflower.clients.secure_sum.sealed import SealedClient
from wallflower.protocol.secure_sum.backends import SEALED, SECAGG_PLUS
from wallflower.protocol.secure_sum.secagg_plus import read_survivors
from wallflower.protocol.wire.secure_sum_pb2 import SurvivorSet
from wallflower.protocol.wire.sum_state_pb2 import ServerState
from wallflower.strategy.secure_sum import secagg_plus as server_plus
from wallflower.strategy.secure_sum.machine import ServerMachine
from wallflower.strategy.secure_sum.unmasking import Unmasking

Patch = tuple[object, str, object]


class _Equal:
    """Equal to everything."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


async def _nothing(*_: object) -> None:
    return


async def _never(*_: object) -> bool:
    return False


def _everybody(_: object, nodes: int) -> int:
    return nodes


def _any_survivors(survivor_set: SurvivorSet, *_: object) -> dict[str, int] | None:
    return read_survivors(survivor_set)


def _forgetful(machine: ServerMachine, state: ServerState) -> None:
    _resume(machine, state)
    machine.lost = {}


_resume = ServerMachine.resume


@dataclass(frozen=True, slots=True)
class Plant:
    """A bug, what it breaks, and a world in which that shows."""

    name: str
    invariant: str
    patches: tuple[Patch, ...]
    world: Callable[[SessionParams], World[Any]]
    nodes: int = 4
    malicious: bool = True

    @contextmanager
    def planted(self) -> Iterator[World[Any]]:
        """Return the world with the bug in it."""
        with ExitStack() as stack:
            laboratory = stack.enter_context(Laboratory(malicious=self.malicious))
            setting = SessionParams.of(laboratory, self.nodes)
            for where, name, instead in self.patches:
                stack.enter_context(mock.patch.object(where, name, instead))
            yield self.world(setting)


def _sealed_once(setting: SessionParams) -> World[Any]:
    return lied_sealed(setting, (("a", 3),), (NAMES,), rows=False)


_PLANTS = (
    Plant(
        "a member opens a cohort as often as it is asked",
        faults.ONCE,
        (
            (Ledger, "has_answered", _never),
            (ledger_tables, "append_answer", lambda *_: None),
            (ClientMachine, "_stored_answer", lambda *_: None),
        ),
        _sealed_once,
    ),
    Plant(
        "a member opens a set whatever its quorum",
        faults.QUORUM,
        ((SealedClient, "_add_opened", SealedClient._add_verified),),
        lambda setting: lied_sealed(setting, (("a", 3),), (NAMES,)),
    ),
    Plant(
        "a node unmasks a set whatever its quorum",
        faults.QUORUM,
        ((secagg_plus, "check_survivors", _any_survivors),),
        lambda setting: lied_plus(setting, (("a", 4),), (NAMES[:3],)),
    ),
    Plant(
        "a node gives both kinds of share of a neighbour",
        faults.QUORUM,
        ((secagg_plus, "check_unmask", lambda **_: None),),
        lambda setting: lied_plus(setting, (("a", 3),), (NAMES[:3],)),
        nodes=3,
    ),
    Plant(
        "the ledger lets a person take part as often as asked",
        faults.TWICE,
        ((spends, "check_user", lambda *_: None),),
        lambda setting: lied_sealed(setting, (("a", 4), ("b", 4)), (NAMES,)),
    ),
    Plant(
        "an answer leaves before its claim is written",
        faults.ROWS,
        ((Node, "_record_answer", _nothing),),
        lambda setting: lied_sealed(setting, (("a", 3),), (NAMES,)),
    ),
    Plant(
        "an answer leaves before its spend is written",
        faults.ROWS,
        ((Ledger, "spend", _nothing),),
        lambda setting: faulty_sums(setting, SECAGG_PLUS, cohorts=1, crashes=0),
        nodes=3,
        malicious=False,
    ),
    Plant(
        "the server gives a sum up though enough nodes are there",
        faults.ENDS,
        ((server_plus, "least_contributors", _everybody),),
        lambda setting: faulty_sums(setting, SECAGG_PLUS, cohorts=1, crashes=0),
        malicious=False,
    ),
    Plant(
        "a restarted server forgets who is out",
        faults.ALIKE,
        ((ServerMachine, "resume", _forgetful),),
        lambda setting: faulty_sums(setting, SEALED, cohorts=2, crashes=0),
        nodes=3,
        malicious=False,
    ),
    Plant(
        "the masks of a node that vanished stay in the sum",
        faults.RIGHT,
        ((Unmasking, "_pair_masks", lambda *_: 0),),
        lambda setting: faulty_sums(setting, SECAGG_PLUS, cohorts=1, crashes=0),
        malicious=False,
    ),
    Plant(
        "a member takes a seal that the dealer did not sign",
        SHOWN,
        ((sealed_dealing, "rest_of", lambda *_: _Equal()),),
        lambda setting: lied_dealing(setting, (NAMES[:3],)),
        nodes=3,
    ),
)


PLANTS: Mapping[str, Plant] = {plant.name: plant for plant in _PLANTS}
