"""What a noise law is: a distribution on the integers that knows itself exactly.

Concrete laws (Pólya, discrete Laplace, NB-difference, Poisson, Skellam, discrete
Gaussian) implement this; samplers, mechanisms, accountant, radii and simulator read it.
"""

from __future__ import annotations

import abc
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


class BitSource(Protocol):
    """Where uniform bits come from; the type says whether they are secure."""

    def words(self, count: int) -> NDArray[np.uint64]:
        """Give `count` independent uniform 64-bit words."""
        ...


class NoiseLaw(abc.ABC):
    """A probability law on the integers (mean known, parameters rational)."""

    @abc.abstractmethod
    def pmf(self, x: int) -> float:
        """P(X = x), correct to the last digits of a double."""

    @abc.abstractmethod
    def cdf(self, x: int) -> float:
        """P(X ≤ x), correct to the last digits of a double."""

    @abc.abstractmethod
    def quantile(self, level: Fraction) -> int:
        """Smallest x with P(X ≤ x) ≥ level, decided by enclosures, never by floats."""

    @abc.abstractmethod
    def two_sided_bound(self, level: Fraction) -> int:
        """Smallest τ ≥ 0 with P(|X| > τ) ≤ level, decided by enclosures."""

    @abc.abstractmethod
    def log_mgf(self, argument: float) -> float:
        """ln E exp(argument · X); +inf outside the domain."""

    @abc.abstractmethod
    def variance(self) -> float:
        """Var X."""

    @abc.abstractmethod
    def sample(self, count: int, bits: BitSource) -> Integers:
        """Draw `count` independent values, exactly from this law."""
