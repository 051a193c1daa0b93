"""Sources of bits, and exact integers from them."""

from __future__ import annotations

import os

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from tests.support.statistics import FALSE_ALARM_RATE
from wallflower.protocol.errors import InputError
from wallflower.protocol.noise.bits import (
    OsBits,
    SeededBits,
    bernoulli,
    uniform_integer,
)


class ListedBits:
    def __init__(self, *words: int) -> None:
        self._words = list(words)

    def words(self, count: int) -> NDArray[np.uint64]:
        given, self._words = self._words[:count], self._words[count:]
        assert len(given) == count
        return np.array(given, dtype=np.uint64)


@pytest.mark.os_randomness
@pytest.mark.parametrize("sizes", [[1] * 20_000, [3, 8191, 8192, 100_000, 5]])
def test_the_operating_system_never_gives_a_word_twice(sizes: list[int]) -> None:
    bits = OsBits()
    words = np.concatenate([bits.words(size) for size in sizes])
    assert len(words) == sum(sizes)
    # Two of 10⁵ words of 64 bits agree by chance less than once in 10⁹ runs.
    assert len(np.unique(words)) == len(words)


@pytest.mark.os_randomness
def test_a_forked_child_draws_other_words() -> None:
    bits = OsBits()
    bits.words(1)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, bits.words(4).tobytes())
        os._exit(0)
    ours = bits.words(4).tobytes()
    theirs = os.read(reader, 32)
    os.waitpid(child, 0)
    os.close(reader)
    os.close(writer)
    assert len(theirs) == 32
    assert ours != theirs


def test_a_seed_repeats_its_words_and_says_what_it_is_for() -> None:
    assert (SeededBits(3).words(100) == SeededBits(3).words(100)).all()
    assert (SeededBits(b"3").words(100) == SeededBits(b"3").words(100)).all()
    assert repr(SeededBits(12345)) == "SeededBits(simulation only)"
    assert (SeededBits.__doc__ or "").startswith("SIMULATION ONLY")


def test_derived_streams_differ_for_every_label() -> None:
    labels: list[tuple[str | int | bytes, ...]] = [
        (),
        ("a",),
        ("a", "b"),
        ("ab",),
        ("1",),
        (1,),
        (b"1",),
        ("a", ""),
    ]
    firsts = {int(SeededBits.derived(5, *each).words(1)[0]) for each in labels}
    assert len(firsts) == len(labels)
    assert SeededBits.derived(5, "x").words(1) == SeededBits.derived(5, "x").words(1)
    assert SeededBits.derived(6, "x").words(1) != SeededBits.derived(5, "x").words(1)


@pytest.mark.parametrize("seed", [-1, True, 1.5, "7", None])
def test_a_seed_that_is_no_seed_is_refused(seed: object) -> None:
    with pytest.raises(InputError, match="seed"):
        SeededBits(seed)  # type: ignore[arg-type]


def test_a_rejected_integer_is_drawn_again() -> None:
    # Three bits are read for a bound of five; 7, 6 and 5 are refused.
    words = [7 << 61, 6 << 61, 5 << 61, 4 << 61]
    assert uniform_integer(5, ListedBits(*words)) == 4


@pytest.mark.parametrize("bound", [1, 2, 7, 1000])
def test_uniform_integers_are_uniform(bound: int) -> None:
    drawn = [uniform_integer(bound, SeededBits.derived(bound, i)) for i in range(2000)]
    counts = np.bincount(np.array(drawn), minlength=bound)
    assert len(counts) == bound
    assert bound == 1 or stats.chisquare(counts).pvalue > FALSE_ALARM_RATE


def test_a_long_bound_uses_several_words() -> None:
    bound = 1 << 200
    value = uniform_integer(bound, ListedBits(1, 2, 3, 4 << 56))
    assert value == ((1 << 192 | 2 << 128 | 3 << 64 | 4 << 56) >> 56)


def test_bernoulli_counts_exactly() -> None:
    hits = [bernoulli(3, 8, ListedBits(word << 61)) for word in range(8)]
    assert hits == [True] * 3 + [False] * 5
    assert bernoulli(1, 1, ListedBits())
    assert not bernoulli(0, 1, ListedBits())


@pytest.mark.parametrize(("top", "bottom"), [(-1, 2), (3, 2), (1, 0)])
def test_no_probability_is_no_bernoulli(top: int, bottom: int) -> None:
    with pytest.raises(InputError, match="probability"):
        bernoulli(top, bottom, SeededBits(1))


def test_a_negative_count_is_refused() -> None:
    for bits in (OsBits(), SeededBits(1)):
        with pytest.raises(InputError, match="count"):
            bits.words(-1)
