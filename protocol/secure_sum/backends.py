"""The secure-sum back-ends by name, and the modulus each works in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from wallflower.protocol.errors import InputError, nearest
from wallflower.protocol.numbers import whole
from wallflower.protocol.wire import secure_sum_pb2 as wire
from wallflower.protocol.wire.cohort_pb2 import CohortSpec

SECAGG_PLUS: Final = "secagg-plus"
SEALED: Final = "sealed"
SHUFFLE: Final = "shuffle"
BACKENDS: Final = (SECAGG_PLUS, SEALED, SHUFFLE)
LARGEST_MODULUS: Final = 2**62
MOST_USERS: Final = 2**32 - 1  # that one node may speak for


def check_backend(parameter: str, name: str) -> None:
    """Raise InputError with the near miss if no back-end has this name."""
    if name not in BACKENDS:
        near = nearest(name, BACKENDS)
        raise InputError(parameter, f'"{name}"{near}', f"one of {', '.join(BACKENDS)}")


def summing_modulus(spec: CohortSpec) -> int | None:
    """Return the modulus in which nodes add up; None where a sum is one of ℤ."""
    return None if spec.backend == SEALED else spec.modulus


def backend_modulus(backend: str, minimum: int) -> int:
    """Return the modulus a back-end uses where the mechanism needs at least `minimum`.

    `secagg-plus` works in any ℤ_m; `sealed` in ℤ itself, where m is the width of the
    window in which the sum is decoded; `shuffle` in powers of two.
    """
    check_backend("backend", backend)
    whole("modulus", minimum, at_least=2, at_most=LARGEST_MODULUS)
    return 1 << (minimum - 1).bit_length() if backend == SHUFFLE else minimum


# --- The stages of every protocol, and all that is true of each, in one table.
#
# Machines, deadlines, requests, restarts and clients read it; nothing about a stage is
# said a second time.


# Plain integers: looking one up in the generated enumeration costs more than a hash.
ADVERTISE: Final[int] = int(wire.STAGE_ADVERTISE)
SHARE: Final[int] = int(wire.STAGE_SHARE)
MASK: Final[int] = int(wire.STAGE_MASK)
CONFIRM: Final[int] = int(wire.STAGE_CONFIRM)
UNMASK: Final[int] = int(wire.STAGE_UNMASK)
ENLIST: Final[int] = int(wire.STAGE_ENLIST)
DEAL: Final[int] = int(wire.STAGE_DEAL)
CHECK: Final[int] = int(wire.STAGE_CHECK)
SEAL: Final[int] = int(wire.STAGE_SEAL)
OPEN: Final[int] = int(wire.STAGE_OPEN)
SUBMIT: Final[int] = int(wire.STAGE_SUBMIT)
RELEASE: Final[int] = int(wire.STAGE_RELEASE)


@dataclass(frozen=True, slots=True)
class StageFacts:
    """What is true of one stage.

    Attributes
    ----------
    number : on the wire.
    name : in requests, events and the spool.
    takes_reward : users pull the arm before it is answered, which may take hours.
    closed : who is in the sum is fixed; after a restart it is asked again, not anew.
    states_roster : its message says, and binds, who takes part.
    given_once : two different answers would tell too much; see `clients.node.ledger`.
    """

    number: int
    name: str
    takes_reward: bool = False
    closed: bool = False
    states_roster: bool = False
    given_once: bool = False


_TABLE: Final[Mapping[str, tuple[StageFacts, ...]]] = {
    SECAGG_PLUS: (
        StageFacts(ADVERTISE, "advertise", states_roster=True),
        # The shares are sealed with the number of users, so their rewards come first.
        StageFacts(SHARE, "share", takes_reward=True, states_roster=True),
        StageFacts(MASK, "mask", given_once=True),
        StageFacts(CONFIRM, "confirm", closed=True, given_once=True),
        StageFacts(UNMASK, "unmask", closed=True, given_once=True),
    ),
    SEALED: (
        StageFacts(ENLIST, "enlist", states_roster=True),
        StageFacts(DEAL, "deal", states_roster=True),
        StageFacts(CHECK, "check", states_roster=True),
        StageFacts(SEAL, "seal", takes_reward=True, states_roster=True),
        StageFacts(
            OPEN,
            "open",
            closed=True,
            states_roster=True,
            given_once=True,
        ),
    ),
    SHUFFLE: (
        StageFacts(SUBMIT, "submit", takes_reward=True, states_roster=True),
        # Asked of the shuffler, never of a node.
        StageFacts(RELEASE, "release", closed=True),
    ),
}

STAGES: Final[tuple[StageFacts, ...]] = tuple(
    stage for stages in _TABLE.values() for stage in stages
)
STAGE_NAMES: Final[Mapping[int, str]] = {stage.number: stage.name for stage in STAGES}
_BY_NAME: Final[Mapping[str, StageFacts]] = {stage.name: stage for stage in STAGES}


def stages_of(backend: str) -> Mapping[int, StageFacts]:
    """Return a back-end's stages by their numbers, in order."""
    return {stage.number: stage for stage in _TABLE[backend]}


def stage_named(name: str) -> StageFacts:
    """Return the stage of a name; no two back-ends share one."""
    return _BY_NAME[name]


def is_closed(name: str) -> bool:
    """Return whether a spooled stage, if it is one, comes after the set was closed."""
    return name in _BY_NAME and _BY_NAME[name].closed


def asks_once(backend: str) -> bool:
    """Return whether a node that only contributes gives one message a cohort.

    Not where the helpers of a cohort are its own nodes.
    """
    return backend in (SEALED, SHUFFLE)


def reward_stages() -> tuple[str, ...]:
    """Name the stages in which users pull the arm."""
    return tuple(stage.name for stage in STAGES if stage.takes_reward)
