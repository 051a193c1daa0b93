from __future__ import annotations

import dataclasses
import re
from fractions import Fraction
from pathlib import Path

import pytest

from wallflower.planning.plan import Plan, make_plan
from wallflower.planning.request import PlanRequest, read_request
from wallflower.planning.shuffled import messages_sentence, sent_by_user
from wallflower.planning.units import Question
from wallflower.planning.view import plan_json, print_plan
from wallflower.protocol.accounting.truncation import truncation
from wallflower.protocol.errors import InputError
from wallflower.protocol.noise.bits import SeededBits
from wallflower.stated_experiment import StatedExperiment
from wallflower.strategy.bandit.policies import build_policy
from wallflower.strategy.bandit.policy import CohortSum
from wallflower.strategy.config import load_config

REQUEST = PlanRequest(
    arms=4,
    horizon=20_000,
    epsilon=Fraction(1, 2),
    mechanism="dist-dp",
    scale=Fraction(10),
    ratio=Fraction(3, 2),
    first_batch=24,
    floor=Fraction(4, 5),
    corrupt=Fraction(1, 10),
    participations=1,
    failure_probability=Fraction(1, 20),
    gaps=(Fraction(2, 5), Fraction(1, 5)),
)


def planned(**changes: object) -> Plan:
    return make_plan(dataclasses.replace(REQUEST, **changes))  # type: ignore[arg-type]


def test_the_first_batch_is_the_one_the_policy_will_request() -> None:
    plan = planned()
    next_cohorts = build_policy(REQUEST.policy()).next_cohorts()
    cohort = plan.batches[0].cohort
    assert [cohort_request.size for cohort_request in next_cohorts] == [
        cohort.cohort_size
    ] * 4
    same = plan.policy.calibrated(
        cohort.cohort_size, cohort.honest_floor, next_cohorts[0].wrap_probability
    )
    assert same is cohort


def test_batches_end_where_the_horizon_does() -> None:
    plan = planned()
    assert plan.batches[-1].users <= 20_000
    further = planned(horizon=10**6).batches[len(plan.batches)]
    assert further.users > 20_000


def test_users_add_up_over_arms_and_batches() -> None:
    total = 0
    for batch in planned().batches:
        total += 4 * batch.cohort.cohort_size
        assert batch.users == total


def test_later_batches_tell_smaller_gaps_apart() -> None:
    gaps = [batch.separates for batch in planned().batches]
    assert gaps == sorted(gaps, reverse=True)


def test_a_gap_is_priced_by_the_first_batch_that_tells_it_apart() -> None:
    plan = planned()
    for cost in plan.gaps:
        assert cost.batch is not None
        batch, before = plan.batches[cost.batch - 1], plan.batches[cost.batch - 2]
        assert batch.separates <= cost.gap < before.separates
        assert cost.users == batch.users == 4 * (cost.users_per_arm or 0)


def test_a_gap_beyond_the_horizon_is_priced_too() -> None:
    (cost,) = planned(gaps=(Fraction(1, 100),)).gaps
    assert cost.users is not None
    assert cost.users > 20_000


def test_a_gap_that_no_reasonable_number_tells_apart_has_no_price() -> None:
    (cost,) = planned(mechanism="central-dp", gaps=(Fraction(1, 10**6),)).gaps
    assert cost.users is None


def test_more_privacy_needs_more_users() -> None:
    strict = planned(mechanism="central-dp", epsilon=Fraction(1, 10)).gaps[0].users
    loose = planned(mechanism="central-dp", epsilon=Fraction(2)).gaps[0].users
    assert strict is not None
    assert loose is not None
    assert strict > loose


def test_a_pure_promise_says_the_factor_and_who_must_answer() -> None:
    sentence = planned().sentence
    assert "more than a factor of 1.65 (ε = 0.5)" in sentence
    assert "at most 10 % of the run's nodes work with the operator" in sentence
    assert "at least 80 % of its people answer honestly" in sentence


def test_a_renyi_promise_is_worded_as_epsilon_delta_and_not_by_exceptions() -> None:
    plan = planned(mechanism="dist-rdp")
    assert "one in a million added" in plan.sentence
    assert "except" not in plan.sentence
    # The exact trade-off, below the 2.42 of the conversion.
    assert 2.2 < plan.equivalents[1].epsilon < 2.42


def test_the_loss_exceeded_with_probability_delta_is_larger_than_epsilon() -> None:
    plan = planned(mechanism="dist-rdp")
    assert plan.losses[1] == pytest.approx(2.502, abs=0.01)
    for loss, bound in zip(plan.losses, plan.equivalents, strict=True):
        assert loss > bound.epsilon


def test_returning_users_get_the_smaller_bound() -> None:
    plan = planned(epsilon=Fraction(1, 10), participations=10)
    assert plan.returning[0].epsilon <= 1.0
    assert "(ε = 1)" in plan.sentence
    assert "takes part 10 times" in plan.sentence


def test_the_delta_of_returning_users_is_written_as_everywhere(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_plan(planned(participations=300), "text")
    said = capsys.readouterr().out
    assert "(δ = 10⁻⁶)" in said
    assert "1e-06" not in said


def test_equivalents_grow_as_exceptions_get_rarer() -> None:
    equivalents = planned(mechanism="dist-cdp").equivalents
    values = [bound.epsilon for bound in equivalents]
    assert values == sorted(values)


def test_missing_shares_below_the_floor_would_cost_privacy() -> None:
    losses = [effect.epsilon for effect in planned().dropouts]
    assert losses[0] == 0.5
    assert losses == sorted(losses)
    assert losses[-1] > 1


@pytest.mark.parametrize("mechanism", ["central-dp", "local-dp"])
def test_dropouts_cost_nothing_where_nobody_counts_on_others(mechanism: str) -> None:
    assert planned(mechanism=mechanism).dropouts == ()


def test_non_private_promises_nothing() -> None:
    plan = planned(mechanism="non-private")
    assert plan.guarantee.epsilon is None
    assert "Nothing is promised" in plan.sentence


def test_a_horizon_without_room_for_one_batch_says_what_it_takes() -> None:
    with pytest.raises(InputError, match=r"horizon is 30; allowed: at least \d+: \d+"):
        planned(horizon=30)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("gaps", (Fraction(0),)),
        ("gaps", (Fraction(3, 2),)),
        ("floor", Fraction(0)),
        ("floor", Fraction(11, 10)),
        ("participations", 0),
        ("arms", 1),
        ("ratio", Fraction(1)),
        ("mechanism", "dist-pd"),
    ],
)
def test_settings_that_make_no_sense_are_refused(field: str, value: object) -> None:
    with pytest.raises(InputError):
        planned(**{field: value})


def test_the_stated_users_do_tell_the_stated_gap_apart() -> None:
    # 100 experiments of two arms 0.4 apart with a fixed seed. The plan's batch decides
    # each with probability 0.95 by a bound that is far from tight, so fewer than 95
    # decided has a chance below 10⁻⁹; a plan for half the gap decides about half.
    request = dataclasses.replace(REQUEST, arms=2, gaps=(Fraction(2, 5),))
    cost = make_plan(request).gaps[0]
    assert cost.batch is not None
    decided = sum(
        decided_by(request, cost.batch, SeededBits.derived(7, run))
        for run in range(100)
    )
    assert decided >= 95


def decided_by(request: PlanRequest, batches: int, bits: SeededBits) -> bool:
    policy = build_policy(request.policy())
    spec = request.policy()
    for _ in range(batches):
        outcomes = []
        for cohort_request in policy.next_cohorts():
            one = spec.calibrated(
                cohort_request.size,
                spec.floor(cohort_request.size),
                cohort_request.wrap_probability,
            )
            noise = one.total_noise()
            assert noise is not None
            # Bernoulli rewards of mean 0.7 and 0.3: one word of bits each.
            uniform = bits.words(cohort_request.size) / 2.0**64
            good = int((uniform < (0.7, 0.3)[cohort_request.arm]).sum())
            total = good * one.precision + int(noise.sample(1, bits)[0])
            outcomes.append(
                CohortSum(
                    cohort_request.batch,
                    cohort_request.arm,
                    cohort_request.size,
                    one.honest_floor,
                    cohort_request.size,
                    one.precision,
                    total,
                )
            )
        policy.observe(outcomes)
        if policy.finished:
            break
    return not policy.arms()[1].active


def test_a_plan_through_a_shuffler_counts_its_messages() -> None:
    plan = planned(mechanism="shuffle-dp")
    batch = plan_json(plan)["batches"][-1]
    messages = batch["messages_per_user"]
    assert 500 < messages < 4000
    assert batch["sealed_bytes_per_user"] == 49 * messages
    assert plan.guarantee.epsilon == Fraction(1, 2)
    assert "the shuffler does not work with the operator" in plan.sentence


def test_a_plan_of_mixed_sums_states_a_delta_and_a_dozen_messages() -> None:
    plan = planned(shuffle="mixed", participations=2)
    told = plan_json(plan)
    batch = told["batches"][-1]
    assert 10 < batch["messages_per_user"] < 40
    assert batch["sealed_bytes_per_user"] > 1136 * batch["messages_per_user"]
    assert told["guarantee"]["privacy_delta"] == 2**-40
    assert "δ = 2⁻³⁹" in plan.sentence  # of both participations
    assert "the shuffler does not work with the operator" in plan.sentence
    assert plan.batches[-1].separates == planned().batches[-1].separates


@pytest.mark.parametrize(
    ("settings", "other"),
    [
        ({"mechanism": "shuffle-dp"}, r"mode mixed .* \d\d messages, .* kB,.* a δ of"),
        ({"shuffle": "mixed"}, r"mode pure .* \d,\d\d\d messages, .* without a δ"),
    ],
)
def test_a_shuffled_plan_says_beside_its_own_cost_what_the_other_mode_would_take(
    settings: dict[str, str], other: str
) -> None:
    cohort = planned(**settings).batches[-1].cohort
    sent = sent_by_user(cohort)
    assert sent is not None
    said = messages_sentence(cohort, sent)
    assert f"sends {sent.messages:,} messages, " in said
    assert " s of a slow phone's core" in said
    assert re.search(other, said)


@pytest.mark.parametrize(
    ("mechanism", "shuffle"),
    [("dist-dp", "pure"), ("shuffle-dp", "mixed"), ("dist-rdp", "mixed")],
)
def test_a_plan_that_no_shuffler_can_keep_is_refused(
    mechanism: str, shuffle: str
) -> None:
    with pytest.raises(InputError):
        planned(mechanism=mechanism, shuffle=shuffle)


def test_what_missing_people_cost_is_told_of_a_shuffled_plan_too() -> None:
    effects = planned(mechanism="shuffle-dp").dropouts
    assert [effect.epsilon for effect in effects] == sorted(e.epsilon for e in effects)
    assert effects[-1].epsilon > 1


def test_the_plan_says_what_one_liar_moves_with_and_without_proofs() -> None:
    plan = planned()
    for batch, lie in zip(plan.batches, plan.lies, strict=True):
        cohort = batch.cohort
        assert lie.people == cohort.cohort_size
        assert lie.trusted >= 1  # the whole of the rewards' range, and the noise's
        bound = truncation(cohort).bound
        largest = cohort.precision + 2 * bound
        assert lie.proved == pytest.approx(
            largest / (cohort.precision * cohort.cohort_size)
        )
    assert plan.lies[-1].proved < 0.1 * plan.lies[-1].trusted


def test_a_plan_without_meaning_promises_no_proofs() -> None:
    assert planned(epsilon=Fraction(100), mechanism="dist-rdp").lies == ()


def test_rare_outcomes_typically_need_far_fewer_users_than_the_worst_case() -> None:
    (cost,) = planned(gaps=(Fraction(1, 20),), base_rate=Fraction(1, 20)).gaps
    (even,) = planned(gaps=(Fraction(1, 20),)).gaps
    assert cost.typically is not None
    assert even.typically is not None
    assert cost.users == even.users
    assert 2 * cost.typically < even.typically < (even.users or 0)


def test_an_experiments_file_is_planned_and_flags_override_it() -> None:
    path = Path("examples/headline.toml")
    config = load_config(path)
    question = Question(REQUEST.gaps, REQUEST.base_rate)
    flags = {"epsilon": REQUEST.epsilon}
    found = read_request(StatedExperiment(config), flags, question)
    assert found.arms == len(config.experiment.arms)
    assert found.horizon == config.horizon
    assert found.epsilon == REQUEST.epsilon
