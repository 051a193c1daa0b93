"""What is to be planned: the operator's question, by flags or from a file."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from wallflower.calendar_time import Calendar
from wallflower.planning.units import Question
from wallflower.protocol.cohort import check_pairing
from wallflower.protocol.errors import InputError
from wallflower.protocol.numbers import whole
from wallflower.protocol.privacy.honest_floor import PlannedFloors
from wallflower.protocol.rewards.reward_range import DEFAULT_RANGE, RewardRange
from wallflower.protocol.secure_sum.backends import SHUFFLE
from wallflower.protocol.secure_sum.shuffle.plan import mode_of
from wallflower.stated_experiment import StatedExperiment
from wallflower.strategy.bandit.policies import planned_floors
from wallflower.strategy.bandit.spec import PolicySpec
from wallflower.strategy.config import ExperimentConfig
from wallflower.strategy.policy_names import ELIMINATION
from wallflower.strategy.run.drawing import Reach, Stranded, count_reach, find_stranded


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """The operator's question; `gaps` are differences of means to be told apart.

    Gaps and `base_rate` are parts of the range `measured`.

    `floor` is the part of every cohort that is surely honest and present, `corrupt`
    the part of its nodes that may work with the operator. `shuffle` ``mixed`` sends
    the sums of ``dist-dp`` through a shuffler.
    """

    arms: int = 10
    horizon: int = 100_000
    epsilon: Fraction = Fraction(1)
    mechanism: str = "dist-dp"
    scale: Fraction = Fraction(10)
    ratio: Fraction | None = None
    first_batch: int = 0
    most_rounds: int = 0
    few_rounds: bool = False  # see `PolicySpec`
    floor: Fraction = Fraction(4, 5)
    corrupt: Fraction = Fraction(1, 10)
    participations: int = 1
    failure_probability: Fraction = Fraction(1, 20)
    gaps: tuple[Fraction, ...] = ()
    base_rate: Fraction = Fraction(1, 2)
    shuffle: str = ""
    floors: PlannedFloors | None = None  # of the nodes of a file, instead of `floor`
    names: tuple[str, ...] = ()  # of a file's arms
    measured: RewardRange = DEFAULT_RANGE
    outcomes: bool = False  # whether there is a file that says what is measured
    reach: Reach | None = None  # of the nodes of a file
    stranded: Stranded | None = None  # of its people
    calendar: Calendar | None = None  # of people who arrive
    control: int | None = None
    keep_control: bool = False
    margin: Fraction | None = None  # as a part of the range

    def __post_init__(self) -> None:
        whole("participations", self.participations, at_least=1, at_most=1000)
        for gap in self.gaps:
            if not 0 < gap <= 1:
                raise InputError("gap", gap, "greater than 0 and at most 1")
        if not 0 < self.base_rate < 1:
            raise InputError("base-rate", self.base_rate, "between 0 and 1")
        if not 0 < self.floor <= 1:
            raise InputError("floor", self.floor, "greater than 0 and at most 1")
        if not 0 <= self.corrupt < 1:
            raise InputError("corrupt", self.corrupt, "from 0 to below 1")
        if self.shuffle and self.shuffle != mode_of(self.mechanism):
            allowed = f'"{mode_of(self.mechanism)}" with {self.mechanism}'
            raise InputError("shuffle", self.shuffle, allowed)
        if self.shuffle:
            check_pairing(self.mechanism, SHUFFLE)

    @property
    def most_users(self) -> int:
        """Users who can be asked in all: those wanted, as far as nodes give them."""
        if self.reach is None:
            return self.horizon
        return min(self.horizon, self.reach.invitations)

    def policy(self) -> PolicySpec:
        """The elimination policy these settings describe, first batch resolved."""
        return PolicySpec(
            policy=ELIMINATION,
            arms=self.arms,
            horizon=self.horizon,
            mechanism=self.mechanism,
            epsilon=self.epsilon,
            scale=self.scale,
            failure_probability=self.failure_probability,
            ratio=self.ratio,
            first_batch=self.first_batch,
            most_rounds=self.most_rounds,
            few_rounds=self.few_rounds,
            honest_fraction=self.floor,
            floors=self.floors,
            control=self.control,
            keep_control=self.keep_control,
            margin=self.margin,
        ).resolved()


def read_request(
    stated: StatedExperiment, flags: Mapping[str, Any], question: Question
) -> PlanRequest:
    """Return what is to be planned: an experiment as flags have changed it.

    `flags` are fields of a `PlanRequest`. Those that change arms or mechanism plan for
    others than the nodes and sums of the file.
    """
    config = stated.config
    stated_sum = config.secure_sum
    found: dict[str, Any] = {
        "arms": len(config.experiment.arms),
        "names": config.experiment.arms if stated.states_arms else (),
        "horizon": config.horizon,
        "epsilon": config.privacy.epsilon,
        "mechanism": config.privacy.mechanism,
        "scale": config.privacy.scale,
        "ratio": config.policy.ratio,
        "first_batch": config.policy.first_batch,
        "most_rounds": config.policy.most_rounds,
        "few_rounds": not config.immediate,
        "floor": Fraction(1) - stated_sum.corrupt - stated_sum.dropout,
        "corrupt": stated_sum.corrupt,
        "participations": config.privacy.max_participations,
        "failure_probability": config.experiment.failure_probability,
        "shuffle": stated_sum.shuffle if stated_sum.backend == SHUFFLE else "",
        "gaps": question.gaps,
        "base_rate": question.base_rate,
        "measured": config.reward_range,
        "outcomes": stated.states_outcomes,
        "calendar": Calendar.of(config),
        "margin": config.margin,
    }
    if "arms" in flags:
        found["names"] = ()
    else:
        found["control"] = config.experiment.control_arm
        found["keep_control"] = config.experiment.keep_control
    if "arms" not in flags and stated.knows_nodes:
        found["floors"] = planned_floors(config)
    request = PlanRequest(**{**found, **flags})
    if stated.knows_nodes and flags.keys().isdisjoint({"arms", "mechanism"}):
        planned, sizes = _planned_config(config, request), config.nodes.sizes
        reach, stranded = count_reach(planned, sizes), find_stranded(planned, sizes)
        request = dataclasses.replace(request, reach=reach, stranded=stranded)
    return request


def _planned_config(config: ExperimentConfig, request: PlanRequest) -> ExperimentConfig:
    """Return the experiment of a file as flags have changed it."""
    experiment, privacy, policy = config.experiment, config.privacy, config.policy
    return dataclasses.replace(
        config,
        experiment=dataclasses.replace(
            experiment,
            horizon=request.horizon,
            failure_probability=request.failure_probability,
        ),
        privacy=dataclasses.replace(
            privacy,
            epsilon=request.epsilon,
            scale=request.scale,
            max_participations=request.participations,
        ),
        policy=dataclasses.replace(
            policy,
            name=ELIMINATION,
            ratio=request.ratio,
            first_batch=request.first_batch,
        ),
    )
