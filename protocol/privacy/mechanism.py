"""One description of a mechanism, read by everybody.

A `Mechanism` is a name and a privacy level. Calibrated to a cohort it becomes a
`CohortMechanism`: precision g, noise bound τ, modulus m, the noise each user adds, the
law of the total, and the guarantee. Randomizer, analyzer, radius, accountant, planner,
simulator, figures and report all read this, and nothing about a mechanism is written
down anywhere else: adding one is adding its class and the class of its cohorts.
"""

from __future__ import annotations

import abc
import functools
import importlib
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from typing import Any, ClassVar, Self

from wallflower.protocol.errors import InputError, nearest
from wallflower.protocol.noise.law import NoiseLaw
from wallflower.protocol.noise.radix import RadixPlan
from wallflower.protocol.numbers import exact, whole
from wallflower.protocol.privacy.calibration import modulus_for
from wallflower.protocol.privacy.guarantee import Guarantee as Guarantee

# Beyond these nothing meaningful is asked for, and a hostile request would cost a
# client hours of exact arithmetic.
SMALLEST_EPSILON = Fraction(1, 1000)
LARGEST_EPSILON = Fraction(100)
LARGEST_SCALE = Fraction(1000)
LARGEST_COHORT = 10**10
# Where nobody says otherwise, clients refuse smaller cohorts and no plan has one.
USUAL_SMALLEST_COHORT = 20
SMALLEST_WRAP_PROBABILITY = Fraction(1, 10**18)

NO_NOISE, PER_COHORT, PER_USER = "not", "per cohort", "per user"


@dataclass(frozen=True)
class CohortMechanism(abc.ABC):
    """A mechanism calibrated to one cohort; both sides derive it from public facts.

    Attributes
    ----------
    cohort_size : users asked, n.
    honest_floor : users surely honest and present, h ≤ n; every share is calibrated
        to h, so that more survivors only add noise (docs/mathematics.md).
    precision : g, the reward is rounded to multiples of 1/g.
    noise_bound : τ, exceeded in absolute value by the total noise of n survivors
        with probability at most the wrap probability.
    modulus : m = ng + 2τ + 1, the smallest allowed; a back-end may use any larger.
    radix : how a user's integer becomes messages of one bit each, where it does.
    """

    cohort_size: int
    honest_floor: int
    precision: int
    noise_bound: int
    modulus: int
    _: KW_ONLY
    radix: RadixPlan | None = None

    @classmethod
    def from_bound(
        cls, size: int, honest_floor: int, precision: int, noise_bound: int, **more: Any
    ) -> Self:
        """Return a cohort with this bound and the smallest modulus for it."""
        return cls(
            cohort_size=size,
            honest_floor=honest_floor,
            precision=precision,
            noise_bound=noise_bound,
            modulus=modulus_for(size, precision, noise_bound),
            **more,
        )

    @property
    def bits_per_user(self) -> int:
        """Length of one user's integer in ℤ_m."""
        return (self.modulus - 1).bit_length()

    @property
    def view_loss(self) -> Fraction:
        """What the server sees beyond the sum adds to any log-likelihood ratio."""
        return Fraction(0)

    @property
    def view_delta(self) -> Fraction:
        """What the server sees beyond the sum adds to δ."""
        return Fraction(0)

    @abc.abstractmethod
    def user_noise(self) -> NoiseLaw | None:
        """Return the law of one user's noise; None where users add none."""

    @abc.abstractmethod
    def node_noise(self, users: int) -> NoiseLaw | None:
        """Return the law of the sum of `users` users' noises as one draw.

        None where users add none or the law is not infinitely divisible: then a node
        draws each user's noise by itself.
        """

    def server_noise(self) -> NoiseLaw | None:
        """What a trusted server adds to the sum; None in every other trust model."""
        return None

    @abc.abstractmethod
    def total_noise(self, survivors: int | None = None) -> NoiseLaw | None:
        """Return the law of all noise in the sum of `survivors` (default n) users."""

    @abc.abstractmethod
    def hiding_noise(self) -> NoiseLaw | None:
        """The noise a user can surely count on; accounting compares it with its shift.

        The shares of h users in the distributed model, the server's noise in the
        central one, the user's own in the local one.
        """

    @abc.abstractmethod
    def noise_log_mgf(self, survivors: int | None = None) -> Callable[[float], float]:
        """λ ↦ ln E exp(λ · total noise); an upper bound where no closed form is."""

    @abc.abstractmethod
    def guarantee(self) -> Guarantee:
        """Return the promise to one user of this cohort."""


@dataclass(frozen=True)
class SharedNoise(CohortMechanism):
    """A cohort whose noise its users bring along, each a part that adds up.

    Subclasses say what the parts of so many users add up to; the rest follows.
    """

    epsilon: Fraction

    @abc.abstractmethod
    def shares(self, users: int) -> NoiseLaw:
        """Return the law of the sum of so many users' noises."""

    def user_noise(self) -> NoiseLaw:
        """One user's share."""
        return self.shares(1)

    def node_noise(self, users: int) -> NoiseLaw | None:
        """One draw for all of them: the law is infinitely divisible."""
        if users not in self._laws:
            self._laws[users] = self.shares(users)
        return self._laws[users]

    @functools.cached_property
    def _laws(self) -> dict[int, NoiseLaw]:
        # Of each number of users that a node of the cohort has: all nodes draw.
        return {}

    def total_noise(self, survivors: int | None = None) -> NoiseLaw:
        """Return the shares of all survivors."""
        return self.shares(self.cohort_size if survivors is None else survivors)

    def hiding_noise(self) -> NoiseLaw:
        """Return the shares of the h users who are surely honest and present."""
        return self.shares(self.honest_floor)

    def noise_log_mgf(self, survivors: int | None = None) -> Callable[[float], float]:
        """Return the closed form of the law itself."""
        return self.total_noise(survivors).log_mgf


class Mechanism(abc.ABC):
    """A privacy level and the way to reach it.

    `epsilon` is the promise to one user for one cohort, `scale` s of the RDP and CDP
    mechanisms; the others ignore it.

    Attributes
    ----------
    name : in settings and on the wire.
    label : as in the paper's figures, e.g. Dist-DP-SE; what they call CDP-SE, central
        DP, is Central-DP-SE, since CDP is concentrated DP here.
    noise : who adds which noise, a sentence for people.
    noise_grows : how much noise more users bring, one of `NO_NOISE`, `PER_COHORT` and
        `PER_USER`; index policies choose their divergence by it.
    shuffled : the promise rests on a shuffler instead of a secure sum.
    smallest_scale : below it `scale` is refused.
    """

    name: ClassVar[str]
    label: ClassVar[str]
    noise: ClassVar[str]
    noise_grows: ClassVar[str] = PER_COHORT
    shuffled: ClassVar[bool] = False
    smallest_scale: ClassVar[Fraction] = Fraction(1)

    def __init__(self, epsilon: Fraction, scale: Fraction = Fraction(10)) -> None:
        self.epsilon = exact("epsilon", epsilon)
        self.scale = exact("scale", scale)
        if not SMALLEST_EPSILON <= self.epsilon <= LARGEST_EPSILON:
            allowed = f"from {SMALLEST_EPSILON} to {LARGEST_EPSILON}"
            raise InputError("epsilon", self.epsilon, allowed)
        if not self.smallest_scale <= self.scale <= LARGEST_SCALE:
            allowed = f"from {self.smallest_scale} to {LARGEST_SCALE} for {self.name}"
            raise InputError("scale", self.scale, allowed)

    def for_cohort(
        self, cohort_size: int, honest_floor: int, wrap_probability: Fraction
    ) -> CohortMechanism:
        """Calibrate to a cohort; raises InputError naming what is out of range.

        Cheap to repeat: calibrations are remembered.
        """
        size = whole("cohort_size", cohort_size, at_least=1, at_most=LARGEST_COHORT)
        floor = whole("honest_floor", honest_floor, at_least=1, at_most=size)
        level = wrap_probability
        if not SMALLEST_WRAP_PROBABILITY <= level < 1:
            allowed = f"at least {float(SMALLEST_WRAP_PROBABILITY):g} and below 1"
            raise InputError("wrap_probability", float(level), allowed)
        return _calibrate_once(
            type(self),
            self.epsilon,
            self.scale,
            cohort_size=size,
            honest_floor=floor,
            wrap_probability=Fraction(level),
        )

    @abc.abstractmethod
    def calibrate(
        self, cohort_size: int, honest_floor: int, wrap_probability: Fraction
    ) -> CohortMechanism:
        """Compute what `for_cohort` remembers; the arguments are checked already."""

    def paper_tail(self, survivors: int, honest_floor: int) -> tuple[float, float]:
        """σ and h of the `paper` radius, in units of reward; see `paper_radius`.

        Raises
        ------
        InputError
            The paper knows no radius of this mechanism.
        """
        allowed = f"a mechanism the paper gives a radius for; {self.name} needs tight"
        raise InputError("radius", "paper", allowed)


@functools.lru_cache(maxsize=65536)
def _calibrate_once(
    cls: type[Mechanism],
    epsilon: Fraction,
    scale: Fraction,
    cohort_size: int,
    honest_floor: int,
    wrap_probability: Fraction,
) -> CohortMechanism:
    mechanism = cls(epsilon, scale)
    return mechanism.calibrate(cohort_size, honest_floor, wrap_probability)


_MODULES = ("pure", "renyi", "trusted")
REGISTRY: dict[str, type[Mechanism]] = {}


def register(cls: type[Mechanism]) -> type[Mechanism]:
    """Class decorator: make a mechanism known by its name."""
    REGISTRY[cls.name] = cls
    return cls


def mechanism_named(
    name: str, epsilon: Fraction, scale: Fraction = Fraction(10)
) -> Mechanism:
    """Build a mechanism by its registered name; docs/mathematics.md has all.

    Parameters
    ----------
    name : str
        Such as ``dist-dp``.
    epsilon : Fraction
        The level of the promise.
    scale : Fraction
        s of the precision ⌈sε√n⌉, where the mechanism has one.
    """
    return mechanism_class(name)(epsilon, scale)


def load_mechanisms() -> dict[str, type[Mechanism]]:
    """Return all mechanisms by name; import their modules, which import this one."""
    for module in _MODULES:
        importlib.import_module(f"wallflower.protocol.privacy.{module}")
    return REGISTRY


def mechanism_class(name: str) -> type[Mechanism]:
    """Return what is registered under a name; raise InputError with the near miss."""
    load_mechanisms()
    if name not in REGISTRY:
        known = ", ".join(REGISTRY)
        raise InputError(
            "mechanism", f'"{name}"{nearest(name, REGISTRY)}', f"one of {known}"
        )
    return REGISTRY[name]
