"""From options and an experiment to a simulation that can be played."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wallflower.calendar_time import Calendar
from wallflower.protocol.errors import InputError
from wallflower.protocol.files.sections import RewardSettings, one_of
from wallflower.protocol.rewards.cells import Judgement, read_cells
from wallflower.protocol.rewards.models import (
    ReplayRewards,
    RewardModel,
    synthetic_rewards,
)
from wallflower.protocol.rewards.reward_range import DEFAULT_RANGE, RewardRange
from wallflower.regret.elimination import FastElimination
from wallflower.regret.index import FastIndex
from wallflower.regret.simulation import Doubles, Engine, Simulation
from wallflower.strategy.bandit.spec import PolicySpec
from wallflower.strategy.policy_names import ELIMINATION, INDEX_POLICIES

if TYPE_CHECKING:
    from wallflower.stated_experiment import StatedExperiment
    from wallflower.strategy.config import ExperimentConfig

ENGINES = ("fast", "users")
INSTANCES = {"easy": (0.25, 0.75), "hard": (0.45, 0.55)}
# What a simulation is of where no file says anything: everybody answers.
USUAL = {
    "experiment": {
        "name": "simulation",
        "horizon": 10**6,
        "failure-probability": "1/10",
    },
    "secure-sum": {"corrupt": 0, "dropout": 0},
}
_USUAL_ARMS = 10
_DRAWN = "easy"
# Policies whose law is known here; others are asked themselves, cohort by cohort.
_FAST: dict[str, Callable[[Simulation], Engine]] = {
    ELIMINATION: FastElimination,
    **dict.fromkeys(INDEX_POLICIES, FastIndex),
}


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be simulated; None means: from the experiment, or the usual value."""

    experiment: StatedExperiment | None = None
    arms: int | None = None
    horizon: int | None = None
    epsilon: Fraction | None = None
    mechanism: str | None = None
    policy: str | None = None
    instances: int = 1
    engine: str = "fast"
    seed: int = 0

    @property
    def policy_changes(self) -> dict[str, Any]:
        """Fields of a `PolicySpec` that options state."""
        names = ("horizon", "epsilon", "mechanism", "policy")
        found = {name: getattr(self, name) for name in names}
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True)
class Prepared:
    """A simulation with the words to report it in."""

    simulation: Simulation
    engine: Engine
    engine_name: str
    arm_names: tuple[str, ...] | None  # None: means were drawn anew per instance
    rewards: str
    instance: str
    measured: RewardRange = DEFAULT_RANGE
    table: Judgement | None = None  # of outcomes, where one is replayed
    calendar: Calendar | None = None  # of people who arrive


@dataclass(frozen=True, slots=True)
class _Outcomes:
    """How rewards are drawn for a number of arms, and what to call them."""

    build_model: Callable[[int], RewardModel]
    name: str
    arm_names: tuple[str, ...] | None = None
    table: Judgement | None = None


def prepare(request: Request) -> Prepared:
    """Check everything and build the engine; raise `InputError` for what is wrong."""
    one_of("engine", request.engine, ENGINES)
    if request.instances < 1:
        raise InputError("instances", request.instances, "at least 1")
    if request.seed < 0:
        raise InputError("seed", request.seed, "a whole number of at least 0")
    config = None if request.experiment is None else request.experiment.config
    outcomes = _choose_outcomes(request, config)
    names = outcomes.arm_names
    stated = _USUAL_ARMS if config is None else len(config.experiment.arms)
    arms = len(names) if names is not None else request.arms or stated
    if request.arms is not None and request.arms != arms:
        raise InputError("arms", request.arms, f"{arms}, as many as there are means")
    spec = _build_spec(request, arms)
    model = outcomes.build_model(arms)
    simulation = Simulation(spec, model, request.instances, request.seed)
    return Prepared(
        simulation=simulation,
        engine=build_engine(simulation, request.engine),
        engine_name=request.engine,
        arm_names=names,
        rewards=outcomes.name,
        instance=_DRAWN if names is None else "given",
        measured=DEFAULT_RANGE if config is None else config.reward_range,
        table=outcomes.table,
        calendar=None if config is None else Calendar.of(config),
    )


def build_engine(simulation: Simulation, name: str = "fast") -> Engine:
    """Return the engine of this name for the simulation's policy."""
    policy = simulation.spec.policy
    if name == "fast" and policy in _FAST:
        return _FAST[policy](simulation)
    # These run a node's own code, whose imports a fast engine need not wait for.
    from wallflower.regret.users import AnyPolicy, UsersEngine

    return (UsersEngine if name == "users" else AnyPolicy)(simulation)


def draw_means(instance: str, instances: int, arms: int, seed: int) -> Doubles:
    """Draw means of random instances, uniform in the range of ``easy`` or ``hard``.

    They come from the seed alone, so that every mechanism meets the same instances.
    """
    one_of("instance", instance, tuple(INSTANCES))
    low, high = INSTANCES[instance]
    return np.random.default_rng(seed).uniform(low, high, (instances, arms))


def _build_spec(request: Request, arms: int) -> PolicySpec:
    if request.experiment is None:
        usual: dict[str, Any] = {
            "policy": ELIMINATION,
            "horizon": 10**6,
            "mechanism": "dist-dp",
            "epsilon": Fraction(1),
            "failure_probability": Fraction(1, 10),
        }
        return PolicySpec(**{**usual, **request.policy_changes, "arms": arms})
    # Settings know keys and secure sums; without a file nobody need wait for them.
    from wallflower.strategy.bandit.policies import planned_floors, policy_spec

    config = request.experiment.config
    floors = planned_floors(config) if request.experiment.knows_nodes else None
    changes = {**request.policy_changes, "arms": arms, "floors": floors}
    return replace(policy_spec(config), **changes)


def _choose_outcomes(request: Request, config: ExperimentConfig | None) -> _Outcomes:
    rewards = None if config is None else config.rewards
    if config is None or rewards is None:
        return _draw_outcomes(request, "gaussian", 0.1)
    if rewards.source == "table":
        return _replay_table(request, config, rewards)
    if rewards.means:  # of a function or a service: what one expects of it
        means = np.tile(rewards.fractions, request.instances)
        deviation = rewards.deviation_fraction
        return _Outcomes(
            lambda arms: synthetic_rewards(rewards.model, means, deviation),
            rewards.model,
            config.experiment.arms,
        )
    if rewards.source == "synthetic":
        return _draw_outcomes(request, rewards.model, rewards.deviation_fraction)
    raise InputError(
        "rewards.source",
        f'"{rewards.source}"',
        "with rewards.means, what you expect, in a simulation",
    )


def _draw_outcomes(request: Request, model: str, deviation: float) -> _Outcomes:
    def build(arms: int) -> RewardModel:
        means = draw_means(_DRAWN, request.instances, arms, request.seed)
        return synthetic_rewards(model, means.ravel(), deviation)

    return _Outcomes(build, model)


def _replay_table(
    request: Request, config: ExperimentConfig, rewards: RewardSettings
) -> _Outcomes:
    """Read the table that is replayed; one that `check` would refuse is refused."""
    name, arms = str(rewards.table), config.experiment.arms
    nodes = config.nodes.count if "{node}" in name else 1
    paths = tuple(Path(name.replace("{node}", f"node-{node}")) for node in range(nodes))
    unknown = rewards.window.if_unknown
    judged, values = read_cells(paths, arms, config.reward_range, unknown)
    for error in judged.find_errors():
        raise error
    return _Outcomes(
        lambda _: ReplayRewards(values, request.instances), name, arms, judged
    )
