"""What deciding and simulating cost, in processor seconds of fresh processes."""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction
from typing import Any

_ARMS, _BATCHES = 64, 30
_REPEATS = 3  # the least of them: others share the machine


def time_decision() -> float:
    """Return the seconds that the last of 30 rounds of 64 arms takes; 63 arms fall."""
    from wallflower.strategy.bandit.policies import build_policy
    from wallflower.strategy.bandit.policy import CohortSum
    from wallflower.strategy.bandit.spec import PolicySpec

    spec = PolicySpec("elimination", _ARMS, 10**12, "dist-dp", Fraction(1)).resolved()
    policy = build_policy(spec)
    for batch in range(1, _BATCHES + 1):
        outcomes = []
        for cohort_request in policy.next_cohorts():
            floor = spec.floor(cohort_request.size)
            precision = spec.calibrated(
                cohort_request.size, floor, cohort_request.wrap_probability
            ).precision
            # All alike until the last round.
            reward = (
                1 if batch == _BATCHES and cohort_request.arm == 0 else Fraction(1, 2)
            )
            total = int(cohort_request.size * precision * reward)
            outcomes.append(
                CohortSum(
                    batch,
                    cohort_request.arm,
                    cohort_request.size,
                    floor,
                    cohort_request.size,
                    precision,
                    total,
                )
            )
        start = time.process_time()
        policy.observe(outcomes)
    seconds = time.process_time() - start
    assert policy.finished == "winner"
    return seconds


def time_simulation(rule: str) -> float:
    """Return the seconds of 200 experiments of T = 10⁹ with ten arms."""
    from benchmarks.pair_radius import PairElimination
    from wallflower.protocol.rewards.models import GaussianRewards
    from wallflower.regret.setup import build_engine, draw_means
    from wallflower.regret.simulation import Simulation, run
    from wallflower.strategy.bandit.spec import PolicySpec

    spec = PolicySpec("elimination", 10, 10**9, "dist-dp", Fraction(1))
    model = GaussianRewards(draw_means("easy", 200, 10, 0).ravel(), 0.1)
    start = time.process_time()
    build = PairElimination if rule == "pair" else build_engine
    run(build(Simulation(spec, model, 200, 0)))
    return time.process_time() - start


def time_cold_command(bytecode: str) -> float:
    """Return the seconds of one ``wallflower simulate`` of 10⁶ users.

    Compiled modules lie in `bytecode` from the first call on, as after an installation.
    """
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment = {**kept, "PYTHONPYCACHEPREFIX": bytecode}
    words = [sys.executable, "-m", "wallflower", "simulate", "--horizon", "1e6"]
    quiet = (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)
    child = os.posix_spawn(sys.executable, words, environment, file_actions=[quiet])
    _, status, used = os.wait4(child, 0)
    assert status == 0
    return used.ru_utime + used.ru_stime


def least(measure: Any, *arguments: str) -> float:
    """Measure a few times, each in a fresh process with nothing cached."""
    context = multiprocessing.get_context("spawn")
    found: list[float] = []
    for _ in range(_REPEATS):
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            found.append(pool.submit(measure, *arguments).result())
    return min(found)


def costs() -> Iterator[str]:
    """Return a line for every cost with its goal."""
    seconds = least(time_decision)
    mark = "" if seconds < 1 else " MISSED"
    what = f"deciding a round of {_ARMS} arms with {_BATCHES} pooled batches"
    yield f"{what}: {seconds:.2f} s (goal 1){mark}"
    tight, pair = least(time_simulation, "tight"), least(time_simulation, "pair")
    mark = "" if tight <= 2 * pair else " MISSED"
    what = "simulating 200 experiments of T = 10⁹"
    yield f"{what}: {tight:.2f} s, {pair:.2f} s by pair alone (goal twice){mark}"
    with tempfile.TemporaryDirectory(prefix="wf-bytecode-") as bytecode:
        seconds = least(time_cold_command, bytecode)
    mark = "" if seconds < 1 else " MISSED"
    what = "one cold `wallflower simulate`, T = 10⁶"
    yield f"{what}: {seconds:.2f} s (goal 1){mark}"
