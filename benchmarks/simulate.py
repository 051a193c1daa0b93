"""``make bench-simulate``: how the simulator's cost grows, and against whom.

Scaling: seconds for T = 10⁵ … 10⁹ and the exponent fitted to them, on easy instances
(most arms are dropped early) and on equal arms (nothing is ever dropped, so that all T
users are aggregated: the worst case). Each figure comes from a fresh process, nothing
cached, imports not counted; processor time.

Peers: pulls per second of river's and MABWiser's bandits and of a plain NumPy loop over
users, one pull after the other, in the same run.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction
from typing import Any

import numpy as np

HORIZONS = tuple(10**power for power in range(5, 10))
ARMS = 10
PEER_PULLS = 5_000
Peer = Callable[[np.ndarray[Any, Any], int], None]


def simulated(horizon: int, instances: int, equal: bool) -> float:
    """Processor seconds to simulate `instances` experiments of `horizon` users."""
    from wallflower.protocol.rewards.models import GaussianRewards
    from wallflower.regret.setup import build_engine, draw_means
    from wallflower.regret.simulation import Simulation, run
    from wallflower.strategy.bandit.spec import PolicySpec

    start = time.process_time()
    spec = PolicySpec(
        "elimination",
        ARMS,
        horizon,
        "dist-dp",
        Fraction(1),
        failure_probability=Fraction(1, 10),
    )
    means = draw_means("easy", instances, ARMS, 0).ravel()
    if equal:
        means = np.full(instances * ARMS, 0.5)
    model = GaussianRewards(means, 0.1)
    result = run(build_engine(Simulation(spec, model, instances, 0)))
    seconds = time.process_time() - start
    assert (result.users == horizon).all()
    return seconds


def in_fresh_process(*arguments: Any) -> float:
    """Run `simulated` where nothing is cached."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(simulated, *arguments).result()


def river_policy(name: str) -> Peer:
    """Play river's policy pull by pull."""

    def play(means: np.ndarray[Any, Any], pulls: int) -> None:
        from river import bandit

        policy = {
            "EpsilonGreedy": lambda: bandit.EpsilonGreedy(epsilon=0.1, seed=1),
            "UCB": lambda: bandit.UCB(delta=1, seed=1),
        }[name]()
        rewards = np.random.default_rng(0).normal(0, 0.1, pulls).tolist()
        centres = means.tolist()
        arms = list(range(ARMS))
        for reward in rewards:
            arm = policy.pull(arms)
            policy.update(arm, centres[arm] + reward)

    return play


def mabwiser_policy(name: str) -> Peer:
    """Play MABWiser's policy pull by pull."""

    def play(means: np.ndarray[Any, Any], pulls: int) -> None:
        from mabwiser.mab import MAB, LearningPolicy

        policy = {
            "EpsilonGreedy": lambda: LearningPolicy.EpsilonGreedy(epsilon=0.1),
            "UCB1": lambda: LearningPolicy.UCB1(alpha=1.0),
        }[name]()
        rewards = np.random.default_rng(0).normal(0, 0.1, pulls).tolist()
        centres = means.tolist()
        arms = list(range(ARMS))
        bandit = MAB(arms, policy)
        bandit.fit(arms, centres)
        for reward in rewards:
            arm = bandit.predict()
            bandit.partial_fit([arm], [centres[arm] + reward])

    return play


def numpy_loop(means: np.ndarray[Any, Any], pulls: int) -> None:
    """Reward, rounding and a share of noise for one user after the other."""
    generator = np.random.default_rng(0)
    precision, shape = 10, 1 / 100
    odds = 1 / math.expm1(1 / precision)
    total = 0
    for user in range(pulls):
        reward = min(max(generator.normal(means[user % ARMS], 0.1), 0.0), 1.0)
        floor = math.floor(reward * precision)
        rounded = floor + (generator.random() < reward * precision - floor)
        plus = generator.poisson(generator.gamma(shape, odds))
        minus = generator.poisson(generator.gamma(shape, odds))
        total += rounded + int(plus) - int(minus)


PEERS: dict[str, Peer] = {
    "river EpsilonGreedy": river_policy("EpsilonGreedy"),
    "river UCB": river_policy("UCB"),
    "MABWiser EpsilonGreedy": mabwiser_policy("EpsilonGreedy"),
    "MABWiser UCB1": mabwiser_policy("UCB1"),
    "NumPy, user by user": numpy_loop,
}


def peer_rate(play: Peer) -> float:
    """Pulls per processor second, best of three; imports not counted."""
    means = np.random.default_rng(0).uniform(0.25, 0.75, ARMS)
    play(means, 100)
    best = math.inf
    for _ in range(3):
        start = time.process_time()
        play(means, PEER_PULLS)
        best = min(best, time.process_time() - start)
    return PEER_PULLS / best


def exponent(seconds: list[float]) -> float:
    """Slope of ln(seconds) over ln(T)."""
    return float(np.polyfit(np.log(HORIZONS), np.log(seconds), 1)[0])


def main() -> None:
    """Measure and print; ``--json FILE`` keeps the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=1, help="best of so many")
    parser.add_argument("--json", default="")
    arguments = parser.parse_args()
    count = arguments.instances
    report: dict[str, Any] = {"instances": count, "seconds": {}, "exponent": {}}
    for name, instances, equal in (
        ("easy, one experiment", 1, False),
        (f"easy, {count} experiments", count, False),
        ("equal arms, one experiment", 1, True),
    ):
        seconds = [
            min(
                in_fresh_process(horizon, instances, equal)
                for _ in range(arguments.repeats)
            )
            for horizon in HORIZONS
        ]
        report["seconds"][name] = dict(zip(map(str, HORIZONS), seconds, strict=True))
        report["exponent"][name] = exponent(seconds)
        row = "".join(f"{value:10.3f}" for value in seconds)
        print(f"{name:28}{row}   exponent {exponent(seconds):.2f}", flush=True)
    report["pulls_per_second"] = {name: peer_rate(play) for name, play in PEERS.items()}
    for name, rate in report["pulls_per_second"].items():
        print(f"{name:28}{rate:14,.0f} pulls/s", flush=True)
    library = max(
        rate
        for name, rate in report["pulls_per_second"].items()
        if not name.startswith("NumPy")
    )
    report["times_best_library"] = {}
    for name, instances in (
        ("easy, one experiment", 1),
        (f"easy, {count} experiments", count),
    ):
        for horizon in (10**6, 10**9):
            rate = horizon * instances / report["seconds"][name][str(horizon)]
            times = rate / library
            report["times_best_library"][f"{name}, T = {horizon:.0e}"] = times
            print(
                f"{name}, T = {horizon:.0e}: {rate:.3g} pulls/s, "
                f"{times:,.0f} times the best library",
                flush=True,
            )
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:  # noqa: PTH123
            json.dump(report, file, indent=1)


if __name__ == "__main__":
    main()
