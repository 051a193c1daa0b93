from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from tests.support.orchestration import world
from wallflower.protocol.accounting.exact import approximate, returning_users
from wallflower.protocol.cohort import cohort_mechanism, to_rational
from wallflower.protocol.numbers import round_up
from wallflower.protocol.privacy.honest_floor import Floor, cohort_floor
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.strategy.bandit.policy import CohortRequest
from wallflower.strategy.config import (
    ExperimentConfig,
    ExperimentSettings,
    PrivacySettings,
)
from wallflower.strategy.run import spending
from wallflower.strategy.run.cohort import describe_cohort
from wallflower.strategy.run.spending import (
    Spending,
    build_promise,
    describe_condition,
    read_spend,
    recount_spend,
)
from wallflower.strategy.sections import SecureSumSettings
from wallflower.strategy.store.entries import CohortRecord
from wallflower.strategy.store.journal import Journal

TENTH = Fraction(1, 10)


def asked(
    size: int,
    nodes: int = 10,
    *,
    mechanism: str = "dist-dp",
    scale: str = "10",
    sums: SecureSumSettings | None = None,
    floor: Floor | None = None,
) -> tuple[CohortSpec, int]:
    config = ExperimentConfig(
        ExperimentSettings("test", ("a", "b")),
        PrivacySettings(epsilon=TENTH, mechanism=mechanism, scale=Fraction(scale)),
        secure_sum=sums or SecureSumSettings(backend="secagg-plus"),
    )
    if floor is None:
        floor = cohort_floor([size // nodes] * nodes, TENTH, TENTH)
    cohort_request = CohortRequest(1, 0, size, Fraction(1, 10**6))
    return describe_cohort(config, "run", cohort_request, floor, 1), nodes


def approximate_of(spec: CohortSpec) -> float:
    return approximate(cohort_mechanism(spec), 1e-6).epsilon


@pytest.mark.parametrize("turned", [False, True])
def test_a_run_promises_what_its_weakest_cohort_does(turned: bool) -> None:
    # Which of g = 1 and g = 10 is weaker is a matter of the exact trade-off.
    strong = asked(20, mechanism="dist-rdp", scale="1")
    weak = asked(10_000, mechanism="dist-rdp", scale="1")
    cohorts = [strong, weak] if turned else [weak, strong]
    spend = Spending(cohorts).compute(1, test_mode=False)
    assert spend.approximate_epsilon == round_up(approximate_of(weak[0]))
    assert approximate_of(weak[0]) > approximate_of(strong[0]) + 1e-3


@pytest.mark.parametrize("turned", [False, True])
def test_the_epsilon_of_one_cohort_is_the_largest_of_all(turned: bool) -> None:
    sizes = (20, 10_000)  # sums of discrete Gaussians differ in their excess
    cohorts = [asked(size, mechanism="dist-cdp", scale="1.5") for size in sizes]
    levels = [cohort_mechanism(spec).guarantee().epsilon for spec, _ in cohorts]
    assert len(set(levels)) == 2
    spend = Spending(cohorts[::-1] if turned else cohorts).compute(1, test_mode=False)
    assert spend.epsilon == max(level or 0 for level in levels)


def test_a_pure_run_adds_up_what_the_busiest_user_spent() -> None:
    spend = Spending([asked(100)]).compute(3, test_mode=False)
    assert spend.total_epsilon == Fraction(3, 10)
    assert build_promise(spend).epsilon == Fraction(3, 10)
    assert build_promise(spend).privacy_delta == 0


@pytest.mark.parametrize("times", [1, 3])
def test_mixed_sums_state_what_mixing_adds_to_delta(times: int) -> None:
    mixed = SecureSumSettings(backend="shuffle", shuffle="mixed")
    spend = Spending([asked(100, sums=mixed)]).compute(times, test_mode=False)
    assert spend.mixing_delta == times * Fraction(1, 2**40)
    assert spend.total_epsilon == times * TENTH
    promise = build_promise(spend)
    assert promise.privacy_delta == times / 2**40
    assert promise.trust == "shuffler"
    assert "at most 1 of 10 nodes work with the operator" in promise.sentence()
    unmixed = Spending([asked(100)]).compute(times, test_mode=False)
    assert "mixing-delta" not in unmixed.as_json()


@pytest.mark.parametrize("mechanism", ["dist-rdp", "dist-cdp"])
def test_returning_users_are_told_the_exact_composition(mechanism: str) -> None:
    cohorts = [asked(size, mechanism=mechanism) for size in (400, 800)]
    spend = Spending(cohorts).compute(10, test_mode=False)
    mechanisms = [cohort_mechanism(spec) for spec, _ in cohorts]
    best = returning_users(mechanisms, 10, 1e-6)[0]
    assert spend.approximate_epsilon == round_up(best.epsilon)
    assert float(spend.approximate_epsilon or 0) == pytest.approx(1.368, abs=1e-3)


def test_the_condition_of_every_cohort_is_kept() -> None:
    spend = Spending([asked(400, 20), asked(800, 40), asked(400, 20)]).compute(
        1, test_mode=False
    )
    assert [(g.people, g.honest) for g in spend.conditions] == [(400, 320), (800, 640)]
    assert [(g.nodes, g.colluding) for g in spend.conditions] == [(20, 2), (40, 4)]


def test_cohorts_that_differ_only_in_size_are_both_kept() -> None:
    floors = [Floor(size, honest_floor=320, quorum=360) for size in (400, 401)]
    cohorts = [asked(one.cohort_size, 20, floor=one) for one in floors]
    spend = Spending(cohorts).compute(1, test_mode=False)
    assert [(g.people, g.honest) for g in spend.conditions] == [(400, 320), (401, 320)]


def test_a_group_counts_the_nodes_it_was_really_spread_over() -> None:
    spec, _ = asked(400, 20)
    assert describe_condition(spec, 21).colluding == 3  # ⌈21/10⌉


async def test_the_record_says_who_must_be_honest_in_each_cohort(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as there:
        await there.run()
        with Journal.read(there.run_dir) as journal:
            rounds, spend = journal.rounds(), recount_spend(journal)
            specs = {
                (spec.cohort_size, spec.honest_floor)
                for cohort in journal.cohorts()
                for spec in [CohortSpec.FromString(cohort.spec)]
            }
    assert rounds[-1].spent == spend
    assert {(g.people, g.honest) for g in spend.conditions} == specs
    assert spend.keys is not None
    (key,) = spend.keys
    assert (key.nodes, key.colluding) == (20, 2)  # ⌈20/10⌉


async def test_what_was_spent_counts_who_was_asked_since_the_last_round(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as there:
        await there.run()
        with Journal.resume(there.run_dir) as journal:
            assert read_spend(journal) == recount_spend(journal)
            one = journal.cohorts()[0]
            asked_again = {
                node_id: users
                for cohort_id, node_id, users in journal.invitations()
                if cohort_id == one.cohort_id
            }
            spec = CohortSpec.FromString(one.spec)
            spec.cohort_id = "again"
            late = CohortRecord(
                cohort_id="again",
                round_number=99,
                batch=99,
                arm=one.arm,
                attempt=1,
                size=one.size,
                spec=spec.SerializeToString(),
                users=asked_again,
            )
            journal.invite([late])
            spend = read_spend(journal)
            assert spend == recount_spend(journal)
    assert spend.participations == 2


def test_cohorts_that_promise_the_same_are_calibrated_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calibrated: list[str] = []

    def counted(spec: CohortSpec) -> object:
        calibrated.append(spec.cohort_id)
        return cohort_mechanism(spec)

    monkeypatch.setattr(spending, "cohort_mechanism", counted)
    run, alone = Spending(), []
    for number in range(1, 200):
        spec, nodes = asked(100 if number % 2 else 120)
        spec.cohort_id, spec.batch, spec.arm = f"c{number}", number, number % 3
        level = Fraction(1, 10**6 + number)
        spec.wrap_probability.CopyFrom(to_rational(level))
        run.add(spec, nodes)
        alone.append(run.compute(1, test_mode=False))
    assert calibrated == ["c1", "c2"]
    assert alone[1:] == [alone[1]] * 198
    assert len(alone[-1].conditions) == 2
