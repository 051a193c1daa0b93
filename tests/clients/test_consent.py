from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from wallflower.clients.consent import ClientPolicy, load_policy
from wallflower.protocol.cohort import to_rational
from wallflower.protocol.errors import ConfigError, RefusalError
from wallflower.protocol.privacy.mechanism import mechanism_named
from wallflower.protocol.secure_sum.backends import backend_modulus
from wallflower.protocol.wire.cohort_pb2 import CohortSpec, Threat

TENTH = Fraction(1, 10)
MILLIONTH = Fraction(1, 10**6)


def spec(
    *,
    mechanism: str = "dist-dp",
    epsilon: Fraction = Fraction(1),
    size: int = 100,
    floor: int = 80,
    quorum: int = 90,
    corrupt: Fraction = TENTH,
    backend: str = "sealed",
    malicious: bool = False,
) -> CohortSpec:
    cohort = mechanism_named(mechanism, epsilon).for_cohort(size, floor, MILLIONTH)
    return CohortSpec(
        run_id="run",
        batch=1,
        cohort_id="cohort",
        mechanism=mechanism,
        epsilon=to_rational(epsilon),
        scale=to_rational(Fraction(10)),
        wrap_probability=to_rational(MILLIONTH),
        cohort_size=size,
        honest_floor=floor,
        quorum=quorum,
        backend=backend,
        modulus=backend_modulus("shuffle", cohort.modulus),
        threat=Threat(
            corrupt=to_rational(corrupt),
            dropout=to_rational(TENTH),
            malicious_server=malicious,
        ),
    )


@pytest.mark.parametrize(
    "worse", [{"epsilon": Fraction(2)}, {"floor": 20, "quorum": 30}]
)
def test_a_verdict_is_remembered_for_the_whole_description_not_for_a_name(
    worse: dict[str, Any],
) -> None:
    policy = ClientPolicy()
    policy.check(spec())
    with pytest.raises(RefusalError):
        policy.check(spec(**worse))  # the same run and cohort id


def test_a_verdict_is_remembered_for_one_policy_only() -> None:
    ClientPolicy().check(spec())
    with pytest.raises(RefusalError, match="epsilon-too-large"):
        ClientPolicy(largest_epsilon=Fraction(1, 2)).check(spec())


def test_what_the_users_agreed_to_is_calibrated_by_the_client_itself() -> None:
    cohort = ClientPolicy().check(spec())
    assert cohort.honest_floor == 80
    assert cohort.modulus <= spec().modulus


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (spec(epsilon=Fraction(11, 10)), "epsilon-too-large"),
        (spec(size=19, floor=16, quorum=18), "cohort-too-small"),
        (spec(floor=49), "floor-too-low"),
        (spec(corrupt=Fraction(1, 20)), "threat-too-weak"),
        (spec(quorum=89), "quorum-too-low"),
        (spec(mechanism="central-dp"), "mechanism-not-allowed"),
        (spec(backend="plain"), "backend-not-allowed"),
        (CohortSpec(mechanism="dist-dp", backend="sealed"), "bad-cohort"),
    ],
)
def test_what_they_did_not_agree_to_is_refused_by_name(
    asked: CohortSpec, code: str
) -> None:
    with pytest.raises(RefusalError) as refused:
        ClientPolicy().check(asked)
    assert refused.value.code == code


@pytest.mark.parametrize("backend", ["shuffle", "sealed"])
def test_who_keeps_to_a_tiny_delta_is_not_mixed(backend: str) -> None:
    policy = ClientPolicy(
        privacy_delta=Fraction(1, 10**10), shufflers=("0" * 64,), smallest_cohort=2
    )
    if backend == "sealed":
        policy.check(spec(backend=backend))
        return
    with pytest.raises(RefusalError) as caught:
        policy.check(spec(backend=backend))
    assert caught.value.code == "delta-too-small"


def test_a_modulus_too_small_for_the_noise_is_refused() -> None:
    asked = spec()
    asked.modulus = 101
    with pytest.raises(RefusalError, match="modulus"):
        ClientPolicy().check(asked)


def test_a_policy_may_insist_on_withstanding_a_lying_server() -> None:
    strict = ClientPolicy(malicious_server=True)
    with pytest.raises(RefusalError, match="trusted to keep"):
        strict.check(spec())
    strict.check(spec(malicious=True))


def test_a_policy_file_is_read_exactly(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text('largest-epsilon = 0.3\nmechanisms = ["dist-cdp"]\n')
    policy = load_policy(path)
    assert policy.largest_epsilon == Fraction(3, 10)
    assert policy.mechanisms == ("dist-cdp",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("largest-epsilom = 1", 'did you mean "largest-epsilon"'),
        ("largest-epsilon = 0", "greater than 0"),
        ("smallest-cohort = 1", "at least 2"),
        ("smallest-nodes = 1", "at least 2"),
        ("smallest-floor-fraction = 2", "between 0 and 1"),
        ("mechanisms = []", "at least one name"),
        ("arms = []", "at least one name"),
        ('backends = ["seald"]', 'did you mean "sealed"'),
        ('backends = ["committee"]', "allowed: one of secagg-plus, sealed, shuffle"),
    ],
)
def test_a_broken_policy_file_is_refused_in_one_line(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        load_policy(path)
    assert "policy.toml" in str(caught.value)


@pytest.mark.parametrize("example", sorted(Path("examples/policies").glob("*.toml")))
def test_every_example_policy_is_valid(example: Path) -> None:
    assert load_policy(example).largest_epsilon <= 1


def test_an_arm_outside_the_list_is_refused() -> None:
    listed = ClientPolicy(arms=("control", "blue"))
    asked = spec()
    asked.arm_name = "red"
    with pytest.raises(RefusalError) as refused:
        listed.check(asked)
    assert refused.value.code == "arm-not-allowed"
    asked.arm_name = "blue"
    listed.check(asked)


def test_a_policy_without_a_list_takes_any_arm() -> None:
    asked = spec()
    asked.arm_name = "red"
    ClientPolicy().check(asked)
    ClientPolicy().check_arms(["red", "blue"])


def test_an_experiment_with_one_arm_outside_the_list_is_refused() -> None:
    with pytest.raises(RefusalError, match="red is not among control, blue"):
        ClientPolicy(arms=("control", "blue")).check_arms(["control", "red"])


@pytest.mark.parametrize("name", ["x" * 201, "line\nbreak"])
def test_an_arm_whose_name_is_long_or_cannot_be_printed_is_refused(name: str) -> None:
    asked = spec()
    asked.arm_name = name
    with pytest.raises(RefusalError, match="arm_name") as refused:
        ClientPolicy().check(asked)
    assert refused.value.code == "bad-cohort"


def test_a_description_padded_with_unknown_fields_is_refused() -> None:
    padded = spec().SerializeToString() + b"\xfa\x07\x80\x80\x01" + bytes(2**14)
    with pytest.raises(RefusalError, match="description") as refused:
        ClientPolicy().check(CohortSpec.FromString(padded))
    assert refused.value.code == "bad-cohort"
