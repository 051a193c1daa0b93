from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from wallflower.protocol.errors import InputError
from wallflower.protocol.secure_sum.secret_shares import (
    Residues,
    evaluate,
    share_integers,
    uniform_integers,
)

LARGEST = 2**31 - 1
MODULI = [97, 65537, LARGEST]
ONE = np.array([1], dtype=np.uint64)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(MODULI), st.integers(1, 60), st.integers(0, 12), st.data())
def test_values_are_those_of_exact_polynomials(
    modulus: int, holders: int, degree: int, data: st.DataObject
) -> None:
    residues = st.integers(0, modulus - 1)
    # Residues near m are where a product is largest.
    edges = st.one_of(residues, st.sampled_from([0, 1, modulus - 2, modulus - 1]))
    row = data.draw(st.lists(edges, min_size=degree + 1, max_size=degree + 1))
    constants = np.array(row[:1], dtype=np.uint64)
    coefficients = np.array(row[1:], dtype=np.uint64).reshape(degree, 1)
    got = evaluate(constants, coefficients, holders, modulus)[:, 0].tolist()
    expected = [
        sum(c * pow(x, j, modulus) for j, c in enumerate(row)) % modulus
        for x in range(1, holders + 1)
    ]
    assert got == expected


def test_a_thousand_holders_in_the_largest_field_are_exact() -> None:
    row = [LARGEST - 1] * 40
    constants = np.array(row[:1], dtype=np.uint64)
    coefficients = np.array(row[1:], dtype=np.uint64).reshape(39, 1)
    got = evaluate(constants, coefficients, 1000, LARGEST)[:, 0].tolist()
    assert got[999] == (sum(-pow(1000, j, LARGEST) for j in range(40)) % LARGEST)


def test_any_t_minus_1_shares_are_uniform_whatever_the_secret() -> None:
    """Exact: over all polynomials of degree < 3 in ℤ_5, by enumeration."""
    modulus, holders = 5, 4
    for pair in itertools.combinations(range(holders), 2):
        views: dict[int, Counter[tuple[int, ...]]] = {}
        for secret in range(modulus):
            seen = views.setdefault(secret, Counter())
            for row in itertools.product(range(modulus), repeat=2):
                shares = evaluate(
                    np.array([secret], dtype=np.uint64),
                    np.array(row, dtype=np.uint64).reshape(2, 1),
                    holders,
                    modulus,
                )[:, 0].tolist()
                seen[tuple(shares[index] for index in pair)] += 1
        assert all(view == views[0] for view in views.values())
        assert set(views[0].values()) == {1}
        assert len(views[0]) == modulus**2


@pytest.mark.parametrize(("threshold", "holders"), [(0, 3), (4, 3), (1, 0)])
def test_impossible_thresholds_are_refused(threshold: int, holders: int) -> None:
    with pytest.raises(InputError, match="threshold"):
        share_integers(ONE, threshold, holders, 97)


@pytest.mark.parametrize("modulus", [7, 2**31 + 11])
def test_a_field_smaller_than_its_holders_or_too_large_is_refused(modulus: int) -> None:
    with pytest.raises(InputError, match="modulus"):
        share_integers(ONE, 2, 7, modulus)


def test_sharing_draws_t_minus_1_fresh_coefficients_and_uses_them_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn = []

    def draw(count: int, modulus: int) -> Residues:
        drawn.append(uniform_integers(count, modulus))
        return drawn[-1]

    monkeypatch.setattr(
        "wallflower.protocol.secure_sum.secret_shares.uniform_integers", draw
    )
    shares = share_integers(np.array([5], dtype=np.uint64), 4, 6, 97)
    (coefficients,) = drawn
    assert coefficients.shape == (3,)
    expected = evaluate(
        np.array([5], dtype=np.uint64), coefficients.reshape(3, 1), 6, 97
    )
    assert shares.tolist() == expected.tolist()


@pytest.mark.parametrize("threshold", [2, 3, 4])
def test_one_share_too_few_tells_nothing_of_the_secret(threshold: int) -> None:
    """All t − 1 shares together are uniform on ℤ₅^(t−1), for either secret."""
    draws, cells = 20_000, 5 ** (threshold - 1)
    for secret in (0, 3):
        secrets_ = np.full(draws, secret, dtype=np.uint64)
        shares = share_integers(secrets_, threshold, 4, 5)[: threshold - 1]
        joint = sum(row.astype(np.int64) * 5**i for i, row in enumerate(shares))
        seen = np.bincount(joint, minlength=cells)
        # Randomness of the system cannot be seeded: a false alarm once in 10⁹ runs.
        assert stats.chisquare(seen).pvalue > 1e-9
