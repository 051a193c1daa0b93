from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallflower.protocol.cohort import (
    cohort_mechanism,
    from_range,
    from_rational,
    to_range,
    to_rational,
)
from wallflower.protocol.errors import InputError
from wallflower.protocol.privacy.mechanism import mechanism_named
from wallflower.protocol.rewards.reward_range import DEFAULT_RANGE, RewardRange
from wallflower.protocol.secure_sum.context import spec_digest
from wallflower.protocol.wire.cohort_pb2 import CohortSpec, Rational, Threat


def spec(**changes: object) -> CohortSpec:
    fields: dict[str, object] = {
        "run_id": "run",
        "batch": 1,
        "arm": 0,
        "cohort_id": "run/1/0",
        "mechanism": "dist-dp",
        "epsilon": to_rational(Fraction(1, 2)),
        "scale": to_rational(Fraction(10)),
        "wrap_probability": to_rational(Fraction(1, 10_000)),
        "cohort_size": 100,
        "honest_floor": 80,
        "quorum": 90,
        "backend": "sealed",
        "modulus": 10**6 + 3,
        "threat": Threat(corrupt=to_rational(Fraction(1, 10))),
    }
    return CohortSpec(**(fields | changes))  # type: ignore[arg-type]


def test_a_client_derives_the_servers_mechanism_from_public_facts() -> None:
    received = CohortSpec.FromString(spec().SerializeToString())
    expected = mechanism_named("dist-dp", Fraction(1, 2), Fraction(10)).for_cohort(
        100, 80, Fraction(1, 10_000)
    )
    assert cohort_mechanism(received) == expected


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"run_id": ""}, "run_id"),
        ({"run_id": "r" * 201}, "run_id"),
        ({"cohort_id": ""}, "cohort_id"),
        ({"backend": ""}, "backend"),
        ({"batch": 0}, "batch"),
        ({"mechanism": "shuffle-dp"}, "shuffle with shuffle-dp"),
        (
            {"mechanism": "dist-rdp", "backend": "shuffle"},
            "shuffle-dp or dist-dp with shuffle",
        ),
        ({"mechanism": "dist-pd"}, 'did you mean "dist-dp"'),
        ({"epsilon": Rational(numerator=1)}, "epsilon is 1/0"),
        ({"epsilon": Rational(numerator=0, denominator=1)}, "epsilon"),
        ({"epsilon": Rational(numerator=1000, denominator=1)}, "epsilon"),
        ({"scale": Rational(numerator=1)}, "scale is 1/0"),
        ({"scale": Rational(numerator=1, denominator=2)}, "scale"),
        ({"wrap_probability": None}, "wrap_probability is 0/0"),
        ({"wrap_probability": Rational(denominator=3)}, "wrap_probability"),
        ({"cohort_size": 0}, "cohort_size"),
        ({"cohort_size": 2**63}, "cohort_size"),
        ({"honest_floor": 0}, "honest_floor"),
        ({"honest_floor": 101}, "honest_floor"),
        ({"quorum": 79}, "quorum"),
        ({"quorum": 101}, "quorum"),
        ({"modulus": 100}, "modulus"),
        ({"modulus": 2**62 + 1}, "modulus"),
        ({"threat": Threat(corrupt=Rational(numerator=1))}, "threat.corrupt"),
        (
            {"threat": Threat(dropout=Rational(numerator=1, denominator=1))},
            "threat.dropout",
        ),
    ],
)
def test_every_field_that_makes_no_sense_is_named(
    changes: dict[str, object], named: str
) -> None:
    with pytest.raises(InputError, match=named):
        cohort_mechanism(spec(**changes))


def test_a_modulus_one_too_small_is_refused_and_the_smallest_is_taken() -> None:
    smallest = cohort_mechanism(spec()).modulus
    cohort_mechanism(spec(modulus=smallest))
    with pytest.raises(InputError, match="modulus"):
        cohort_mechanism(spec(modulus=smallest - 1))


@given(st.fractions(min_value=0, max_value=2**30, max_denominator=2**30))
def test_rationals_survive_the_wire(value: Fraction) -> None:
    message = Rational.FromString(to_rational(value).SerializeToString())
    assert from_rational("value", message) == value


@pytest.mark.parametrize("value", [Fraction(-1), Fraction(2**64), Fraction(1, 2**64)])
def test_a_rational_that_does_not_fit_the_wire_is_refused(value: Fraction) -> None:
    with pytest.raises(InputError, match="rational"):
        to_rational(value)


@given(st.binary(max_size=60))
def test_garbage_never_escapes_as_another_error(data: bytes) -> None:
    message = CohortSpec()
    try:
        message.MergeFromString(data)
    except Exception:
        return
    with pytest.raises(InputError):
        cohort_mechanism(message)


def test_what_is_mixed_promises_with_a_delta_and_what_is_not_without() -> None:
    described = spec()
    assert cohort_mechanism(described).guarantee().privacy_delta == 0
    described.backend = "shuffle"
    assert cohort_mechanism(described).guarantee().privacy_delta == Fraction(1, 2**40)


EUROS = RewardRange(Fraction(-50), Fraction(150), "€")


def test_a_cohort_states_its_range_exactly_and_is_bound_to_it() -> None:
    plain = CohortSpec(run_id="r")
    stated = CohortSpec(run_id="r", reward_range=to_range(EUROS))
    other = CohortSpec(
        run_id="r", reward_range=to_range(RewardRange(Fraction(-50), Fraction(150)))
    )
    assert from_range(plain) == DEFAULT_RANGE
    assert from_range(stated) == EUROS
    assert len({spec_digest(said) for said in (plain, stated, other)}) == 3


@pytest.mark.parametrize("low", ["", "zero", "nan", "0" * 31, "1/0"])
def test_a_cohort_with_a_garbled_range_is_refused(low: str) -> None:
    garbled = CohortSpec(run_id="r")
    garbled.reward_range.low, garbled.reward_range.high = low, "1"
    with pytest.raises(InputError):
        from_range(garbled)
