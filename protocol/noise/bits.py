"""Where random bits come from, and exact integer draws from them.

`OsBits` is the only source for real users. `SeededBits` repeats itself, so whoever
knows the seed can subtract the noise: it is for simulations and tests.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from wallflower.protocol.errors import InputError, RandomnessError

Words = NDArray[np.uint64]
Integers = NDArray[np.int64]

_WORD_BYTES = 8


class BitSource(Protocol):
    """Where uniform bits come from; the type says whether they are secure."""

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return `count` independent uniform 64-bit words."""
        ...


class OsBits:
    """Words from the operating system's cryptographic generator.

    Every request is a system call of its own and nothing of it is kept, so that there
    is no word which a forked child, a clone of the machine or a snapshot that is gone
    back to could hand out a second time. The system's generator is watched: see
    `_GeneratorWatch`.
    """

    __slots__ = ()

    def words(self, count: int) -> Words:
        """Return `count` independent uniform 64-bit words.

        Raises
        ------
        RandomnessError
            If the system's generator fails a health test; nothing is handed out.
        """
        if count < 0:
            raise InputError("count", count, "at least 0")
        return WATCH.words(count, _from_system)

    def __repr__(self) -> str:
        """Show nothing of what will be drawn."""
        return "OsBits()"


def _from_system(count: int) -> Words:
    return np.frombuffer(os.urandom(count * _WORD_BYTES), dtype=np.uint64)


class SeededBits:
    """SIMULATION ONLY: words that a seed decides (PCG64).

    Whoever knows the seed knows the noise, so rewards protected with it are not
    protected. Never pass one to a client that serves real users.

    Examples
    --------
    >>> bool((SeededBits(7).words(3) == SeededBits(7).words(3)).all())
    True
    """

    __slots__ = ("_generator",)

    def __init__(self, seed: int | bytes) -> None:
        if isinstance(seed, bytes):
            seed = int.from_bytes(hashlib.sha256(seed).digest(), "little")
        elif isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            raise InputError("seed", seed, "a whole number of at least 0, or bytes")
        self._generator = np.random.PCG64(seed)

    @classmethod
    def derived(cls, seed: int | bytes, *labels: str | int | bytes) -> SeededBits:
        """Return an independent stream for each sequence of labels (SHA-256).

        Kinds and lengths are hashed too: ("1", "2"), ("12",) and (12,) all differ.
        """
        digest = hashlib.sha256(b"wallflower seeded bits v1")
        for label in (seed, *labels):
            kind, content = _encode_label(label)
            digest.update(kind + len(content).to_bytes(8, "little") + content)
        return cls(int.from_bytes(digest.digest(), "little"))

    def words(self, count: int) -> Words:
        """Return the next `count` words of the stream."""
        if count < 0:
            raise InputError("count", count, "at least 0")
        return self._generator.random_raw(count).astype(np.uint64, copy=False)

    def __repr__(self) -> str:
        """Show the purpose; the seed would give away the noise."""
        return "SeededBits(simulation only)"


def _encode_label(label: str | int | bytes) -> tuple[bytes, bytes]:
    if isinstance(label, bytes):
        return b"b", label
    if isinstance(label, str):
        return b"s", label.encode()
    return b"i", str(int(label)).encode()


def uniform_integer(bound: int, bits: BitSource) -> int:
    """Draw exactly uniformly from 0 … bound−1, for a bound of any length."""
    if bound < 1:
        raise InputError("bound", bound, "at least 1")
    length = (bound - 1).bit_length()
    count = -(-length // 64)
    while True:
        value = 0
        for word in bits.words(count).tolist():
            value = value << 64 | word
        value >>= 64 * count - length
        if value < bound:
            return value


def bernoulli(numerator: int, denominator: int, bits: BitSource) -> bool:
    """Be true with probability exactly numerator / denominator."""
    if denominator < 1 or not 0 <= numerator <= denominator:
        raise InputError("probability", f"{numerator}/{denominator}", "0 … 1")
    if numerator in (0, denominator):
        return numerator == denominator
    return uniform_integer(denominator, bits) < numerator


# --- Health tests of the system's generator, after NIST SP 800-90B §4.
#
# They find a generator that broke, not one that is weak: without noise, or with noise
# that was drawn before, an answer would be a reward in the clear. A false alarm comes
# less than once in 2³⁸ starts and once in 2⁶⁰ requests.


# Adaptive proportion (§4.4.2) of each of the 64 bits: by Hoeffding, more than 640 ones
# (or zeros) in 1,024 fair bits have probability below e^−32; 128 such, below 2⁻³⁸.
_WINDOW = 1024
_MOST_ALIKE = 640


class _GeneratorWatch:
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


WATCH = _GeneratorWatch()
