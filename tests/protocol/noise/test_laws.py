"""Every law against closed forms, sums, quantiles and its own sampler."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from flint import arb

from tests.support.laws import Poisson, Polya, is_symmetric, mass_of, mass_up_to
from tests.support.statistics import FALSE_ALARM_RATE, chi_square_p_value
from wallflower.protocol.errors import InputError
from wallflower.protocol.noise.balls import Ladder, precision
from wallflower.protocol.noise.bits import OsBits, SeededBits
from wallflower.protocol.noise.difference import NegativeBinomialDifference
from wallflower.protocol.noise.gaussian import DiscreteGaussian, Skellam
from wallflower.protocol.noise.gaussian_sums import SumOfDiscreteGaussians
from wallflower.protocol.noise.laplace import DiscreteLaplace
from wallflower.protocol.noise.law import NoiseLaw

LAWS: list[NoiseLaw] = [
    Polya(Fraction(1, 50), Fraction(1, 8)),
    Polya(Fraction(5, 2), Fraction(1, 10)),
    Polya(Fraction(1), Fraction(3)),
    DiscreteLaplace(Fraction(20)),
    DiscreteLaplace(Fraction(1, 3)),
    NegativeBinomialDifference(Fraction(1, 50), Fraction(1, 8)),
    NegativeBinomialDifference(Fraction(1), Fraction(1, 12)),
    NegativeBinomialDifference(Fraction(11, 10), Fraction(1, 30)),
    NegativeBinomialDifference(Fraction(37, 3), Fraction(1, 5)),
    Poisson(Fraction(1, 3)),
    Poisson(Fraction(50)),
    Skellam(Fraction(1, 10)),
    Skellam(Fraction(100)),
    DiscreteGaussian(Fraction(1, 10)),
    DiscreteGaussian(Fraction(1, 2)),
    DiscreteGaussian(Fraction(100)),
    SumOfDiscreteGaussians(1, Fraction(2)),
    SumOfDiscreteGaussians(9, Fraction(1, 2)),
    SumOfDiscreteGaussians(30, Fraction(100)),
]
HAS_CLOSED_FORM = [law for law in LAWS if not isinstance(law, SumOfDiscreteGaussians)]
every_law = pytest.mark.parametrize("law", LAWS, ids=repr)


def reach(law: NoiseLaw) -> int:
    return law.two_sided_bound(Fraction(1, 10**15))


@every_law
def test_draws_fit_the_exact_masses(law: NoiseLaw) -> None:
    values = law.sample(200_000, SeededBits.derived(1, repr(law)))
    assert chi_square_p_value(values, law) > FALSE_ALARM_RATE


@every_law
def test_draws_with_bits_of_the_operating_system_stay_in_the_support(
    law: NoiseLaw,
) -> None:
    values = law.sample(1000, OsBits())
    assert np.abs(values).max() <= law.two_sided_bound(Fraction(1, 10**18))
    assert is_symmetric(law) or values.min() >= 0


@every_law
def test_masses_sum_to_one_and_match_the_distribution_function(law: NoiseLaw) -> None:
    limit = reach(law)
    points = range(-limit, limit + 1)
    masses = [mass_of(law, x) for x in points]
    assert math.fsum(masses) == pytest.approx(1, abs=1e-14)
    assert [mass_up_to(law, x) for x in points] == pytest.approx(
        np.cumsum(masses).tolist(), abs=1e-14
    )


@pytest.mark.parametrize("law", HAS_CLOSED_FORM, ids=repr)
def test_masses_of_the_recurrence_equal_the_closed_form(law: NoiseLaw) -> None:
    points = sorted({0, 1, 2, reach(law) // 5, reach(law)})
    for x in points:
        assert law.pmf_range(x, x)[0] == pytest.approx(mass_of(law, x), rel=1e-14)
        assert mass_of(law, -x) == (
            mass_of(law, x) if is_symmetric(law) or x == 0 else 0
        )


@every_law
@pytest.mark.parametrize(
    "level",
    [Fraction(1, 10**9), Fraction(1, 20), Fraction(1, 2), Fraction(9, 10)],
)
def test_two_sided_bound_is_the_smallest_that_holds(
    law: NoiseLaw, level: Fraction
) -> None:
    def outside(bound: int) -> float:
        above = law.pmf_range(bound + 1, bound + reach(law))
        return mass_up_to(law, -bound - 1) + math.fsum(above)

    bound = law.two_sided_bound(level)
    assert outside(bound) <= float(level) * (1 + 1e-12)
    assert bound == 0 or outside(bound - 1) > float(level)


@every_law
def test_moments_match_the_masses(law: NoiseLaw) -> None:
    limit = reach(law) * 5 // 4
    points = np.arange(-limit, limit + 1)
    masses = law.pmf_range(-limit, limit)
    mean = float(np.sum(points * masses))
    assert np.sum((points - mean) ** 2 * masses) == pytest.approx(
        law.variance(), rel=1e-9
    )
    argument = 0.3 / reach(law) ** 0.5 / 10
    assert math.log(np.sum(np.exp(argument * points) * masses)) == pytest.approx(
        law.log_mgf(argument), rel=1e-6
    )


@pytest.mark.parametrize(
    ("make", "parameter"),
    [
        (lambda v: Polya(v, Fraction(1)), "shape"),
        (lambda v: Polya(Fraction(1), v), "rate"),
        (lambda v: DiscreteLaplace(v), "scale"),
        (lambda v: NegativeBinomialDifference(v, Fraction(1)), "shape"),
        (lambda v: Poisson(v), "mean"),
        (lambda v: Skellam(v), "variance"),
        (lambda v: DiscreteGaussian(v), "variance"),
        (lambda v: SumOfDiscreteGaussians(2, v), "variance"),
    ],
)
@pytest.mark.parametrize(
    "value",
    [0, -1, Fraction(-1, 3), 0.5, math.nan, math.inf, "1", None, True, 10**40],
)
def test_a_parameter_out_of_range_is_named_with_value_and_range(
    make: type, parameter: str, value: object
) -> None:
    with pytest.raises(InputError) as caught:
        make(value)
    assert caught.value.parameter == parameter
    assert str(value) in str(caught.value)
    assert "at least" in str(caught.value)


@pytest.mark.parametrize("level", [Fraction(0), Fraction(1), Fraction(3, 2), 0.1])
def test_a_level_that_is_no_probability_is_refused(level: Fraction) -> None:
    with pytest.raises(InputError, match="level"):
        Skellam(Fraction(1)).two_sided_bound(level)


def test_log_mgf_is_infinite_outside_its_domain() -> None:
    assert DiscreteLaplace(Fraction(2)).log_mgf(0.5) == math.inf
    assert Polya(Fraction(1, 3), Fraction(1, 2)).log_mgf(0.7) == math.inf
    assert math.isfinite(DiscreteLaplace(Fraction(2)).log_mgf(0.49))


def test_discrete_gaussian_is_sub_gaussian() -> None:
    for parameter in (Fraction(1, 8), Fraction(1, 2), Fraction(5)):
        law = DiscreteGaussian(parameter)
        for argument in np.linspace(-3, 3, 41):
            bound = float(parameter) * argument**2 / 2
            assert law.log_mgf(float(argument)) <= bound + 1e-12


@pytest.mark.parametrize(
    "law",
    [
        Polya(Fraction(1, 10), Fraction(1, 10**8)),
        NegativeBinomialDifference(Fraction(1, 10), Fraction(1, 10**8)),
    ],
    ids=repr,
)
def test_a_share_too_wide_to_list_is_refused_at_once(law: NoiseLaw) -> None:
    with pytest.raises(InputError, match="rate"):
        law.sample(1, OsBits())


@pytest.mark.parametrize(
    "law",
    [
        Poisson(Fraction(10**9)),
        Skellam(Fraction(10**16)),
        DiscreteGaussian(Fraction(10**16)),
    ],
    ids=repr,
)
def test_an_exact_bound_that_would_take_minutes_is_refused_at_once(
    law: NoiseLaw,
) -> None:
    with pytest.raises(InputError, match="list all masses"):
        law.two_sided_bound(Fraction(1, 100))


@pytest.mark.parametrize(
    ("shape", "scale"), [("1/1000", 100), ("1/2", 40), ("11/10", 100), ("40", 50)]
)
@pytest.mark.parametrize("level", [Fraction(1, 10**6), Fraction(3, 10**15)])
def test_a_bound_from_the_tail_alone_equals_that_from_all_masses(
    shape: str, scale: int, level: Fraction
) -> None:
    law = NegativeBinomialDifference(Fraction(shape), Fraction(1, scale))
    assert law._search_tail(level) == NoiseLaw._smallest_magnitude(law, level)


def test_bounds_at_levels_near_each_other_list_the_masses_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every round of a run has a level of its own, and mostly the same law."""
    law = NegativeBinomialDifference(Fraction(41, 26), Fraction(1, 7))
    made, ladder = [], NegativeBinomialDifference.ladder

    def counted(
        self: NegativeBinomialDifference, tail_bits: int, guard_bits: int
    ) -> Ladder:
        made.append(tail_bits)
        return ladder(self, tail_bits, guard_bits)

    monkeypatch.setattr(NegativeBinomialDifference, "ladder", counted)
    bounds = [law.two_sided_bound(Fraction(1, 10**6 * k)) for k in range(1, 30)]
    assert bounds == sorted(bounds)
    assert bounds[0] < bounds[-1]
    assert len(made) == 1


@pytest.mark.parametrize("shape", [Fraction(3, 2), Fraction(37, 3), Fraction(60)])
def test_masses_below_the_shape_are_lower_bounds_like_all_others(
    shape: Fraction,
) -> None:
    law = NegativeBinomialDifference(shape, Fraction(1, 3))
    ladder = law.ladder(64, 128)
    assert ladder.accuracy > 90
    with precision(512):
        for k in range(math.ceil(shape) + 2):
            exact = law.mass(k) * (2 if k else 1) * arb(2) ** ladder.shift
            assert exact >= ladder.masses[k]
            slack = 1 + arb(2) ** -ladder.accuracy
            assert exact <= ladder.masses[k] * slack


def test_tails_far_below_one_part_in_a_double_are_right_to_the_last_digit() -> None:
    laplace = DiscreteLaplace(Fraction(3))
    same = NegativeBinomialDifference(Fraction(1), Fraction(1, 3))
    for x in (-300, -900, -2000):
        assert mass_up_to(same, x) == pytest.approx(mass_up_to(laplace, x), rel=1e-14)
    assert mass_up_to(same, -3000) == 0.0
    assert same.pmf_range(-3000, -3000)[0] == 0.0


def test_a_list_too_long_for_memory_is_refused() -> None:
    law = NegativeBinomialDifference(Fraction(10, 9), Fraction(1, 400_000))
    with pytest.raises(InputError, match="nearer the centre"):
        mass_up_to(law, -10)
