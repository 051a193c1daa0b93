"""Secure sums against Flower's stock SecAgg+: whole protocol, all parties, one process.

``make bench-secagg``. Every figure is users per second of CPU time (all parties' work
added up, so per core), bytes per user up and down, and the ratio to the stock SecAgg+
measured in the same run. No network here; `benchmarks.desk` measures with one.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from fractions import Fraction

from wallflower.clients.secure_sum import ClientKeyring, ClientLimits, client_session
from wallflower.protocol.cohort import cohort_mechanism, to_rational
from wallflower.protocol.privacy.mechanism import mechanism_named
from wallflower.protocol.secure_sum.context import draw_order
from wallflower.protocol.secure_sum.sealed.committee import dealing_spec
from wallflower.protocol.secure_sum.session import (
    Ask,
    ClientSession,
    Contribution,
    Dealt,
    SecureSum,
    Step,
)
from wallflower.protocol.secure_sum.threat import Threat, committee_size
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.strategy.secure_sum import (
    ServerKeyring,
    backend_modulus,
    server_session,
)

TENTH = Fraction(1, 10)
THREAT = Threat(TENTH, TENTH)
RUN = "bench"
LARGE = 65_536  # only sealed sums: what a node pays must not grow


@dataclass(frozen=True)
class Row:
    """One measured line."""

    nodes: int
    what: str
    users_per_core_second: float
    up_bytes_per_user: float
    down_bytes_per_user: float
    ratio: float | None = None


@dataclass
class Traffic:
    """Bytes of all messages of a session."""

    up: int = 0
    down: int = 0


@dataclass
class Parties:
    """Nodes with one user each, and the keys they keep for the run."""

    nodes: int

    def __post_init__(self) -> None:
        self.users = {f"node-{index:05d}": 1 for index in range(self.nodes)}
        self.rings = {party: ClientKeyring(RUN) for party in self.users}
        self.server_ring = ServerKeyring(RUN)

    def spec(self, backend: str, cohort_id: str) -> CohortSpec:
        """Describe a cohort of dist-dp at ε = 1, as an experiment would.

        Modular back-ends get integers of about 31 bits: their cost does not depend on
        it. A sealed sum is decoded in its mechanism's own window.
        """
        floor = max(1, self.nodes * 8 // 10)
        mechanism = mechanism_named("dist-dp", Fraction(1)).for_cohort(
            self.nodes, floor, Fraction(1, 10**6)
        )
        sealed = backend == "sealed"
        modulus = mechanism.modulus if sealed else 2_000_000_011
        return CohortSpec(
            run_id=RUN,
            batch=1,
            arm=0,
            cohort_id=cohort_id,
            mechanism="dist-dp",
            epsilon=to_rational(Fraction(1)),
            scale=to_rational(Fraction(10)),
            wrap_probability=to_rational(Fraction(1, 10**6)),
            cohort_size=self.nodes,
            honest_floor=floor,
            quorum=max(2, floor),
            backend=backend,
            modulus=backend_modulus(backend, modulus),
            threat=THREAT.to_wire(),
            proved_inputs=sealed and cohort_id.startswith("proved"),
        )

    def value(self, spec: CohortSpec, index: int) -> int:
        """What a node sends: a residue, or an encoded reward of a sealed sum."""
        if spec.backend != "sealed":
            return (index * 7919 + 13) % spec.modulus
        return index % (cohort_mechanism(spec).precision + 1)

    def deal(self) -> Traffic:
        """Deal the run's key, as the first cohort of a run does."""
        spec = dealing_spec(RUN, "dealing", THREAT, self.users)
        step, traffic = self._play(spec, {})
        if not isinstance(step, Dealt):
            raise RuntimeError(f"no key was dealt: {step}")
        return traffic

    def agree(self, spec: CohortSpec) -> None:
        """Let every node already know the keys of this cohort's committee."""
        server = server_session(spec, self.users, keyring=self.server_ring)
        step = server.start()
        assert isinstance(step, Ask)
        context = server.context  # type: ignore[attr-defined]
        drawn = draw_order(context, list(self.users))
        members = drawn[: committee_size(THREAT, self.nodes).helpers]
        for member in members:
            own = self.rings[member].own_key()
            announcement = self.rings[member].announcement(own, "", member, None)
            self.server_ring.remember(member, announcement.SerializeToString())
            for party, ring in self.rings.items():
                ring.pair(ring.own_key(), own.public)
                self.rings[member].pair(own, self.rings[party].own_key().public)

    def measure(
        self, backend: str, cohort_id: str, what: str, *, dealing: bool = False
    ) -> Row:
        """Run one cohort from start to sum, its key's dealing included, and check."""
        spec = self.spec(backend, cohort_id)
        values = {p: self.value(spec, i) for i, p in enumerate(self.users)}
        settle()
        begin = time.process_time()
        dealt = self.deal() if dealing else Traffic()
        step, traffic = self._play(spec, values)
        seconds = time.process_time() - begin
        gc.enable()
        if not isinstance(step, SecureSum):
            raise RuntimeError(f"the cohort was void: {step}")
        if step.total != sum(values.values()) % spec.modulus:
            raise RuntimeError("the sum is wrong")
        return Row(
            self.nodes,
            what,
            self.nodes / seconds,
            (dealt.up + traffic.up) / self.nodes,
            (dealt.down + traffic.down) / self.nodes,
        )

    def _play(self, spec: CohortSpec, values: dict[str, int]) -> tuple[Step, Traffic]:
        """Carry a session out; a stage ends when its server has what it needs."""
        server = server_session(spec, self.users, keyring=self.server_ring)
        clients: dict[str, ClientSession] = {}
        traffic = Traffic()
        step = server.start()
        while isinstance(step, Ask):
            for party, body in step.messages.items():
                client = clients.get(party)
                if client is None:
                    client = clients[party] = client_session(
                        spec, party, None, None, ClientLimits(), self.rings[party]
                    )
                needed = client.needs_contribution(body)
                value = Contribution(values[party], 1) if needed else None
                answer = client.handle(body, value)
                server.receive(party, answer)
                traffic.up += len(answer)
                traffic.down += len(body)
                if server.stage_complete:
                    break
            step = server.advance()
        return step, traffic


def settle() -> None:
    """Collect garbage now and not while the clock runs, as `timeit` does."""
    gc.collect()
    gc.disable()


def best(rows: Iterator[Row]) -> Row:
    """Keep the fastest of several repetitions: the machine is shared."""
    return max(rows, key=lambda row: row.users_per_core_second)


def ours(nodes: int, repeats: int) -> list[Row]:
    """Every back-end with fresh keys, and with the keys that later cohorts find."""
    rows = [
        best(
            Parties(nodes).measure(
                backend, f"fresh-{index}", what, dealing=backend == "sealed"
            )
            for index in range(repeats)
        )
        for backend, what in (
            ("secagg-plus", "secagg-plus"),
            ("committee", "committee"),
            ("sealed", "sealed, the run's key dealt for it"),
        )
    ]
    known = Parties(nodes)
    # A cohort with known keys takes a tenth of a second: more of them find a quiet one.
    cohorts = [f"known-{index}" for index in range(repeats * repeats)]
    for cohort in cohorts:
        known.agree(known.spec("committee", cohort))
    rows.append(
        best(
            known.measure("committee", cohort, "committee, cached keys")
            for cohort in cohorts
        )
    )
    return [*rows, *sealed(nodes, repeats)]


def sealed(nodes: int, repeats: int) -> list[Row]:
    """Sealed sums of a run that has its key: inputs trusted, inputs proved."""
    parties = Parties(nodes)
    parties.deal()
    return [
        best(
            parties.measure("sealed", f"{kind}-{index}", f"sealed, {kind}")
            for index in range(repeats)
        )
        for kind in ("trusted", "proved")
    ]


def stock(nodes: int) -> Row:
    """Flower's workflow and client mod at the sizes our graph formula gives."""
    from benchmarks.stock_secagg import StockGrid, run_stock

    shares, threshold = {8: (1.0, 5), 32: (9, 5), 128: (27, 14)}[nodes]
    values = {index + 1: index / nodes for index in range(nodes)}
    settle()
    begin = time.process_time()
    mean = run_stock(StockGrid(values), shares, threshold)
    seconds = time.process_time() - begin
    gc.enable()
    if mean is None or abs(mean - sum(values.values()) / nodes) > 1e-3:
        raise RuntimeError("the stock SecAgg+ gave no mean, or a wrong one")
    counted = StockGrid(values, count_bytes=True)
    if nodes <= 32:
        run_stock(counted, shares, threshold)
    return Row(
        nodes,
        "Flower stock SecAgg+",
        nodes / seconds,
        counted.up_bytes / nodes,
        counted.down_bytes / nodes,
    )


def in_process(with_stock: list[int], alone: list[int]) -> Iterator[Row]:
    """Measure everything that needs no network."""
    for nodes in with_stock:
        base = stock(nodes)
        yield base
        for row in ours(nodes, repeats=5):
            ratio = row.users_per_core_second / base.users_per_core_second
            yield Row(**{**asdict(row), "ratio": ratio})
    for nodes in alone:
        yield from ours(nodes, repeats=1) if nodes < LARGE else sealed(nodes, 1)


def main() -> int:
    """Print the table, or one JSON envelope."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--format", choices=("human", "json"), default="human")
    parser.add_argument("--quick", action="store_true", help="n = 8 and 32 only")
    options = parser.parse_args()
    rows = []
    parts = [in_process([8, 32] if options.quick else [8, 32, 128], [])]
    if not options.quick:
        parts.append(in_process([], [1024, 8192, LARGE]))
    for part in parts:
        for row in part:
            rows.append(row)
            print(_line(row), file=sys.stderr, flush=True)
    if options.format == "json":
        envelope = {
            "schema_version": 1,
            "command": "bench-secagg",
            "rows": [asdict(row) for row in rows],
        }
        print(json.dumps(envelope))
    else:
        print("| n | what | users/s/core | bytes up | bytes down | × stock |")
        print("|---|---|---|---|---|---|")
        for row in rows:
            print(_line(row))
    return 0


def _line(row: Row) -> str:
    ratio = "" if row.ratio is None else f"{row.ratio:.0f}×"
    up, down = (
        f"{count:.0f}" if count else "not counted"
        for count in (row.up_bytes_per_user, row.down_bytes_per_user)
    )
    return (
        f"| {row.nodes} | {row.what} | {row.users_per_core_second:.1f} "
        f"| {up} | {down} | {ratio} |"
    )


if __name__ == "__main__":
    sys.exit(main())
