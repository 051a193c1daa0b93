"""What one more node costs the server: ``make bench-grpc``.

One gRPC server per size, each in a process of its own, nodes with one user each; whole
cohorts through loopback gRPC with TLS. CPU time, not wall time: the machine may be
shared. The first cohort of a size agrees on keys and is left out. Memory per node is
the slope between the smallest and the largest size. A node's work for a user is the
same at every size, so that its CPU time beside the server's shows how fast the machine
was meanwhile.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from statistics import mean

_TOLERANCE = 0.2


@dataclass(frozen=True)
class Size:
    """One size of gRPC server, measured."""

    nodes: int
    server_cpu_s_per_1000_users: float
    nodes_cpu_s_per_1000_users: float
    memory_mib: float


def measured(nodes: int, backend: str, cohorts: int) -> Size:
    """Run the gRPC server benchmark in a process of its own."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.grpc_server"]
    command += ["--format", "json", "--backend", backend]
    command += ["--nodes", str(nodes), "--cohorts", str(cohorts)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    rows = json.loads(done.stdout)["rows"][1:]
    cpu_s = mean(row["server_cpu_s"] for row in rows)
    nodes_cpu_s = mean(row["nodes_cpu_s"] for row in rows)
    return Size(
        nodes,
        1000 * cpu_s / nodes,
        1000 * nodes_cpu_s / nodes,
        rows[-1]["memory_mib"],
    )


def main() -> int:
    """Print the table; exit code 1 where the cost is not flat."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="1000,4000,8000")
    parser.add_argument("--backend", default="sealed")
    parser.add_argument("--cohorts", type=int, default=4)
    options = parser.parse_args()
    print("| nodes | server CPU s per 1,000 users | nodes' | server ÷ nodes | MiB |")
    print("|---|---|---|---|---|", flush=True)
    sizes = []
    for nodes in options.sizes.split(","):
        size = measured(int(nodes), options.backend, options.cohorts)
        sizes.append(size)
        cpu_s, mib = size.server_cpu_s_per_1000_users, size.memory_mib
        theirs_s = size.nodes_cpu_s_per_1000_users
        print(
            f"| {size.nodes:,} | {cpu_s:.3f} | {theirs_s:.2f} | {cpu_s / theirs_s:.3f} "
            f"| {mib:.0f} |",
            flush=True,
        )
    first, last = sizes[0], sizes[-1]
    costs = [size.server_cpu_s_per_1000_users for size in sizes]
    spread = max(costs) / min(costs) - 1
    more = max(1, last.nodes - first.nodes)
    kib = 1024 * (last.memory_mib - first.memory_mib) / more
    word = "flat" if spread <= _TOLERANCE else "NOT FLAT"
    print(
        f"{word}: spread {spread:.0%} (at most {_TOLERANCE:.0%}); {kib:.0f} KiB a node"
    )
    return 0 if spread <= _TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
