from __future__ import annotations

from fractions import Fraction

import pytest

from wallflower.protocol.privacy.sentences import (
    CohortCondition,
    KeyHolders,
    Promise,
    odds_factor,
    power,
    small,
)
from wallflower.protocol.secure_sum.threat import (
    Threat,
    committee_size,
    graph_size,
    helpers_are_drawn,
)

HALF = Fraction(1, 2)
FIRST = CohortCondition(people=400, honest=308, nodes=32, colluding=4)


def pure(
    *conditions: CohortCondition, trust: str = "distributed", times: int = 1
) -> str:
    return Promise("pure", trust, HALF, conditions=conditions, times=times).sentence()


def renyi(privacy_delta: float = 1e-6) -> str:
    promise = Promise(
        "renyi", "distributed", 0.3969, privacy_delta, conditions=(FIRST,)
    )
    return promise.sentence()


def test_a_pure_promise_states_the_odds_factor_rounded_up() -> None:
    said = pure(FIRST)
    assert "by more than a factor of 1.65 (ε = 0.5)" in said  # e^0.5 = 1.6487


def test_the_condition_of_a_distributed_promise_has_both_halves() -> None:
    assert pure(FIRST).endswith(
        "This holds as long as, in every cohort, at most 4 of 32 nodes work with the "
        "operator and at least 308 of 400 people answer honestly."
    )


def test_the_condition_is_that_of_every_cohort_not_of_the_smallest() -> None:
    said = pure(
        FIRST, CohortCondition(800, 640, 40, 4), CohortCondition(1200, 962, 40, 4)
    )
    assert "at most 4 of 32 or 4 of 40 nodes" in said
    assert "at least 308 of 400, 640 of 800 or 962 of 1,200 people" in said


def test_of_groups_of_one_size_the_most_demanding_counts() -> None:
    said = pure(
        CohortCondition(400, 300, 32, 4), FIRST, CohortCondition(400, 290, 32, 4)
    )
    assert "at least 308 of 400 people" in said


def test_many_sizes_are_summed_up_by_what_suffices_for_all() -> None:
    conditions = [CohortCondition(100 * k, 77 * k, 100 + k, 10) for k in range(1, 8)]
    said = pure(*conditions, CohortCondition(1000, 791, 200, 20))
    assert "at most 9.3 % of its nodes" in said  # 10 of 107, rounded down
    assert "at least 79.1 % of its people" in said


def test_nodes_that_are_not_known_yet_are_bounded_by_the_threat() -> None:
    promise = Promise(
        "pure",
        "distributed",
        HALF,
        conditions=(CohortCondition(50, 40),),
        corrupt=Fraction(1, 10),
    )
    said = promise.sentence()
    assert "at most 10 % of its nodes work with the operator" in said


def test_without_any_slack_nobody_may_collude_or_be_missing() -> None:
    said = pure(CohortCondition(50, 50))
    assert "none of its nodes works with the operator and all of its people" in said


def test_a_draw_of_share_holders_is_said_to_be_one() -> None:
    assert "drawn by lot" not in pure(FIRST)
    assert "a chance below 2⁻⁴⁰" in pure(CohortCondition(400, 308, 100, 10, drawn=True))


def test_delta_is_never_called_the_chance_of_an_exception() -> None:
    said = renyi()
    assert "except" not in said
    assert "more than 1.49 times as likely as after any other outcome, one in a" in said
    assert "differential privacy with ε = 0.3969, δ = 10⁻⁶" in said
    assert "at most 4 of 32 nodes" in said


def test_another_delta_is_written_as_it_is() -> None:
    assert "10⁻⁹ added" in renyi(1e-9)
    assert power(2.5e-7) == "2.5e-07"


def test_delta_and_chances_are_never_written_smaller_than_they_are() -> None:
    assert power(1e-6 + 2.0**-40) == "1.00001e-06"
    assert power(1e-6) == "10⁻⁶"
    assert "1.00001e-06 added" in renyi(1e-6 + 2.0**-40)
    assert [small(chance) for chance in (0.0421, 3.61e-6, 9.99e-6, 0.000999)] == [
        "0.043",
        "3.7·10⁻⁶",
        "1·10⁻⁵",
        "0.001",
    ]


def test_who_trusts_the_server_is_told_so() -> None:
    said = pure(FIRST, trust="server")
    assert "nobody who sees the published results" in said
    assert said.endswith("if the server that sees every outcome is trusted.")
    assert "nodes" not in said


def test_local_noise_has_no_condition() -> None:
    assert pure(FIRST, trust="nobody").endswith("(ε = 0.5).")


def test_who_returns_is_told_how_often() -> None:
    assert "also to who takes part 10 times" in pure(FIRST, times=10)


def test_nothing_is_promised_without_noise() -> None:
    said = Promise("none", "server", float("inf")).sentence()
    assert said.startswith("Nothing is promised")


def test_a_factor_beyond_reading_stays_a_power() -> None:
    assert odds_factor(Fraction(100)) == "e^100"


@pytest.mark.parametrize("malicious", [False, True])
@pytest.mark.parametrize("nodes", [4, 5, 10, 32, 64])
@pytest.mark.parametrize("backend", ["sealed", "secagg-plus"])
def test_so_many_colluders_as_stated_cannot_open_a_single_value(
    backend: str, nodes: int, malicious: bool
) -> None:
    threat = Threat(Fraction(1, 10), Fraction(1, 10), malicious)
    size = committee_size if backend == "sealed" else graph_size
    assert not helpers_are_drawn(backend, threat, nodes)
    assert threat.corrupt_nodes(nodes) < size(threat, nodes).threshold


@pytest.mark.parametrize("backend", ["sealed", "secagg-plus"])
def test_above_64_nodes_share_holders_are_drawn(backend: str) -> None:
    assert helpers_are_drawn(backend, Threat(Fraction(1, 10), Fraction(1, 10)), 500)


def test_five_of_32_nodes_are_one_too_many() -> None:
    threat = Threat(Fraction(1, 10), Fraction(1, 10))
    assert threat.corrupt_nodes(32) == 4
    assert committee_size(threat, 32).threshold == 5


def test_a_shuffled_promise_names_the_shuffler_and_the_people() -> None:
    assert pure(FIRST, trust="shuffler").endswith(
        "(ε = 0.5). This holds as long as the shuffler does not work with the operator "
        "and, in every cohort, at least 308 of 400 people answer honestly."
    )


def test_sealed_sums_state_whom_the_key_was_dealt_among_and_every_cohort() -> None:
    promise = Promise(
        kind="pure",
        trust="distributed",
        epsilon=Fraction(1),
        privacy_delta=2.0**-40,
        conditions=(CohortCondition(400, 308),),
        keys=(KeyHolders(100, 10, drawn=True),),
    )
    sentence = promise.sentence()
    assert "at most 10 of 100 nodes, among which the run's key was dealt" in sentence
    assert "in every cohort, at least 308 of 400 people answer honestly" in sentence
    assert "drawn by lot" in sentence
    assert "δ = 2⁻⁴⁰" in sentence
    undealt = Promise(
        "pure", "distributed", Fraction(1), keys=(), corrupt=Fraction(1, 10)
    )
    assert "at most 10 % of the run's nodes" in undealt.sentence()
