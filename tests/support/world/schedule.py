"""What goes wrong in a world, and when: everything follows from the seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

SERVER, EVERY_NODE, SHUFFLER = "server", "every-node", "shuffler"
GRPC, LOCAL = "server", "local"
# When faults begin: an undisturbed run takes about three seconds.
_WINDOWS_S = (3.0, 3.0, 6.0, 25.0)

# Faults of messages, by the name of their probability in `Faults`.
MESSAGE_FAULTS = ("lose_request", "lose_answer", "duplicate", "replay", "delay")
REWARD_FAULTS = ("slow-rewards", "blocking-rewards", "endless-rewards")
KINDS = (
    "killed",
    "power-cut",
    "torn-write",
    "stopped",
    "partition",
    "flap",
    "half-open",
    "disk-full",
    *REWARD_FAULTS,
    *MESSAGE_FAULTS,
)
# In a list of kinds this word puts a shuffler into every world, and faults of its own.
SHUFFLE = "shuffle"
# A process dies when so many cohorts were claimed, or shuffled batches have left.
PHASE_FAULTS = ("killed-at-claim", "killed-at-release")
SHUFFLER_FAULTS = ("killed", "power-cut", "stopped", *PHASE_FAULTS)


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong.

    Attributes
    ----------
    kind : one of `KINDS`, or of `PHASE_FAULTS`.
    at : seconds after the start; for a torn write, which of the target's writes; in a
        phase, how often that was reached.
    target : ``server``, ``every-node``, ``shuffler`` or a node's name.
    lasts : seconds until it is over, a dead process started again.
    share : of the users or messages that it strikes.
    """

    kind: str
    at: float = 0.0
    target: str = SERVER
    lasts: float = 0.0
    share: float = 0.0


@dataclass(frozen=True, slots=True)
class Schedule:
    """One world: its size, and its faults."""

    seed: int
    transport: str
    backend: str
    server: str
    nodes: int
    users: int
    arms: int
    first_batch: int
    dropout: str
    gap: int  # between the best arm and the worst, in units of 1/1024
    blocking: bool  # rewards come from a plain function in a thread, not a coroutine
    faults: tuple[Fault, ...]

    def only(self, faults: Sequence[Fault]) -> Schedule:
        """Return the same world with these faults alone."""
        return replace(self, faults=tuple(faults))

    @property
    def quiet_at(self) -> float:
        """When everything that can pass has passed; torn writes are put at the end."""
        return _WINDOWS_S[-1] + max((f.lasts for f in self.faults), default=0.0)


def node_names(count: int) -> tuple[str, ...]:
    """Name the nodes."""
    return tuple(f"node-{number}" for number in range(count))


def drawn(seed: int, kinds: Sequence[str] = KINDS) -> Schedule:
    """Draw a world and what goes wrong in it; `kinds` are the faults that may occur."""
    if SHUFFLE in kinds:
        others = tuple(kind for kind in kinds if kind != SHUFFLE)
        return _shuffled(drawn(seed, others or KINDS))
    source = random.Random(f"world {seed}")
    nodes = source.randint(4, 7)
    transport = source.choice((GRPC, GRPC, LOCAL))
    faults = [
        _fault(source, source.choice(kinds), node_names(nodes), transport)
        for _ in range(source.choice((1, 2, 3, 4, 6, 8)))
    ]
    blocking = any(f.kind in ("blocking-rewards", "endless-rewards") for f in faults)
    return Schedule(
        seed=seed,
        transport=transport,
        backend=source.choice(("sealed", "secagg-plus")),
        server=source.choice(("semi-honest", "malicious")),
        nodes=nodes,
        users=source.choice((20, 40, 56)),
        arms=source.choice((2, 2, 3)),
        first_batch=source.choice((8, 12, 20)),
        dropout=source.choice(("1/10", "1/4", "1/3")),
        gap=source.choice((120, 240, 400)),
        blocking=blocking or source.random() < 0.3,
        faults=tuple(faults),
    )


def _fault(
    source: random.Random, kind: str, names: Sequence[str], transport: str
) -> Fault:
    at = round(source.uniform(0.0, source.choice(_WINDOWS_S)), 3)
    lasts = round(source.choice((0.2, 1.0, 5.0, 20.0, 90.0)) * source.random(), 3)
    share = source.choice((0.02, 0.08, 0.3))
    someone = source.choice((SERVER, source.choice(names)))
    if kind in MESSAGE_FAULTS:
        return Fault(kind, share=share)
    if kind in REWARD_FAULTS:
        return Fault(kind, lasts=0.0, share=share)
    if kind in ("partition", "flap", "half-open"):
        crowd = source.choice((source.choice(names), source.choice(names), EVERY_NODE))
        return Fault(kind, at, crowd, lasts)
    if transport == LOCAL:
        someone = SERVER  # the one process there is
    if kind == "torn-write":
        return Fault(kind, float(source.randint(1, 30)), someone, lasts)
    return Fault(kind, at, someone, lasts)


def _shuffled(world: Schedule) -> Schedule:
    """Send a world's sums through a shuffler, which fails beside everything else."""
    source = random.Random(f"shuffled world {world.seed}")
    faults = list(world.faults)
    for _ in range(source.choice((1, 1, 2, 3))):
        kind = source.choice(SHUFFLER_FAULTS)
        at = round(source.uniform(0.0, source.choice(_WINDOWS_S)), 3)
        lasts = round(source.choice((0.2, 1.0, 5.0, 20.0)) * source.random(), 3)
        target = SHUFFLER
        if kind in PHASE_FAULTS:
            at = float(source.randint(1, 4))
            target = source.choice((SHUFFLER, SHUFFLER, SERVER))
        faults.append(Fault(kind, at, target, lasts))
    return replace(world, backend=SHUFFLE, faults=tuple(faults))
