"""How likely a lying server can cut the ring of secagg-plus into two sums.

A node answers while t of its k neighbours are in the sum. A lying server chooses who
seems to vanish. It cuts the ring at two gaps, each of at least k/2 places without an
honest node in the sum. The honest node beside a gap has at most k/2 neighbours on its
own side, so it answers only if t − k/2 colluders stand among the k/2 places of the gap
that it knows. No two gaps overlap. A cut therefore needs two disjoint half-windows
that hold t − k/2 colluders each, and this module bounds the chance of such a pair.

Telling two parts of the ring different survivors needs such a pair as well: each node
at the border wants t signatures, and honest ones come from its own side alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from wallflower.protocol.secure_sum.tails import MARGIN, Draw, log2_binomials


@dataclass(frozen=True, slots=True)
class HalfWindows:
    """Two disjoint half-windows of a shuffled ring.

    Attributes
    ----------
    nodes : n, the places of the ring.
    colluding : how many of them collude; every placement is equally likely.
    degree : k, even and below n − 1; a half-window has k/2 places.
    """

    nodes: int
    colluding: int
    degree: int

    @property
    def pairs(self) -> int:
        """Return an upper bound of the number of pairs of half-windows."""
        return self.nodes * (self.nodes - 1) // 2

    def both_hold(self, colluders: int) -> Fraction:
        """Return the exact chance that two given half-windows hold so many each."""
        half = self.degree // 2
        chance = Fraction(0)
        honest = self.nodes - self.colluding
        for held in range(2 * colluders, min(self.degree, self.colluding) + 1):
            splits = sum(
                math.comb(half, i) * math.comb(half, held - i)
                for i in range(max(colluders, held - half), held - colluders + 1)
            )
            placements = math.comb(self.colluding, held) * math.comb(
                honest, self.degree - held
            )
            chance += Fraction(placements * splits, math.comb(self.degree, held))
        return chance / math.comb(self.nodes, self.degree)

    def rarely_hold(self, colluders: int, bits: int) -> bool:
        """Decide pairs · P[both hold so many] ≤ 2^-bits, by floats where they do."""
        if 2 * colluders > min(self.degree, self.colluding):
            return True
        gap = self._log2_both_hold(colluders) + math.log2(self.pairs) + bits
        if abs(gap) < MARGIN:
            return bool(self.pairs * self.both_hold(colluders) * 2**bits <= 1)
        return gap < 0

    def _log2_both_hold(self, colluders: int) -> float:
        half = self.degree // 2
        ways = log2_binomials(half, half)[colluders:]
        masses = Draw(self.nodes, self.colluding, self.degree).log2_masses()
        placement = masses - log2_binomials(self.degree, self.degree)
        held = np.arange(colluders, half + 1)
        together = ways[:, None] + ways + placement[held[:, None] + held]
        return float(np.logaddexp2.reduce(together, axis=None))
