"""Many worlds: ``python -m tests.support.world.soak FIRST COUNT [KIND,KIND…]``.

Prints which faults were injected how often and how runs ended. A world in which
something that must hold does not is run again with fewer and fewer faults, and the
shortest schedule that still breaks it is printed.
"""

from __future__ import annotations

import logging
import multiprocessing
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from tests.support.world.schedule import KINDS, Fault, Schedule, drawn
from tests.support.world.simulation import Outcome, simulate

_CHUNK = 10


@dataclass
class Tally:
    """What happened over many worlds."""

    worlds: int = 0
    starts: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    settings: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Count one world."""
        schedule = outcome.schedule
        self.worlds += 1
        self.starts += outcome.starts
        self.faults.update(outcome.injected)
        self.ends[f"{outcome.ended}: {outcome.reason or 'resumable'}"] += 1
        self.settings.update((schedule.transport, schedule.backend, schedule.server))
        if outcome.broken:
            self.failures.append(report(outcome))

    def merge(self, other: Tally) -> None:
        """Add another tally to this one."""
        self.worlds += other.worlds
        self.starts += other.starts
        self.faults.update(other.faults)
        self.ends.update(other.ends)
        self.settings.update(other.settings)
        self.failures += other.failures

    def __str__(self) -> str:
        return "\n".join(
            (
                f"{self.worlds} worlds ({_counts(self.settings)}), "
                f"{self.starts} starts of a server",
                f"faults injected: {_counts(self.faults)}",
                f"runs ended: {_counts(self.ends)}",
                f"broken: {len(self.failures)}",
            )
        )


def run_worlds(seeds: Iterable[int], kinds: Sequence[str] = KINDS) -> Tally:
    """Run worlds, one after the other."""
    tally = Tally()
    for seed in seeds:
        tally.add(simulate(drawn(seed, kinds)))
    return tally


def report(outcome: Outcome) -> str:
    """Say what broke and print the shortest schedule that breaks it the same way."""
    kind = _kind(outcome.broken[0])

    def breaks(schedule: Schedule) -> bool:
        return any(_kind(found) == kind for found in simulate(schedule).broken)

    short = shrunk(outcome.schedule, breaks)
    found = simulate(short).broken
    return "\n".join(
        (
            f"seed {outcome.schedule.seed}: {'; '.join(found[:3])}",
            f"  {short.only(())}",
            *(f"  {fault}" for fault in short.faults),
        )
    )


def shrunk(schedule: Schedule, breaks: Callable[[Schedule], bool]) -> Schedule:
    """Leave out faults, large parts first, as long as the schedule still breaks."""
    faults: tuple[Fault, ...] = schedule.faults
    size = max(1, len(faults) // 2)
    while size:
        start = 0
        while start < len(faults):
            fewer = faults[:start] + faults[start + size :]
            if breaks(schedule.only(fewer)):
                faults = fewer
            else:
                start += size
        size //= 2
    return schedule.only(faults)


def _kind(broken: str) -> str:
    """Return the kind of a breakage: words without numbers and names."""
    return " ".join(word for word in broken.split() if word.isalpha())


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


def _work(task: tuple[range, Sequence[str]]) -> Tally:
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    return run_worlds(*task)


def main(first: int, count: int, kinds: Sequence[str] = KINDS) -> int:
    """Run `count` worlds from seed `first`; 1 if anything broke."""
    last = first + count
    parts = [range(n, min(n + _CHUNK, last)) for n in range(first, last, _CHUNK)]
    whole = Tally()
    with multiprocessing.Pool() as pool:
        for tally in pool.imap_unordered(_work, [(part, kinds) for part in parts]):
            whole.merge(tally)
    print(f"seeds {first} to {last - 1}: {whole}")
    for failure in whole.failures[:10]:
        print(failure)
    return 1 if whole.failures else 0


if __name__ == "__main__":
    given = sys.argv[3].split(",") if len(sys.argv) > 3 else KINDS
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), given))
