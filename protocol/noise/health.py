"""Health tests of the system's generator, after NIST SP 800-90B §4.

They find a generator that broke, not one that is weak: without noise, or with noise
that was drawn before, an answer would be a reward in the clear. A false alarm comes
less than once in 2³⁸ starts and once in 2⁶⁰ requests.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from wallflower.protocol.errors import RandomnessError

Words = NDArray[np.uint64]

# Adaptive proportion (§4.4.2) of each of the 64 bits: by Hoeffding, more than 640 ones
# (or zeros) in 1,024 fair bits have probability below e^−32; 128 such, below 2⁻³⁸.
_WINDOW = 1024
_MOST_ALIKE = 640


class GeneratorWatch:
    """Stands between a process and its generator.

    With each request one word more is drawn that is never handed out: it must differ
    from that of the request before, so that a generator which repeats itself is found
    without any noise being kept. A process, and each that is forked from it, begins
    with the start-up test.
    """

    def __init__(self) -> None:
        self._tested_process = 0
        self._last_guard: int | None = None

    def words(self, count: int, draw: Callable[[int], Words]) -> Words:
        """Draw, and give only what passed."""
        if self._tested_process != os.getpid():
            check_start(draw(_WINDOW))
            self._tested_process = os.getpid()
        drawn = draw(count + 1)
        if count == 1:  # most requests are for one word: no arrays to compare two
            word, guard = drawn.tolist()
            repeats = word == guard
        else:
            guard, repeats = int(drawn[-1]), _repeats(drawn)
        if guard == self._last_guard or repeats:
            raise RandomnessError("it gave the same word twice")
        self._last_guard = guard
        return drawn[:-1]


def check_start(words: Words) -> None:
    """Refuse a generator with a stuck or lopsided bit, or one that repeats a word."""
    if _repeats(words):
        raise RandomnessError("it gave the same word twice")
    bits = np.unpackbits(words.view(np.uint8)).reshape(len(words), 64)
    ones = bits.sum(axis=0, dtype=np.int64)
    if np.maximum(ones, len(words) - ones).max() > _MOST_ALIKE:
        raise RandomnessError("one of its bits is stuck or lopsided")


def _repeats(words: Words) -> bool:
    """Repetition count (§4.4.1): for words of 64 bits twice in a row is too often."""
    return bool((words[1:] == words[:-1]).any())


WATCH = GeneratorWatch()
