"""What `verify` finds in the seats of a record that somebody made up."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator, Sequence

import pytest

from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.strategy.config import ExperimentConfig, ExperimentSettings
from wallflower.strategy.run.arriving.deck import find_unfair_seats
from wallflower.strategy.run.arriving.seated_round import deck_source
from wallflower.strategy.run.replay import RecordedFacts
from wallflower.strategy.sections import TestSettings
from wallflower.strategy.store.entries import SUMMED, VOID, CohortRecord, Retirement
from wallflower.strategy.store.seats import SeatCounts, SeatedRecord, SeatRecord

# A cohort and who took the seat; "-" stayed free.
FAIR = ("a one", "b two", "b three", "a four", "a -", "b -")


def record(seats: Sequence[str], arms: Sequence[int] = (0, 1)) -> RecordedFacts:
    """Return a record with one deck of two cohorts."""
    rows = [
        SeatRecord(cohort, None if visitor == "-" else visitor, visitor != "-")
        for cohort, visitor in (seat.split() for seat in seats)
    ]

    def read_seats(cohort_ids: Sequence[str]) -> Iterator[SeatRecord]:
        return iter(rows)

    of_one = len(seats) // 2
    return RecordedFacts(
        config=ExperimentConfig(ExperimentSettings("test", ("a", "b"))),
        cohorts=[
            CohortRecord(name, 1, 1, arm, number, of_one, b"")
            for number, (name, arm) in enumerate(zip("ab", arms, strict=True), 1)
        ],
        specs={name: CohortSpec(cohort_size=of_one) for name in "ab"},
        invited={},
        rounds=(),
        returned=set(),
        blame={},
        members=set(),
        keys={},
        retired={},
        meetings={},
        links=(),
        seated={
            name: SeatedRecord(
                name,
                1,
                arm,
                seats=of_one,
                seats_until=1.0,
                answers_until=2.0,
                is_closed=True,
                counts=SeatCounts(),
            )
            for name, arm in zip("ab", arms, strict=True)
        },
        read_seats=read_seats,
    )


def test_a_fair_deck_raises_no_question() -> None:
    assert list(find_unfair_seats(record(FAIR))) == []


@pytest.mark.parametrize(
    ("seats", "problem"),
    [
        (("a 1", "a 2", "b 3", "b 4", "a -", "b -"), "a block of its seats has an arm"),
        (("a 1", "b 1", "b 3", "a 4", "a -", "b -"), "visitor 1 has two of its seats"),
        (
            [seat for number in range(12) for seat in (f"a {number}", "b -")],
            "11 seats stayed free although later ones were taken",
        ),
        (("a 1", "b 2", "a 3", "b 4", "a 5"), "its last block lacks an arm"),
    ],
    ids=["order", "twice", "one-sided", "cut"],
)
def test_an_unfair_deck_is_named(seats: Sequence[str], problem: str) -> None:
    assert any(problem in found for found in find_unfair_seats(record(seats)))


@pytest.mark.parametrize("retired", [False, True])
def test_seats_stay_free_where_an_arm_was_retired_before_the_round_ended(
    retired: bool,
) -> None:
    facts = record([seat for number in range(12) for seat in (f"a {number}", "b -")])
    changed = dataclasses.replace(
        facts,
        cohorts=[
            dataclasses.replace(one, state=VOID if one.arm == 1 else SUMMED)
            for one in facts.cohorts
        ],
        retired={1: Retirement(1, 1, "too dear")} if retired else {},
    )
    assert bool(list(find_unfair_seats(changed))) != retired


def test_two_cohorts_of_one_arm_are_no_deck() -> None:
    found = list(find_unfair_seats(record(FAIR, arms=(0, 0))))
    assert found == ["deck 1 has two cohorts of one arm"]


def test_the_order_of_a_deck_comes_from_the_system_but_in_test_mode() -> None:
    config = ExperimentConfig(ExperimentSettings("test", ("a", "b")))
    assert isinstance(deck_source(config, CohortSpec(batch=1)), random.SystemRandom)
    seeded = dataclasses.replace(config, test=TestSettings(noise_seed=7))
    first, again, second = (
        deck_source(seeded, CohortSpec(batch=batch)).random() for batch in (1, 1, 2)
    )
    assert first == again != second
