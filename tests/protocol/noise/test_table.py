"""The certified table: exact for every word size, by enumeration of all words."""

from __future__ import annotations

import bisect
import threading
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.laws import Poisson, Polya, is_symmetric, mass_of
from tests.support.statistics import FALSE_ALARM_RATE, chi_square_p_value
from wallflower.protocol.errors import InputError
from wallflower.protocol.noise.balls import Ladder
from wallflower.protocol.noise.bits import SeededBits
from wallflower.protocol.noise.difference import NegativeBinomialDifference
from wallflower.protocol.noise.gaussian import DiscreteGaussian, Skellam
from wallflower.protocol.noise.gaussian_sums import SumOfDiscreteGaussians
from wallflower.protocol.noise.laplace import DiscreteLaplace
from wallflower.protocol.noise.law import NoiseLaw
from wallflower.protocol.noise.table import CertifiedTable, _TableCache

LAWS: list[NoiseLaw] = [
    Polya(Fraction(1, 50), Fraction(1, 3)),
    Polya(Fraction(5, 2), Fraction(1)),
    Poisson(Fraction(4)),
    DiscreteLaplace(Fraction(2)),
    NegativeBinomialDifference(Fraction(1, 50), Fraction(1, 3)),
    NegativeBinomialDifference(Fraction(5, 2), Fraction(1)),
    Skellam(Fraction(4)),
    DiscreteGaussian(Fraction(4)),
    SumOfDiscreteGaussians(3, Fraction(1)),
]
every_law = pytest.mark.parametrize("law", LAWS, ids=repr)


class OutOfWordsError(Exception):
    """A draw asked for more words than were laid out."""


class ListedBits:
    """Return exactly these words (of a few bits, in the highest places)."""

    def __init__(self, words: list[int], word_bits: int) -> None:
        self._words = [word << (64 - word_bits) for word in words]

    def words(self, count: int) -> NDArray[np.uint64]:
        if count > len(self._words):
            raise OutOfWordsError
        given, self._words = self._words[:count], self._words[count:]
        return np.array(given, dtype=np.uint64)


def masses_by_enumeration(
    table: CertifiedTable, word_bits: int, depth: int
) -> tuple[dict[int, Fraction], Fraction]:
    """Try all sequences of words: P(x) that is decided, and what is left open."""
    decided: dict[int, Fraction] = {}
    undecided: list[list[int]] = [[]]
    every_word = range(1 << word_bits)
    weight = Fraction(1)
    for _ in range(depth):
        weight /= 1 << word_bits
        longer = [[*start, word] for start in undecided for word in every_word]
        undecided = []
        for words in longer:
            try:
                value = int(table.sample(1, ListedBits(words, word_bits))[0])
            except OutOfWordsError:
                undecided.append(words)
            else:
                decided[value] = decided.get(value, Fraction(0)) + weight
    return decided, weight * len(undecided)


@every_law
@pytest.mark.parametrize(("word_bits", "depth"), [(6, 3), (1, 12)])
def test_enumerating_all_words_gives_the_exact_masses(
    law: NoiseLaw, word_bits: int, depth: int
) -> None:
    table = CertifiedTable(law, word_bits)
    decided, left_open = masses_by_enumeration(table, word_bits, depth)
    assert sum(decided.values()) + left_open == 1
    assert left_open < Fraction(1, 30)
    for x in range(max(decided) + 3):
        exact = mass_of(law, x) * (2 if is_symmetric(law) and x else 1)
        low = float(decided.get(x, Fraction(0)))
        assert low <= exact * (1 + 1e-12)
        assert exact <= low + float(left_open) + 1e-15


@every_law
def test_short_words_of_a_few_draws_refine_and_still_give_the_law(
    law: NoiseLaw,
) -> None:
    table, bits = CertifiedTable(law, 6), SeededBits.derived(5, repr(law))
    sample = table.sample_signed if is_symmetric(law) else table.sample
    values = np.concatenate([sample(100, bits) for _ in range(200)])
    assert chi_square_p_value(values, law) > FALSE_ALARM_RATE


@every_law
def test_short_words_refine_and_still_give_the_law(law: NoiseLaw) -> None:
    table = CertifiedTable(law, 10)
    sample = table.sample_signed if is_symmetric(law) else table.sample
    values = sample(20_000, SeededBits.derived(4, repr(law)))
    assert chi_square_p_value(values, law) > FALSE_ALARM_RATE
    assert np.abs(values).max() >= len(table) // 2


class Scripted:
    """Lay out first halves of words, then the second parts that ties ask for."""

    def __init__(self, halves: list[int], second: int) -> None:
        self._first = np.array(halves, dtype=np.uint32).view(np.uint64)
        self._second = second << 32
        self.ties = 0

    def words(self, count: int) -> NDArray[np.uint64]:
        if len(self._first):
            given, self._first = self._first, self._first[:0]
            assert len(given) == count
            return given
        self.ties += count
        return np.full(count, self._second, dtype=np.uint64)


@every_law
@pytest.mark.parametrize("second", [0, 1 << 31, 0xFFFF0000])
def test_a_block_reads_the_second_part_of_a_word_only_for_ties(
    law: NoiseLaw, second: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All leading parts of 40-bit words, against a search among whole words."""
    monkeypatch.setattr("wallflower.protocol.noise.table.STEADY", 1)
    table = CertifiedTable(law, 40)
    thresholds = table.thresholds.tolist()
    bits = Scripted([lead << 24 for lead in range(256)], second)
    values = table.sample(256, bits).tolist()
    leads = {threshold >> 32 for threshold in thresholds}
    assert bits.ties == len(leads)
    for lead, value in enumerate(values):
        word = lead << 32 | (second if lead in leads else 0)
        assert word not in thresholds
        assert value == bisect.bisect_right(thresholds, word)


@every_law
def test_steady_draws_agree_with_a_search_among_the_thresholds(law: NoiseLaw) -> None:
    table = CertifiedTable(law, 10)
    thresholds = table.thresholds.tolist()
    words = [word for word in range(1024) if word not in thresholds]
    values = table.sample(len(words), ListedBits(words, 10)).tolist()
    assert values == [bisect.bisect_right(thresholds, word) for word in words]


def test_a_word_equal_to_a_threshold_is_refined_in_a_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("wallflower.protocol.noise.table.STEADY", 1)
    table = CertifiedTable(DiscreteLaplace(Fraction(2)), 40)
    threshold = int(table.thresholds[3])
    halves = [(threshold >> 32) << 24] * 2
    for further, value in ((0, 3), (2**32 - 1, 4)):
        bits = Sequence64(halves, [threshold % 2**32, further])
        assert table.sample(2, bits).tolist() == [value, value]


class Sequence64:
    """First halves, then whole rounds of the same word, in the highest 32 bits."""

    def __init__(self, halves: list[int], rounds: list[int]) -> None:
        self._first = np.array(halves, dtype=np.uint32).view(np.uint64)
        self._rounds = rounds
        self._singles = 0

    def words(self, count: int) -> NDArray[np.uint64]:
        if len(self._first):
            given, self._first = self._first, self._first[:0]
            return given
        if count > 1:
            return np.full(count, self._rounds[0] << 32, dtype=np.uint64)
        # Refinements draw forty bits at a time, one value after the other.
        return np.array([(self._rounds[1] << 32) | 0xFFFFFFFF], dtype=np.uint64)


def test_a_signed_draw_is_fair_and_independent_of_the_magnitude() -> None:
    table = CertifiedTable(DiscreteLaplace(Fraction(2)), 6)
    even = [table.sample_signed(1, ListedBits([w, 0, 0], 6))[0] for w in range(64)]
    odd = [table.sample_signed(1, OddWords(w))[0] for w in range(64)]
    assert [-x for x in even] == odd


class OddWords:
    def __init__(self, word: int) -> None:
        self._next = [word << 58 | 1, 0, 0]

    def words(self, count: int) -> NDArray[np.uint64]:
        return np.array([self._next.pop(0)], dtype=np.uint64)


@pytest.mark.parametrize("word_bits", [1, 10, 63, 64])
def test_the_last_threshold_leaves_only_the_tail_open(word_bits: int) -> None:
    for law in LAWS:
        thresholds = CertifiedTable(law, word_bits).thresholds.tolist()
        assert thresholds[-1] == 2**word_bits - 1
        assert thresholds == sorted(thresholds)
        assert thresholds.count(thresholds[-1]) == 1


def test_a_law_that_is_nearly_always_zero_has_a_table_of_one_entry() -> None:
    table = CertifiedTable(Polya(Fraction(1, 50), Fraction(60)), 64)
    assert len(table) == 1
    assert not table.sample(1000, SeededBits(1)).any()


def test_thresholds_are_floors_of_the_distribution_function() -> None:
    law = Polya(Fraction(1), Fraction(1, 2))
    thresholds = CertifiedTable(law, 40).thresholds
    for x in range(20):
        # F(x) = 1 − e^{−(x+1)/2}; a double settles 40 bits.
        assert int(thresholds[x]) == int(-np.expm1(-(x + 1) / 2) * 2**40)


def test_an_uncertain_floor_is_not_certified() -> None:
    # F(0) = 1/2 exactly: no enclosure from below can tell ⌊2^w F⌋ from one less.
    vague = Ladder([(1 << 99) - 1, (1 << 99) - 1], shift=100, accuracy=98)
    assert vague.thresholds(8) is None


def test_the_tail_beyond_the_table_is_reached() -> None:
    law = DiscreteLaplace(Fraction(2))
    table = CertifiedTable(law, 4)
    ones = 15
    beyond = table.sample(1, ListedBits([ones] * 8 + [0] * 3, 4))[0]
    assert beyond > len(table)
    # P(|X| > k) = 2q^{k+1}/(1+q) crosses 2^−32 there.
    q = np.exp(-0.5)
    assert 2 * q**beyond / (1 + q) > 2.0**-32 * (1 - 1e-9)
    assert 2 * q ** (beyond + 1) / (1 + q) <= 2.0**-32 * (1 + 1e-9)


@pytest.mark.parametrize("word_bits", [0, 65, -1])
def test_word_sizes_out_of_range_are_refused(word_bits: int) -> None:
    with pytest.raises(InputError, match="word_bits"):
        CertifiedTable(LAWS[0], word_bits)


def test_a_signed_draw_needs_a_bit_for_the_sign() -> None:
    with pytest.raises(InputError, match="63"):
        CertifiedTable(DiscreteLaplace(Fraction(2)), 64).sample_signed(1, SeededBits(1))


def test_the_cache_builds_a_table_once_for_many_threads() -> None:
    cache = _TableCache(budget_bytes=1 << 20)
    found: list[CertifiedTable] = []
    start = threading.Barrier(4)

    def use() -> None:
        start.wait()
        found.append(cache.table(DiscreteGaussian(Fraction(7)), 63))

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len({id(table) for table in found}) == 1


def test_the_cache_forgets_the_least_recently_used_table() -> None:
    laws = [DiscreteLaplace(Fraction(n)) for n in (3, 4, 5)]
    size = CertifiedTable(laws[2], 63).size_bytes
    cache = _TableCache(budget_bytes=2 * size + 1)
    first = cache.table(laws[0], 63)
    cache.table(laws[1], 63)
    assert cache.table(laws[0], 63) is first
    cache.table(laws[2], 63)
    assert cache.size_bytes <= 2 * size + 1
    assert cache.table(laws[2], 63) is cache.table(laws[2], 63)
    assert len(cache) < 3
