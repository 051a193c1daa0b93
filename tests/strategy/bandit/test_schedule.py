from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallflower.protocol.errors import InputError
from wallflower.strategy.bandit.failure_budget import Shares
from wallflower.strategy.bandit.schedule import Schedule


def test_sizes_of_the_paper_are_powers_of_two() -> None:
    assert [Schedule(Fraction(2)).size(b) for b in range(1, 6)] == [2, 4, 8, 16, 32]


def test_a_size_beyond_doubles_is_still_exact() -> None:
    assert Schedule(Fraction(3, 2)).size(150) == -(-(3**150) // 2**150)


def test_a_first_size_starts_the_schedule() -> None:
    assert [Schedule(Fraction(3, 2), 7).size(b) for b in (1, 2, 3)] == [7, 11, 16]


@pytest.mark.parametrize("ratio", [Fraction(1), Fraction(1, 2), Fraction(101)])
def test_a_ratio_that_does_not_grow_is_refused(ratio: Fraction) -> None:
    with pytest.raises(InputError, match="ratio"):
        Schedule(ratio)


@given(st.integers(1, 10**7), st.integers(1, 50))
def test_batches_within_counts_only_whole_batches(users: int, first: int) -> None:
    schedule = Schedule(Fraction(3, 2), first)
    count = schedule.batches_within(users)
    spent = sum(schedule.size(b) for b in range(1, count + 1))
    assert spent <= users < spent + schedule.size(count + 1)


@given(
    st.fractions(Fraction(1, 10**6), Fraction(1, 2)),
    st.integers(2, 100),
    st.integers(1, 60),
    st.sampled_from([None, 60, 75]),
)
def test_all_shares_of_a_batch_sum_to_at_most_its_share(
    failure: Fraction, arms: int, batch: int, batches: int | None
) -> None:
    shares = Shares(failure, batches)
    wrap = shares.wrap(batch, arms)
    share = shares.batch(batch)
    assert arms * wrap + (arms - 1) * shares.pair(batch, arms) <= share
    assert arms * wrap + 2 * arms * shares.side(batch, arms) <= share
    assert 100 * arms * wrap <= share
    assert wrap.numerator == 1


def test_ten_thousand_batches_spend_less_than_the_failure_probability() -> None:
    failure = Fraction(1, 10)
    spent = sum(float(Shares(failure).batch(b)) for b in range(1, 10_001))
    assert 0.998 * 0.1 < spent < 0.1


@pytest.mark.parametrize("batches", [1, 2, 7, 40])
def test_a_bounded_number_of_batches_spends_the_failure_probability_and_no_more(
    batches: int,
) -> None:
    shares = Shares(Fraction(1, 10), batches)
    spent = sum(shares.batch(b) for b in range(1, batches + 1))
    assert Fraction(9, 100) < spent <= Fraction(1, 10)
    late = sum(shares.batch(batches + k) for k in range(1, 1000))
    assert 0 < late < Fraction(1, 10) - spent


@pytest.mark.parametrize("first", [None, 1, 7, 20])
@pytest.mark.parametrize(
    "ratio", ["2", "3/2", "6/5", "1001/1000", "1000001/1000000", "100"]
)
def test_sizes_are_those_of_the_exact_fractions(ratio: str, first: int | None) -> None:
    schedule = Schedule(Fraction(ratio), first)
    for batch in (1, 2, 3, 10, 33, 300):
        exact = (
            Fraction(ratio) ** batch
            if first is None
            else first * Fraction(ratio) ** (batch - 1)
        )
        assert schedule.size(batch) == math.ceil(exact)


def test_a_schedule_of_very_many_batches_takes_few_digits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Fraction ** 25,000 has half a million digits.
    monkeypatch.setattr(Fraction, "__pow__", None)
    assert Schedule(Fraction(10**6 + 1, 10**6), 20).batches_within(10**6) == 47_619
