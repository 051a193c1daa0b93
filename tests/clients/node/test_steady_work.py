"""What a node does from reward to answer is the same for every reward and noise."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from fractions import Fraction
from types import FrameType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.virtual_time import run_virtually
from wallflower.clients.node.randomizer import randomize_node
from wallflower.clients.rewards.source import Pull, Pulled, pull_rewards
from wallflower.protocol.privacy.mechanism import CohortMechanism, mechanism_named
from wallflower.protocol.rewards.outcome_window import NO_WINDOW

REWARDS = [0.0, 1.0, 0.5, 0.1, 2.0**-12, 3.14e-5, 2.0**-1074, 1 - 2.0**-53]
MECHANISMS = ["dist-dp", "dist-rdp", "dist-cdp", "local-dp"]


class CountedBits:
    """Words that were laid out, and how many were asked for each time."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)
        self.asked: list[int] = []

    def words(self, count: int) -> NDArray[np.uint64]:
        self.asked.append(count)
        return self._generator.integers(0, 2**64, count, dtype=np.uint64)


def instructions(work: Callable[[], object]) -> int:
    """Count the instructions that Python carries out."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    gc.disable()  # its callbacks are instructions too
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
        gc.enable()
    return count


def cohort(name: str) -> CohortMechanism:
    return mechanism_named(name, Fraction(1)).for_cohort(24, 20, Fraction(1, 10**6))


def work_of(
    rewards: list[float], mechanism: CohortMechanism, seed: int
) -> tuple[int, tuple[int, ...]]:
    bits = CountedBits(seed)
    values = np.array(rewards)
    count = instructions(
        lambda: randomize_node(values, mechanism, mechanism.modulus, bits)
    )
    return count, tuple(bits.asked)


@pytest.mark.parametrize("users", [1, 5])
@pytest.mark.parametrize("name", MECHANISMS)
def test_instructions_and_words_are_the_same_for_every_reward(
    name: str, users: int
) -> None:
    mechanism = cohort(name)
    work_of([0.5] * users, mechanism, 0)  # builds the table
    works = {work_of([reward] * users, mechanism, 0) for reward in REWARDS}
    works.add(work_of(REWARDS[:users], mechanism, 0))
    assert len(works) == 1


@pytest.mark.parametrize("users", [1, 5])
@pytest.mark.parametrize("name", MECHANISMS)
def test_instructions_and_words_are_the_same_for_every_noise(
    name: str, users: int
) -> None:
    mechanism = cohort(name)
    work_of([0.5] * users, mechanism, 0)
    works = {work_of([0.5] * users, mechanism, seed) for seed in range(40)}
    assert len(works) == 1


def test_many_users_on_one_node_draw_as_steadily() -> None:
    mechanism = mechanism_named("dist-cdp", Fraction(1)).for_cohort(
        10_000, 9_000, Fraction(1, 10**6)
    )
    work_of([0.5] * 2, mechanism, 0)
    asked = [
        work_of([reward] * 9_000, mechanism, seed)[1]
        for seed, reward in enumerate([0.0, 0.5, 1.0])
    ]
    assert set(asked) == {(9_000, 4096, 4096, 808)}


def test_screening_takes_the_same_instructions_for_every_reward() -> None:
    class Given:
        def __init__(self, value: float) -> None:
            self.value = value

        async def pull(self, pull: Pull) -> list[object]:
            return [self.value]

        async def close(self) -> None:
            return

    async def screened(value: float) -> Pulled:
        pull = Pull("run", "cohort", 1, 0, "a", "node", ("u",))
        return await pull_rewards(Given(value), pull, NO_WINDOW)

    def one(value: float) -> int:
        return instructions(lambda: run_virtually(screened(value)))

    one(0.5)
    assert len({one(reward) for reward in REWARDS}) == 1
