from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from wallflower.protocol.errors import InputError
from wallflower.protocol.secure_sum.primes import smallest_prime_at_least
from wallflower.protocol.secure_sum.shamir import (
    Residues,
    _times_small,
    evaluate,
    share_integer,
    share_integers,
)
from wallflower.protocol.secure_sum.uniform import uniform_integers

NEAR_LARGEST = 2**62 - 57
MODULI = [97, 65537, 2**31 - 1, smallest_prime_at_least(2**31), 2**61 - 1, NEAR_LARGEST]


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


def test_a_thousand_holders_near_the_largest_modulus_are_exact() -> None:
    row = [NEAR_LARGEST - 1] * 40
    constants = np.array(row[:1], dtype=np.uint64)
    coefficients = np.array(row[1:], dtype=np.uint64).reshape(39, 1)
    got = evaluate(constants, coefficients, 1000, NEAR_LARGEST)[:, 0].tolist()
    assert got[999] == (
        sum(-pow(1000, j, NEAR_LARGEST) for j in range(40)) % NEAR_LARGEST
    )


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
        share_integer(1, threshold, holders, 97)


def test_a_field_smaller_than_its_holders_is_refused() -> None:
    with pytest.raises(InputError, match="modulus"):
        share_integer(1, 2, 7, 7)


def test_a_secret_outside_the_field_is_refused_and_not_shown() -> None:
    with pytest.raises(InputError) as caught:
        share_integer(123456, 2, 3, 97)
    assert "123456" not in str(caught.value)


def test_sharing_draws_t_minus_1_fresh_coefficients_and_uses_them_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn = []

    def draw(count: int, modulus: int) -> Residues:
        drawn.append(uniform_integers(count, modulus))
        return drawn[-1]

    monkeypatch.setattr("wallflower.protocol.secure_sum.shamir.uniform_integers", draw)
    shares = share_integer(5, 4, 6, 97)
    (coefficients,) = drawn
    assert coefficients.shape == (3,)
    expected = evaluate(
        np.array([5], dtype=np.uint64), coefficients.reshape(3, 1), 6, 97
    )
    assert shares == expected[:, 0].tolist()


@given(st.sampled_from([2**31 + 11, 2**61 - 1, NEAR_LARGEST]), st.data())
def test_products_next_to_a_multiple_of_the_modulus_are_exact(
    modulus: int, data: st.DataObject
) -> None:
    """Where the double's quotient is off by one, either way."""
    x = data.draw(st.integers(2, 2**20))
    quotient = data.draw(st.integers(1, x - 1))
    near = [quotient * modulus // x + step for step in (-1, 0, 1, 2)]
    values = [value for value in near if 0 <= value < modulus]
    got = _times_small(
        np.array(values, dtype=np.int64), np.array([x], dtype=np.int64), modulus
    )
    assert got.tolist() == [value * x % modulus for value in values]


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
