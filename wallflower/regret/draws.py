"""The decoded sum of a cohort, drawn without simulating its users.

Σx̂ is one multinomial draw over {0..g}, the total noise one draw from its own law; the
sum is wrapped and decoded as the analyzer would. Exact in law, O(g) a cohort.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wallflower.protocol.noise.bits import SeededBits
from wallflower.protocol.noise.radix import RadixPlan
from wallflower.protocol.privacy.mechanism import CohortMechanism
from wallflower.protocol.rewards.models import RewardModel
from wallflower.regret.noise import total_noise
from wallflower.regret.simulation import Integers


class CohortDraws:
    """Draws sums of cohorts of a reward model from one seed."""

    def __init__(self, model: RewardModel, seed: int) -> None:
        self._model = model
        self._generator = np.random.default_rng([seed, 1])
        self._bits = SeededBits.derived(seed, "fast engine")

    def totals(
        self,
        arms: NDArray[np.intp],
        cohort: CohortMechanism,
        survivors: int | None = None,
    ) -> Integers:
        """One decoded sum, in units of 1/g, for each entry of `arms`.

        `survivors` of the cohort's users answer; all of them unless told.
        """
        size, precision = cohort.cohort_size, cohort.precision
        came = size if survivors is None else survivors
        sums = self._model.rounded_sums(arms, came, precision, self._generator)
        served = cohort.server_noise()
        shares = cohort.total_noise(came) if served is None else None
        sums += total_noise(shares, len(arms), self._generator, self._bits)
        if cohort.radix is not None:
            sums += self._junk(len(arms), cohort.radix)
        wrapped = sums % cohort.modulus
        beyond = wrapped > size * precision + cohort.noise_bound
        decoded = np.where(beyond, wrapped - cohort.modulus, wrapped)
        # A trusted server adds its noise to the decoded sum, where nothing wraps.
        decoded += total_noise(served, len(arms), self._generator, self._bits)
        return decoded

    def _junk(self, count: int, radix: RadixPlan) -> Integers:
        """Errors of users who drew junk: from its level on, all digits are anything.

        The parity of a junk digit is fair up to far less than the pair budget.
        """
        errors = np.zeros(count, dtype=np.int64)
        draws, chance = radix.parties * radix.levels, float(radix.junk)
        events = self._generator.binomial(draws, chance, size=count)
        for index in np.repeat(np.arange(count), events).tolist():
            level = int(self._generator.integers(radix.levels))
            digits = int(self._generator.integers(1 << (radix.levels - level)))
            errors[index] = (int(errors[index]) + (digits << level)) % radix.modulus
        return errors
