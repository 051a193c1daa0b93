from __future__ import annotations

from fractions import Fraction

import pytest

from tests.support.laws import mass_up_to
from wallflower.protocol.errors import InputError
from wallflower.protocol.privacy.mechanism import load_mechanisms, mechanism_named

LEVEL = Fraction(1, 10_000)
HALF = Fraction(1, 2)
ALL = (
    "dist-dp",
    "dist-rdp",
    "dist-cdp",
    "central-dp",
    "local-dp",
    "non-private",
)
DISTRIBUTED = ("dist-dp", "dist-rdp", "dist-cdp")


def test_every_row_of_the_table_is_registered() -> None:
    assert set(ALL) <= set(load_mechanisms())


@pytest.mark.parametrize("name", ALL)
def test_modulus_has_room_for_the_sum_and_the_noise(name: str) -> None:
    cohort = mechanism_named(name, HALF).for_cohort(200, 150, LEVEL)
    span = 200 * cohort.precision + 2 * cohort.noise_bound + 1
    assert cohort.modulus == span
    assert 2 ** (cohort.bits_per_user - 1) < span <= 2**cohort.bits_per_user


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("dist-dp", 8),  # ⌈0.5·√200⌉
        ("central-dp", 8),
        ("local-dp", 8),
        ("dist-rdp", 71),  # ⌈10·0.5·√200⌉
        ("dist-cdp", 71),
        ("non-private", 1024),
    ],
)
def test_precision_follows_the_formula_of_the_mechanism(
    name: str, precision: int
) -> None:
    cohort = mechanism_named(name, HALF).for_cohort(200, 150, LEVEL)
    assert cohort.precision == precision


@pytest.mark.parametrize("name", ["dist-dp", "dist-rdp", "dist-cdp", "central-dp"])
@pytest.mark.parametrize("floor", [40, 50])
def test_noise_bound_is_the_exact_quantile_of_the_total_noise(
    name: str, floor: int
) -> None:
    cohort = mechanism_named(name, HALF).for_cohort(50, floor, LEVEL)
    total = cohort.total_noise()
    assert total is not None
    beyond = 2 * mass_up_to(total, -cohort.noise_bound - 1)
    one_less = 2 * mass_up_to(total, -cohort.noise_bound)
    assert beyond <= LEVEL < one_less


@pytest.mark.parametrize("cohort_size", [1, 3, 20, 200])
def test_local_noise_bound_holds_for_every_cohort_size(cohort_size: int) -> None:
    cohort = mechanism_named("local-dp", HALF).for_cohort(cohort_size, 1, LEVEL)
    total = cohort.total_noise()
    assert total is not None
    assert 2 * mass_up_to(total, -cohort.noise_bound - 1) <= LEVEL


def test_the_papers_local_noise_bound_would_be_too_small() -> None:
    # n = 3 < 2 ln(2/p): τ = (g/ε)√(2n ln(2/p)) is passed more often than p allows.
    cohort = mechanism_named("local-dp", HALF).for_cohort(3, 3, LEVEL)
    total = cohort.total_noise()
    assert total is not None
    printed = int(cohort.precision / 0.5 * (6 * 9.9035) ** 0.5) + 1
    assert 2 * mass_up_to(total, -printed - 1) > LEVEL


@pytest.mark.parametrize("name", DISTRIBUTED)
def test_shares_are_calibrated_to_the_floor_and_not_to_the_cohort(name: str) -> None:
    cohort = mechanism_named(name, HALF).for_cohort(100, 80, LEVEL)
    at_floor = cohort.total_noise(80)
    assert at_floor is not None
    expected = (
        2 * (cohort.precision / 0.5) ** 2
        if name == "dist-dp"
        else ((cohort.precision / 0.5) ** 2)
    )
    assert at_floor.variance() == pytest.approx(expected, rel=0.01)
    user = cohort.user_noise()
    assert user is not None
    assert 80 * user.variance() == pytest.approx(at_floor.variance(), rel=1e-9)


@pytest.mark.parametrize("name", ["dist-dp", "dist-rdp", "local-dp"])
def test_a_node_draws_the_noise_of_its_users_at_once(name: str) -> None:
    cohort = mechanism_named(name, HALF).for_cohort(100, 80, LEVEL)
    node, user = cohort.node_noise(7), cohort.user_noise()
    assert node is not None
    assert user is not None
    assert node.log_mgf(0.01) == pytest.approx(7 * user.log_mgf(0.01), rel=1e-9)


def test_a_node_cannot_draw_many_discrete_gaussians_at_once() -> None:
    cohort = mechanism_named("dist-cdp", HALF).for_cohort(100, 80, LEVEL)
    assert cohort.node_noise(7) is None
    assert cohort.node_noise(1) == cohort.user_noise()


def test_a_trusted_server_adds_the_only_noise() -> None:
    cohort = mechanism_named("central-dp", HALF).for_cohort(100, 80, LEVEL)
    assert cohort.user_noise() is None
    assert cohort.node_noise(5) is None
    assert cohort.total_noise(3) == cohort.server_noise()


def test_non_private_adds_no_noise_and_promises_nothing() -> None:
    cohort = mechanism_named("non-private", HALF).for_cohort(100, 80, LEVEL)
    assert cohort.total_noise() is None
    assert cohort.noise_log_mgf()(0.3) == 0
    assert cohort.guarantee().kind == "none"
    assert cohort.guarantee().epsilon is None


@pytest.mark.parametrize("name", ALL[:-1])
def test_log_mgf_of_the_total_is_never_below_the_true_one(name: str) -> None:
    cohort = mechanism_named(name, HALF).for_cohort(30, 20, LEVEL)
    total = cohort.total_noise(25)
    assert total is not None
    for argument in (0.001, 0.01, 0.2 / cohort.precision):
        assert cohort.noise_log_mgf(25)(argument) >= total.log_mgf(argument) * (
            1 - 1e-12
        )


@pytest.mark.parametrize(
    ("name", "kind", "trust"),
    [
        ("dist-dp", "pure", "distributed"),
        ("dist-rdp", "renyi", "distributed"),
        ("dist-cdp", "concentrated", "distributed"),
        ("central-dp", "pure", "server"),
        ("local-dp", "pure", "nobody"),
        ("non-private", "none", "server"),
    ],
)
def test_guarantee_names_kind_and_trust(name: str, kind: str, trust: str) -> None:
    promise = mechanism_named(name, HALF).for_cohort(100, 80, LEVEL).guarantee()
    assert (promise.kind, promise.trust) == (kind, trust)


def test_the_discrete_gaussian_needs_a_scale_of_one_and_a_half() -> None:
    with pytest.raises(InputError, match=r"scale is 1; allowed: from 3/2"):
        mechanism_named("dist-cdp", HALF, Fraction(1))
    mechanism_named("dist-rdp", HALF, Fraction(1))


def test_the_excess_of_summed_gaussians_is_tiny_at_the_smallest_scale() -> None:
    mechanism = mechanism_named("dist-cdp", Fraction(1, 10), Fraction(3, 2))
    for cohort_size in (2, 100, 10**6):
        promise = mechanism.for_cohort(cohort_size, cohort_size, LEVEL).guarantee()
        assert promise.epsilon is not None
        assert 0 < promise.epsilon - Fraction(1, 10) <= Fraction(23, 10**10)


@pytest.mark.parametrize("name", ALL)
def test_a_cohort_of_one_is_calibrated_too(name: str) -> None:
    assert mechanism_named(name, HALF).for_cohort(1, 1, LEVEL).modulus > 1


def test_calibration_is_remembered() -> None:
    one = mechanism_named("dist-dp", HALF).for_cohort(100, 80, LEVEL)
    assert mechanism_named("dist-dp", HALF).for_cohort(100, 80, LEVEL) is one


@pytest.mark.parametrize(
    ("parameter", "cohort_size", "floor", "level"),
    [
        ("cohort_size", 0, 1, LEVEL),
        ("cohort_size", 10**11, 1, LEVEL),
        ("honest_floor", 10, 0, LEVEL),
        ("honest_floor", 10, 11, LEVEL),
        ("wrap_probability", 10, 5, Fraction(0)),
        ("wrap_probability", 10, 5, Fraction(1)),
        ("wrap_probability", 10, 5, Fraction(-1, 2)),
    ],
)
def test_what_is_out_of_range_is_named(
    parameter: str, cohort_size: int, floor: int, level: Fraction
) -> None:
    with pytest.raises(InputError, match=parameter):
        mechanism_named("dist-dp", HALF).for_cohort(cohort_size, floor, level)


@pytest.mark.parametrize("epsilon", [0, -1, 101, Fraction(1, 2000)])
def test_an_epsilon_out_of_range_is_named(epsilon: int | Fraction) -> None:
    with pytest.raises(InputError, match=r"epsilon is .*allowed: from 1/1000 to 100"):
        mechanism_named("dist-dp", Fraction(epsilon))


def test_an_unknown_mechanism_is_refused_with_a_suggestion() -> None:
    with pytest.raises(InputError, match='did you mean "dist-dp"'):
        mechanism_named("distdp", HALF)


@pytest.mark.parametrize("name", ALL)
def test_the_largest_cohorts_are_calibrated_at_once(name: str) -> None:
    cohort = mechanism_named(name, Fraction(1)).for_cohort(10**10, 10**10, LEVEL)
    assert cohort.noise_bound < cohort.cohort_size * cohort.precision


@pytest.mark.parametrize(("name", "floor"), [("dist-rdp", 20), ("dist-cdp", 20)])
def test_shares_too_wide_to_be_drawn_are_refused(name: str, floor: int) -> None:
    with pytest.raises(InputError, match="honest_floor is 20"):
        mechanism_named(name, HALF, Fraction(1000)).for_cohort(10**6, floor, LEVEL)


@pytest.mark.parametrize("name", DISTRIBUTED)
def test_wide_noise_is_bounded_by_its_tail_inequality(name: str) -> None:
    # Standard deviations above the widest exact quantile; a wide law is almost normal
    # or Laplace, so that its quantile is known well enough to judge the bound.
    cohort = mechanism_named(name, HALF, Fraction(100)).for_cohort(
        10**9, 9 * 10**8, LEVEL
    )
    total = cohort.total_noise()
    assert total is not None
    deviation = total.variance() ** 0.5
    assert 3.89 * deviation < cohort.noise_bound < 12 * deviation
