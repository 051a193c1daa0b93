"""Where the CPU time of a user goes with one user a node: ``make bench-parts``.

The local engine's run of `benchmarks.run` under cProfile, which itself costs about as
much again: the shares count, the total is measured without it. What a library does is
put on whoever of ours called it. Threads (ledger, journal, the server's machine) are
not profiled; theirs is the CPU time of the process less that of the loop's thread.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from benchmarks.run import local
from wallflower.protocol.secure_sum.backends import SEALED

# The first that a file's path holds; the rest is Python, asyncio and libraries.
_PARTS = {
    "secure_sum/": "secure sum, both sides",
    "clients/node/ledger": "ledger, asking it",
    "clients/node/randomizer": "randomizer and noise",
    "clients/rewards": "rewards",
    "clients/node": "node: order of business",
    "clients/consent": "policy, calibration",
    "protocol/noise/table": "randomizer and noise",
    "protocol/noise/bits": "randomizer and noise",
    "protocol/noise": "policy, calibration",
    "protocol/privacy": "policy, calibration",
    "protocol/accounting": "policy, calibration",
    "protocol/rewards": "rewards",
    "protocol/identity": "secure sum, both sides",
    "strategy/transport": "port",
    "protocol/messages": "port",
    "strategy/store": "journal, asking it",
    "strategy/bandit": "decisions",
    "strategy/run": "orchestrator",
}
_REST = "Python, asyncio, libraries"


def part_of(path: str) -> str | None:
    """Name the part of a file of ours; None for others'."""
    if "wallflower/" not in path or "site-packages" in path:
        return None
    return next((name for key, name in _PARTS.items() if key in path), "other")


def shares(profile: cProfile.Profile) -> dict[str, float]:
    """Return the seconds of each part, libraries' own put on their callers."""
    found: defaultdict[str, float] = defaultdict(float)
    stats: Any = pstats.Stats(profile)
    for (path, _, name), (_, _, own, _, callers) in stats.stats.items():
        if name == "<method 'poll' of 'select.epoll' objects>":
            continue  # waiting
        part = part_of(path)
        if part is not None:
            found[part] += own
            continue
        for (caller, _, _), (_, _, theirs, _) in callers.items():
            found[part_of(caller) or _REST] += theirs
    return dict(found)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cohort", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--backend", default=SEALED)
    options = parser.parse_args()

    def run(folder: str) -> tuple[float, float]:
        here, began = time.thread_time(), time.process_time()
        row = asyncio.run(
            local(
                options.cohort, 1, options.rounds, Path(folder) / "r", options.backend
            )
        )
        assert row.cpu_ms_per_user is not None
        beside = time.process_time() - began - (time.thread_time() - here)
        return row.cpu_ms_per_user, beside / (time.process_time() - began)

    with tempfile.TemporaryDirectory(prefix="wf-bench-") as folder:
        total_ms, beside = run(folder)
    profile = cProfile.Profile()
    with tempfile.TemporaryDirectory(prefix="wf-bench-") as folder:
        profile.enable()
        run(folder)
        profile.disable()
    seconds = shares(profile)
    on_loop = total_ms * (1 - beside)
    print(f"{options.backend}, {options.cohort} users a cohort, one user a node")
    print("| part | CPU µs per user |")
    print("|---|---|")
    for name, own in sorted(seconds.items(), key=lambda one: -one[1]):
        print(f"| {name} | {1000 * on_loop * own / sum(seconds.values()):.0f} |")
    print(
        f"| threads of ledger and journal (SQLite) | {1000 * total_ms * beside:.0f} |"
    )
    print(f"| **all** | {1000 * total_ms:.0f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
