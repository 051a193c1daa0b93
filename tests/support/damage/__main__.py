"""Many damaged run directories: ``python -m tests.support.damage FIRST COUNT``.

Prints how every command ended. A traceback, or exit code 0 with another output than
that of the undamaged directory, is printed with its seed, and the exit code is 1.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.support.damage.judge import Bench
from tests.support.damage.specimens import make_specimens


def soak(first: int, count: int) -> int:
    """Judge `count` damaged directories, print what was found; return the exit code."""
    ends: Counter[str] = Counter()
    broken = []
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(*make_specimens(Path(folder)))
        for seed in range(first, first + count):
            for verdict in bench.judge(seed):
                ends[f"{verdict.command}: exit {verdict.result.code}"] += 1
                if verdict.problem:
                    broken.append(verdict)
                    output = (
                        verdict.result.traceback[-600:] or verdict.result.text[-600:]
                    )
                    print(
                        f"seed {seed}, {verdict.damage}\n  {verdict.command}: "
                        f"{verdict.problem} (exit {verdict.result.code})\n{output}\n"
                        f"{verdict.result.errors[-300:]}",
                        flush=True,
                    )
    for end, often in sorted(ends.items()):
        print(f"{end}: {often}")
    tracebacks = sum(one.problem == "traceback" for one in broken)
    print(
        f"{count} damaged directories, {sum(ends.values())} commands: {tracebacks} "
        f"tracebacks, {len(broken) - tracebacks} other wrong endings"
    )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(soak(int(sys.argv[1]), int(sys.argv[2])))
