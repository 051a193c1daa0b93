from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from wallflower.protocol.errors import InputError
from wallflower.protocol.secure_sum.secagg_plus import mask_info, mask_value
from wallflower.protocol.secure_sum.secret_shares import uniform_integers

# False-alarm rate of each χ² test below: 1e-6 (randomness is the system's).
ALPHA = 1e-6


@pytest.mark.parametrize("modulus", [1, 2, 7, 48, 64, 97])
def test_draws_are_uniform(modulus: int) -> None:
    drawn = uniform_integers(20_000, modulus)
    assert drawn.max() < modulus
    if modulus > 1:
        counts = np.bincount(drawn.astype(np.int64), minlength=modulus)
        assert stats.chisquare(counts).pvalue > ALPHA


def test_draws_just_above_a_power_of_two_are_not_folded() -> None:
    """Reducing 62 random bits mod 3·2^60 would hit the lowest third twice as often."""
    modulus = 3 * 2**60
    drawn = uniform_integers(30_000, modulus)
    thirds = np.bincount((drawn // np.uint64(2**60)).astype(np.int64), minlength=3)
    assert stats.chisquare(thirds).pvalue > ALPHA


@pytest.mark.parametrize("modulus", [0, -3, 2**62 + 1])
def test_impossible_moduli_are_refused(modulus: int) -> None:
    with pytest.raises(InputError, match="modulus"):
        uniform_integers(1, modulus)


@pytest.mark.parametrize("modulus", [2, 10, 48, 3 * 2**60])
def test_masks_are_uniform_for_any_modulus(modulus: int) -> None:
    info = mask_info(b"c" * 32, "pair")
    cells = min(modulus, 48)
    counts = np.zeros(cells, dtype=np.int64)
    for seed in range(20_000):
        value = mask_value(seed.to_bytes(32, "big"), info, modulus)
        assert 0 <= value < modulus
        counts[value * cells // modulus] += 1
    assert stats.chisquare(counts).pvalue > ALPHA


def test_masks_differ_by_cohort_and_purpose() -> None:
    seed, modulus = b"s" * 32, 2**61 - 1
    values = {
        mask_value(seed, mask_info(context, purpose), modulus)
        for context in (b"a" * 32, b"b" * 32)
        for purpose in ("self", "pair")
    }
    assert len(values) == 4
