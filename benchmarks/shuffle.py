"""Shuffled sums measured: ``make bench-shuffle``.

Messages and bytes of one user alone on a node, as they stand on the wire; seconds of
one core for a node and the shuffler; users a second through a shuffler of its own
process, with TLS and all; and the regret of `shuffle-dp` beside `dist-dp`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from fractions import Fraction
from pathlib import Path

import psutil

from benchmarks.report import Row, keep, show
from wallflower.clients.secure_sum.keyring import ClientKeyring
from wallflower.clients.secure_sum.limits import ClientLimits
from wallflower.clients.secure_sum.machine import SessionParams
from wallflower.clients.secure_sum.opener import open_session
from wallflower.protocol.cohort import to_rational
from wallflower.protocol.messages.port import Request
from wallflower.protocol.privacy.mechanism import mechanism_named
from wallflower.protocol.rewards.models import synthetic_rewards
from wallflower.protocol.secure_sum.backends import SHUFFLE, backend_modulus
from wallflower.protocol.secure_sum.session import Ask, Contribution, SecureSum
from wallflower.protocol.secure_sum.shuffle.plan import SHUFFLER, ShufflePlan
from wallflower.protocol.secure_sum.threat import Threat, quorum_for
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.regret.setup import build_engine, draw_means
from wallflower.regret.simulation import Simulation, run
from wallflower.strategy.bandit.spec import PolicySpec
from wallflower.strategy.run.pending_cohorts import make_session_factory
from wallflower.strategy.transport.memory import MemoryTransport
from wallflower.strategy.transport.shuffler import (
    ShufflerFiles,
    ShufflerPlace,
    shuffled,
)

MODES = {"pure": "shuffle-dp", "mixed": "dist-dp"}
LEVEL = Fraction(1, 10**6)
INSTANCES = 2000


def spec_of(mode: str, users: int) -> CohortSpec:
    """Describe a cohort of nodes with one user each; 10 % collude, 10 % vanish."""
    threat = Threat(Fraction(1, 10), Fraction(1, 10), malicious_server=False)
    floor = users - threat.corrupt_nodes(users) - threat.dropped_nodes(users)
    cohort = mechanism_named(MODES[mode], Fraction(1)).for_cohort(users, floor, LEVEL)
    parties = dict.fromkeys(names(users), 1)
    return CohortSpec(
        run_id="run",
        batch=1,
        cohort_id=f"{mode}-{users}",
        mechanism=MODES[mode],
        epsilon=to_rational(Fraction(1)),
        scale=to_rational(Fraction(10)),
        wrap_probability=to_rational(LEVEL),
        cohort_size=users,
        honest_floor=floor,
        quorum=quorum_for(floor, parties, threat.corrupt),
        backend=SHUFFLE,
        modulus=backend_modulus(SHUFFLE, cohort.modulus),
        threat=threat.to_wire(),
    )


def names(users: int) -> list[str]:
    """Name the nodes."""
    return [f"node-{number:06d}" for number in range(users)]


def answer_request(spec: CohortSpec, party: str, body: bytes, pin: str) -> bytes:
    """Return one node's answer."""
    limits, keyring = ClientLimits(shufflers=(pin,)), ClientKeyring(spec.run_id)
    client = open_session(SessionParams(spec, party, None, None, limits, keyring))
    return client.inspect(body).answer(Contribution(1, 1)).body


@asynccontextmanager
async def shuffler(home: Path) -> AsyncIterator[tuple[psutil.Process, ShufflerPlace]]:
    """Run a shuffler as a process beside."""
    arguments = ("wallflower", "shuffler", "--home", str(home))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", *arguments), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        ready = json.loads(await process.stdout.readline())
        files = ShufflerFiles.read(home / "operator")
        place = ShufflerPlace(ready["shuffler"], files)
        yield psutil.Process(process.pid), place
    finally:
        process.terminate()
        await process.wait()


def one_user(mode: str, users: int, place: ShufflerPlace) -> Row:
    """Measure what one user of a cohort sends, and what it costs."""
    spec = spec_of(mode, users)
    opener = make_session_factory(spec.run_id, None, place)
    server = opener.open(spec, dict.fromkeys(names(users), 1))
    step = server.start()
    assert isinstance(step, Ask)
    party = names(users)[0]
    pin = place.files.fingerprint
    answer_request(spec, party, step.messages[party], pin)  # tables are made once
    times, started = 3, time.process_time()
    for _ in range(times):
        answer = answer_request(spec, party, step.messages[party], pin)
    node_s = (time.process_time() - started) / times
    return {
        "mode": mode,
        "users": users,
        "messages": ShufflePlan.of(spec, users).messages,
        "to the server, bytes": len(answer),
        "node, s": node_s,
    }


async def through(users: int, folder: Path) -> Row:
    """Send a mixed cohort through a shuffler's process, timed."""
    async with shuffler(folder / "home") as (process, place):
        spec = spec_of("mixed", users)
        server = make_session_factory(spec.run_id, None, place).open(
            spec, dict.fromkeys(names(users), 1)
        )
        step = server.start()
        assert isinstance(step, Ask)
        pin = place.files.fingerprint
        for party, body in step.messages.items():
            server.receive(party, answer_request(spec, party, body, pin))
        asking = server.advance()
        assert isinstance(asking, Ask)
        request = Request(SHUFFLER, "release", asking.messages[SHUFFLER])
        meter = _Meter(process)
        async with shuffled(MemoryTransport({}), place) as port:
            answers = [a async for a in port.ask([request], timeout_s=300)]
        row = meter.row(users)
    server.receive(SHUFFLER, answers[0].body)
    total = server.advance()
    assert isinstance(total, SecureSum), total
    assert total.total == users % spec.modulus
    return row


class _Meter:
    """What a process and the clock used up since it was made."""

    def __init__(self, process: psutil.Process) -> None:
        self._process = process
        self._cpu_s, self._threads = _cpu_s(process), _threads(process)
        self._started = time.perf_counter()

    def row(self, users: int) -> Row:
        """Return the use by user."""
        wall_s = time.perf_counter() - self._started
        used_s = _cpu_s(self._process) - self._cpu_s
        threads = _threads(self._process).items()
        busiest_s = max(used - self._threads.get(one, 0.0) for one, used in threads)
        return {
            "users": users,
            "users/s, all on this machine": users / wall_s,
            "shuffler, ms": 1000 * used_s / users,
            "its busiest thread, ms": 1000 * busiest_s / users,
            # Two cores are of no use to a thread that is alone busy.
            "users/s, two cores of its own": users / max(used_s / 2, busiest_s),
        }


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _threads(process: psutil.Process) -> dict[int, float]:
    return {one.id: one.user_time + one.system_time for one in process.threads()}


def regret(instances: int) -> list[Row]:
    """Play the same instances under both mechanisms; the goal is a ratio of 1.05."""
    rows: list[Row] = []
    for level in (Fraction(1, 10), Fraction(1, 2), Fraction(1)):
        means = draw_means("easy", instances, 10, 1).ravel()
        model = synthetic_rewards("bernoulli", means)
        found = {}
        for mechanism in MODES.values():
            spec = PolicySpec(
                policy="elimination",
                arms=10,
                horizon=10**6,
                mechanism=mechanism,
                epsilon=level,
                failure_probability=Fraction(1, 10),
            )
            result = run(build_engine(Simulation(spec, model, instances, 1)))
            found[mechanism] = float(result.regret.mean())
        rows.append(
            {
                "epsilon": float(level),
                **{f"regret, {name}": value for name, value in found.items()},
                "ratio": found["shuffle-dp"] / found["dist-dp"],
            }
        )
    return rows


async def sent(sizes: list[int], folder: Path) -> list[Row]:
    """Measure one user of each mode and size."""
    async with shuffler(folder / "idle") as (_, place):
        return [one_user(mode, users, place) for mode in MODES for users in sizes]


def main() -> None:
    """Measure what is asked for; everything by default."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[2**k for k in range(8, 13)]
    )
    parser.add_argument("--users", type=int, default=4096, help="through the shuffler")
    parser.add_argument("--instances", type=int, default=INSTANCES)
    asked = parser.parse_args()
    tables: dict[str, list[Row]] = {}
    with tempfile.TemporaryDirectory(prefix="wf-shuffle-") as name:
        folder = Path(name)
        if asked.sizes:
            tables["one user"] = asyncio.run(sent(asked.sizes, folder))
            show("What one user sends", tables["one user"])
        if asked.users:
            tables["through"] = [asyncio.run(through(asked.users, folder))]
            cores = os.cpu_count()
            show(f"Mixed, through the shuffler ({cores} cores)", tables["through"])
    if asked.instances:
        tables["regret"] = regret(asked.instances)
        title = f"Regret per experiment, K = 10, T = 10⁶, {asked.instances} instances"
        show(title, tables["regret"])
    keep("shuffle", tables)


if __name__ == "__main__":
    main()
