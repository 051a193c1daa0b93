"""Seeded schedules of faults over real secure sums, in virtual time.

``python -m tests.support.fault_schedules FIRST COUNT`` runs many on all processors.
"""

from __future__ import annotations

import logging
import multiprocessing
import random
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.support.faulty_transport import Faults, FaultyTransport
from tests.support.secure_sums import NODE_BACKENDS
from tests.support.sum_nodes import Sum, SumNode, exact, one_hot
from tests.support.virtual_time import run_virtually
from wallflower.protocol.secure_sum.session import SecureSum, Void
from wallflower.strategy.transport.memory import MemoryTransport

DEADLINE_S = 30.0


@dataclass
class Tally:
    """What happened over many schedules."""

    sums: int = 0
    voids: Counter[str] = field(default_factory=Counter)
    injected: Counter[str] = field(default_factory=Counter)
    lost_parties: int = 0

    def __str__(self) -> str:
        voids = ", ".join(f"{code} {count}" for code, count in self.voids.most_common())
        faults = ", ".join(f"{k} {n}" for k, n in sorted(self.injected.items()))
        return (
            f"{self.sums} exact sums ({self.lost_parties} parties lost on the way), "
            f"{self.voids.total()} voids [{voids}]; injected: {faults}"
        )


async def one_schedule(seed: int) -> tuple[SecureSum | Void, dict[str, int], int]:
    """Run two cohorts of a run, one after the other, under one climate."""
    source = random.Random(f"schedule {seed}")
    backend = source.choice(sorted(NODE_BACKENDS))
    nodes = one_hot(source.randint(2, 16))
    # Delays up to twice the deadline: some answers are late, some just in time.
    climate = Faults.drawn(seed, delay_s=2 * DEADLINE_S)
    port = FaultyTransport(MemoryTransport(nodes), climate, seed)
    first = Sum(nodes, backend, "c1", deadline_s=DEADLINE_S)
    outcome = await first.run(port)
    _check(seed, nodes, outcome)
    second = Sum(nodes, backend, "c2", deadline_s=DEADLINE_S, keyring=first.keyring)
    _check(seed, nodes, await second.run(port))
    return outcome, port.injected, len(nodes)


def _check(seed: int, nodes: dict[str, SumNode], outcome: SecureSum | Void) -> None:
    if isinstance(outcome, Void):
        assert outcome.code, f"seed {seed}: void without a reason"
        assert outcome.detail, f"seed {seed}: void without a reason"
        return
    assert len(set(outcome.survivors)) == len(outcome.survivors), f"seed {seed}"
    assert set(outcome.survivors) <= set(nodes), f"seed {seed}"
    assert outcome.users == len(outcome.survivors), f"seed {seed}"
    assert outcome.total == exact(nodes, outcome), f"seed {seed}: wrong sum"


def run_schedules(seeds: Iterable[int]) -> Tally:
    """Run schedules; raises AssertionError or HangError naming the first bad seed."""
    tally = Tally()
    for seed in seeds:
        try:
            outcome, injected, parties = run_virtually(one_schedule(seed))
        except AssertionError:
            raise
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}") from error
        tally.injected.update(injected)
        if isinstance(outcome, Void):
            tally.voids[outcome.code] += 1
        else:
            tally.sums += 1
            tally.lost_parties += parties - len(outcome.survivors)
    return tally


def main(first: int, count: int) -> None:
    """Run `count` schedules from seed `first` and print what happened."""
    logging.disable(logging.WARNING)
    chunks = [
        range(start, min(start + 100, first + count))
        for start in range(first, first + count, 100)
    ]
    whole = Tally()
    with multiprocessing.Pool() as pool:
        for tally in pool.imap_unordered(run_schedules, chunks):
            whole.sums += tally.sums
            whole.lost_parties += tally.lost_parties
            whole.voids.update(tally.voids)
            whole.injected.update(tally.injected)
    print(f"schedules {first} to {first + count - 1}: {whole}")
    assert whole.sums + whole.voids.total() == count


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
