"""Which experiments make up each figure: the paper's, and what Wallflower adds.

Settings that the paper leaves out are those of its authors' published script: rewards
N(μ, 0.1²) projected onto [0, 1], K = 10, p = 0.1, 20 instances, batches 4^b. The noise
is the correct one (docs/results.md says what differs from the published curves).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from wallflower.regret.setup import build_engine
from wallflower.regret.simulation import Engine, Simulation
from wallflower.strategy.bandit.spec import PolicySpec

ARMS = 10
FAILURE = Fraction(1, 10)
EPSILONS = (Fraction(1, 10), Fraction(1, 2), Fraction(1))
REWARD_DEVIATION = 0.1


@dataclass(frozen=True, slots=True)
class Series:
    """One curve: a label, the policy behind it, and the engine that plays it."""

    label: str
    spec: PolicySpec
    engine: Callable[[Simulation], Engine] = build_engine


@dataclass(frozen=True, slots=True)
class Panel:
    """One plot: curves on the same instances."""

    title: str
    instance: str
    series: tuple[Series, ...]
    rewards: str = "gaussian"


@dataclass(frozen=True, slots=True)
class Figure:
    """One picture of several panels; `group` is ``paper`` or ``added``."""

    name: str
    group: str
    title: str
    panels: tuple[Panel, ...]


def _series(label: str, horizon: int, epsilon: Fraction, **changes: object) -> Series:
    settings: dict[str, object] = {
        "policy": "elimination",
        "arms": ARMS,
        "horizon": horizon,
        "mechanism": "dist-dp",
        "epsilon": epsilon,
        "failure_probability": FAILURE,
        **changes,
    }
    return Series(label, PolicySpec(**settings))  # type: ignore[arg-type]


def _paper(label: str, horizon: int, epsilon: Fraction, **changes: object) -> Series:
    """Return a curve as in the paper: its radius, batches 4^b."""
    settings = {"radius": "paper", "ratio": Fraction(4), **changes}
    return _series(label, horizon, epsilon, **settings)


def _plan_distributed(horizon: int, epsilon: Fraction) -> tuple[Series, ...]:
    rdp = {"mechanism": "dist-rdp"}
    return (
        _paper("Dist-DP-SE", horizon, epsilon),
        _paper("Dist-RDP-SE, s = 10", horizon, epsilon, **rdp),
        _paper("Dist-RDP-SE, s = 100", horizon, epsilon, scale=Fraction(100), **rdp),
    )


def _trust_models(horizon: int, epsilon: Fraction) -> tuple[Series, ...]:
    return tuple(
        _paper(label, horizon, epsilon, mechanism=mechanism)
        for label, mechanism in (
            ("Central-DP-SE", "central-dp"),
            ("LDP-SE", "local-dp"),
            ("Dist-DP-SE", "dist-dp"),
            ("Dist-RDP-SE, s = 10", "dist-rdp"),
            ("Dist-CDP-SE, s = 10", "dist-cdp"),
        )
    )


def _radii(horizon: int, epsilon: Fraction) -> tuple[Series, ...]:
    return (
        _paper("paper radius, batches 2^b", horizon, epsilon, ratio=Fraction(2)),
        _series("tight test", horizon, epsilon),
        _series("same without privacy", horizon, epsilon, mechanism="non-private"),
    )


def _policies(horizon: int, epsilon: Fraction) -> tuple[Series, ...]:
    return (
        _series("elimination, tight", horizon, epsilon),
        _series("dp-imed", horizon, epsilon, policy="dp-imed"),
    )


def _long(horizon: int, epsilon: Fraction) -> tuple[Series, ...]:
    return (
        _paper("elimination, paper radius", horizon, epsilon),
        *_policies(horizon, epsilon),
    )


def _plan_shuffled(horizon: int, epsilon: Fraction) -> tuple[Series, ...]:
    return tuple(
        _series(label, horizon, epsilon, mechanism=mechanism)
        for label, mechanism in (
            ("Shuffle-DP-SE", "shuffle-dp"),
            ("Dist-DP-SE", "dist-dp"),
        )
    )


def _panels(
    instance: str, horizon: int, curves: object, rewards: str = "gaussian"
) -> tuple[Panel, ...]:
    assert callable(curves)
    return tuple(
        Panel(f"ε = {float(epsilon):g}", instance, curves(horizon, epsilon), rewards)
        for epsilon in EPSILONS
    )


FIGURES = (
    Figure(
        "paper-easy",
        "paper",
        "Large gaps (means in [0.25, 0.75]), K = 10",
        _panels("easy", 10**6, _plan_distributed),
    ),
    Figure(
        "paper-hard",
        "paper",
        "Small gaps (means in [0.45, 0.55]), K = 10",
        _panels("hard", 10**7, _plan_distributed),
    ),
    Figure(
        "paper-trust",
        "paper",
        "Trust models, large gaps, K = 10",
        _panels("easy", 10**6, _trust_models),
    ),
    Figure(
        "added-radius",
        "added",
        "Dist-DP: the paper's radius and the tight test (large gaps), K = 10",
        _panels("easy", 10**6, _radii),
    ),
    Figure(
        "added-policies",
        "added",
        "Policies on the distributed protocol (Dist-DP), large gaps, K = 10",
        _panels("easy", 10**6, _policies),
    ),
    Figure(
        "added-shuffle",
        "added",
        "Through a shuffler, rewards 0 or 1, large gaps, K = 10",
        _panels("easy", 10**6, _plan_shuffled, "bernoulli"),
    ),
    Figure(
        "added-long",
        "added",
        "A thousand million users, small gaps (means in [0.45, 0.55]), K = 10",
        _panels("hard", 10**9, _long),
    ),
)
