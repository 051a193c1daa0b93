"""A generator that breaks is found before anything is drawn from it."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from wallflower.protocol.errors import RandomnessError
from wallflower.protocol.noise.bits import _GeneratorWatch, check_start

Words = NDArray[np.uint64]


def fresh(count: int) -> Words:
    return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)


def stuck(bit: int, value: int) -> Callable[[int], Words]:
    mask = np.uint64(1 << bit)
    return lambda count: fresh(count) | mask if value else fresh(count) & ~mask


def lopsided(count: int) -> Words:
    """Bit 5 is one in three of four words."""
    return fresh(count) | (fresh(count) & np.uint64(1 << 5))


def repeating(count: int) -> Words:
    return np.full(count, 0x0123456789ABCDEF, dtype=np.uint64)


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(lambda count: fresh(count) >> np.uint64(1), id="shifted"),
        pytest.param(stuck(0, 0), id="lowest-stuck"),
        pytest.param(stuck(37, 1), id="one-stuck"),
        pytest.param(stuck(63, 0), id="highest-stuck"),
        pytest.param(lopsided, id="lopsided"),
        pytest.param(repeating, id="repeating"),
        pytest.param(lambda count: np.zeros(count, dtype=np.uint64), id="zeros"),
        pytest.param(lambda count: np.arange(count, dtype=np.uint64), id="counting"),
    ],
)
def test_a_broken_generator_is_found_at_the_start(
    broken: Callable[[int], Words],
) -> None:
    with pytest.raises(RandomnessError, match="broken"):
        _GeneratorWatch().words(1, broken)


def test_a_generator_that_starts_to_repeat_itself_is_found() -> None:
    watch = _GeneratorWatch()
    watch.words(3, fresh)
    once = fresh(4)
    watch.words(3, lambda count: once)
    with pytest.raises(RandomnessError, match="twice"):
        watch.words(3, lambda count: once)


@pytest.mark.parametrize("asked", [1, 2, 5])
def test_two_like_words_in_a_row_are_not_handed_out(asked: int) -> None:
    watch = _GeneratorWatch()
    watch.words(1, fresh)
    with pytest.raises(RandomnessError, match="twice"):
        watch.words(asked, lambda count: np.repeat(fresh(1), count)[:count])


def test_the_word_that_is_kept_is_never_handed_out() -> None:
    watch = _GeneratorWatch()
    watch.words(1, fresh)
    drawn = fresh(6)
    assert watch.words(5, lambda count: drawn[:count]).tolist() == drawn[:5].tolist()
    assert watch._last_guard == int(drawn[5])


def test_a_healthy_generator_passes() -> None:
    for _ in range(50):  # a false alarm: once in 2^38 times
        check_start(fresh(1024))


def test_a_forked_child_begins_with_the_test_of_the_start() -> None:
    watch = _GeneratorWatch()
    watch.words(1, fresh)
    asked: list[int] = []

    def counted(count: int) -> Words:
        asked.append(count)
        return fresh(count)

    watch.words(1, counted)
    assert asked == [2]
    child = os.fork()
    if child == 0:
        watch.words(1, counted)
        os._exit(0 if asked == [2, 1024, 2] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
