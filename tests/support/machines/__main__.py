"""``make check-machines``: everything that can happen to the secure-sum machines.

Explores every world of `worlds.WORLDS`, then every planted bug. Says states,
transitions and seconds of each; exit code 1 where an invariant does not hold or a
planted bug is not found.
"""

from __future__ import annotations

import logging
import multiprocessing
import sys
import time

from tests.support.machines.plants import PLANTS
from tests.support.machines.worlds import WORLDS, Found, explore_world, find_plant


def _explore(job: tuple[str, str]) -> Found:
    logging.disable(logging.WARNING)
    kind, name = job
    return explore_world(name) if kind == "world" else find_plant(name)


def main(chosen: list[str]) -> int:
    """Explore all worlds and planted bugs, or those whose names hold a chosen text."""
    jobs = [("world", name) for name in WORLDS] + [("plant", name) for name in PLANTS]
    if chosen:
        jobs = [job for job in jobs if any(text in job[1] for text in chosen)]
    began, held, states, transitions = time.monotonic(), True, 0, 0
    with multiprocessing.Pool(2) as pool:
        for found in pool.imap(_explore, jobs):
            print(found.line, flush=True)
            held &= found.held
            states, transitions = states + found.states, transitions + found.transitions
    bugs = sum(kind == "plant" for kind, _ in jobs)
    print(
        f"{states:,} states, {transitions:,} transitions, {bugs} planted bugs, "
        f"{time.monotonic() - began:.0f} s"
    )
    print(f"check-machines: {'HELD' if held else 'BROKEN'}")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
