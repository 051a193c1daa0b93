"""From flags and a TOML file to a simulation that can be played.

The file is the same one that ``wallflower run`` reads; flags override it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from wallflower.protocol.errors import InputError
from wallflower.protocol.files.sections import RewardSettings, one_of
from wallflower.protocol.privacy.honest_floor import PlannedFloors
from wallflower.protocol.rewards.cells import Judgement, read_cells
from wallflower.protocol.rewards.models import (
    RewardModel,
    checked_means,
    synthetic_rewards,
)
from wallflower.protocol.rewards.reward_range import DEFAULT_RANGE, RewardRange
from wallflower.protocol.rewards.tables import (
    RewardTable,
    looks_like_table,
    read_reward_table,
)
from wallflower.regret.elimination import FastElimination
from wallflower.regret.index import FastIndex
from wallflower.regret.simulation import Doubles, Engine, Simulation
from wallflower.strategy.bandit.spec import ELIMINATION, INDEX_POLICIES, PolicySpec

if TYPE_CHECKING:
    from wallflower.strategy.config import ExperimentConfig

Value = TypeVar("Value")

ENGINES = ("fast", "users")
INSTANCES = {"easy": (0.25, 0.75), "hard": (0.45, 0.55)}
# Policies whose law is known here; others are asked themselves, cohort by cohort.
_FAST: dict[str, Callable[[Simulation], Engine]] = {
    ELIMINATION: FastElimination,
    **dict.fromkeys(INDEX_POLICIES, FastIndex),
}


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asked for; None means: from the file, or the default."""

    config: Path | None = None
    arms: int | None = None
    horizon: int | None = None
    epsilon: Fraction | None = None
    mechanism: str | None = None
    scale: Fraction | None = None
    policy: str | None = None
    radius: str | None = None
    ratio: Fraction | None = None
    first_batch: int | None = None
    instance: str | None = None
    means: tuple[float, ...] | None = None
    rewards: str | None = None
    reward_sd: float | None = None
    instances: int = 1
    failure_probability: Fraction | None = None
    engine: str = "fast"
    seed: int = 0
    columns: tuple[str, ...] | None = None  # of tables with a column per arm
    tables: tuple[Path, ...] | None = None
    names: tuple[str, ...] | None = None  # of the arms, where a file gives them
    honest_fraction: Fraction | None = None  # of every cohort, surely there
    floors: PlannedFloors | None = None  # of the nodes of a file
    measured: RewardRange | None = None  # of the outcomes of a file
    if_unknown: float | None = None  # as a part of it


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


def prepare(request: Request) -> Prepared:
    """Check everything and build the engine; raises InputError naming what is wrong."""
    one_of("engine", request.engine, ENGINES)
    if request.instances < 1:
        raise InputError("instances", request.instances, "at least 1")
    if request.seed < 0:
        raise InputError("seed", request.seed, "a whole number of at least 0")
    request = _with_file(request)
    rewards, names, table = _rewards(request)
    arms = len(names) if names is not None else _or(request.arms, 10)
    if request.arms is not None and request.arms != arms:
        raise InputError("arms", request.arms, f"{arms}, as many as there are means")
    spec = PolicySpec(
        policy=_or(request.policy, ELIMINATION),
        arms=arms,
        horizon=_or(request.horizon, 10**6),
        mechanism=_or(request.mechanism, "dist-dp"),
        epsilon=_or(request.epsilon, Fraction(1)),
        scale=_or(request.scale, Fraction(10)),
        failure_probability=_or(request.failure_probability, Fraction(1, 10)),
        radius=_or(request.radius, "tight"),
        ratio=request.ratio,
        first_batch=_or(request.first_batch, 0),
        honest_fraction=_or(request.honest_fraction, Fraction(1)),
        floors=request.floors,
    )
    model = rewards(arms)
    simulation = Simulation(spec, model, request.instances, request.seed)
    return Prepared(
        simulation=simulation,
        engine=build_engine(simulation, request.engine),
        engine_name=request.engine,
        arm_names=names,
        rewards=_or(request.rewards, "gaussian"),
        instance="given" if names is not None else _or(request.instance, "easy"),
        measured=_or(request.measured, DEFAULT_RANGE),
        table=table,
    )


def build_engine(simulation: Simulation, name: str = "fast") -> Engine:
    """Return the engine for a policy, by the engine's name."""
    spec = simulation.spec
    if name == "fast" and spec.policy in _FAST:
        return _FAST[spec.policy](simulation)
    # These run a node's own code, whose imports a fast engine need not wait for.
    from wallflower.regret.users import AnyPolicy, UsersEngine

    return (UsersEngine if name == "users" else AnyPolicy)(simulation)


def drawn_means(instance: str, instances: int, arms: int, seed: int) -> Doubles:
    """Means of random instances, uniform in the range of ``easy`` or ``hard``.

    They come from the seed alone, so that every mechanism meets the same instances.
    """
    one_of("instance", instance, tuple(INSTANCES))
    low, high = INSTANCES[instance]
    return np.random.default_rng(seed).uniform(low, high, (instances, arms))


Model = Callable[[int], RewardModel]


def _rewards(
    request: Request,
) -> tuple[Model, tuple[str, ...] | None, Judgement | None]:
    """Return a builder of the reward model, the arms' names and the table, if any."""
    kind = _or(request.rewards, "gaussian")
    deviation = _or(request.reward_sd, 0.1)
    if looks_like_table(kind):
        if request.means is not None or request.instance is not None:
            raise InputError("means", "given beside a reward file", "one of the two")
        table, judged = _replayed(request, Path(kind))
        return lambda arms: table.model(request.instances), table.arms, judged
    if request.means is not None:
        if request.instance is not None:
            raise InputError("instance", request.instance, "left out beside means")
        means = checked_means(request.means)
        if means.size < 2:
            raise InputError("arms", means.size, "at least two")
        names = tuple(str(arm) for arm in range(means.size))
        if request.names is not None and len(request.names) == means.size:
            names = request.names
        tiled = np.tile(means, request.instances)
        return lambda arms: synthetic_rewards(kind, tiled, deviation), names, None

    def drawn(arms: int) -> RewardModel:
        shape = (_or(request.instance, "easy"), request.instances, arms, request.seed)
        return synthetic_rewards(kind, drawn_means(*shape).ravel(), deviation)

    return drawn, None, None


def _replayed(request: Request, path: Path) -> tuple[RewardTable, Judgement | None]:
    """Read the table that is replayed; one that `check` would refuse is refused."""
    measured = _or(request.measured, DEFAULT_RANGE)
    if request.columns is None:
        return read_reward_table(path, measured), None
    paths = _or(request.tables, (path,))
    unknown = _or(request.if_unknown, 0.0)
    judged, values = read_cells(paths, request.columns, measured, unknown)
    for error in judged.find_errors():
        raise error
    return RewardTable(request.columns, values), judged


def _with_file(request: Request) -> Request:
    """Fill what flags left open from the experiment's TOML file."""
    if request.config is None:
        return request
    # Settings know keys and secure sums; a simulation from flags need not wait for it.
    from wallflower.strategy.bandit.policies import planned_floors
    from wallflower.strategy.config import load_config

    config = load_config(request.config)
    stated = config.secure_sum
    from_file: dict[str, object] = {
        "names": config.experiment.arms,
        "honest_fraction": Fraction(1) - stated.corrupt - stated.dropout,
        "floors": planned_floors(config),
        "horizon": config.horizon,
        "failure_probability": config.experiment.failure_probability,
        "mechanism": config.privacy.mechanism,
        "epsilon": config.privacy.epsilon,
        "scale": config.privacy.scale,
        "policy": config.policy.name,
        "radius": config.policy.radius,
        "ratio": config.policy.ratio,
        "first_batch": config.policy.first_batch,
        "measured": config.reward_range,
    }
    flags = {
        name: value
        for name in Request.__dataclass_fields__
        if (value := getattr(request, name)) is not None
    }
    flags |= _parts_of_range(request, config.reward_range)
    if not {"means", "instance", "rewards"} & flags.keys() and config.rewards:
        from_file |= _rewards_of_file(config, config.rewards)
    if not {"means", "rewards"} & (flags | from_file).keys():
        from_file["arms"] = len(config.experiment.arms)
    return Request(**{**from_file, **flags})


def _parts_of_range(request: Request, measured: RewardRange) -> dict[str, Any]:
    """Read means and deviation of flags, which are in the unit of a file."""
    found: dict[str, Any] = {}
    for mean in request.means or ():
        if not measured.contains(mean):
            raise InputError("means", mean, f"within rewards.range, {measured}")
    if request.means is not None:
        found["means"] = tuple(measured.to_fraction(mean) for mean in request.means)
    if request.reward_sd is not None:
        found["reward_sd"] = request.reward_sd / measured.width
    return found


def _rewards_of_file(
    config: ExperimentConfig, rewards: RewardSettings
) -> dict[str, object]:
    if rewards.source == "table":
        name = str(rewards.table)
        nodes = config.nodes.count if "{node}" in name else 1
        tables = tuple(
            Path(name.replace("{node}", f"node-{node}")) for node in range(nodes)
        )
        return {
            "rewards": name,
            "columns": config.experiment.arms,
            "tables": tables,
            "if_unknown": rewards.window.if_unknown,
        }
    if rewards.means:  # of a function or a service: what one expects of it
        return {
            "rewards": rewards.model,
            "means": rewards.fractions,
            "reward_sd": rewards.deviation_fraction,
        }
    raise InputError(
        "rewards.source",
        f'"{rewards.source}"',
        "with rewards.means, what you expect, in a simulation; or give --means",
    )


def _or(value: Value | None, default: Value) -> Value:
    return default if value is None else value
