"""Build the policy of an experiment by name, from its config or its written state."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING

from wallflower.protocol.errors import InputError, JournalError
from wallflower.protocol.privacy.honest_floor import PlannedFloors
from wallflower.strategy.bandit.elimination import Elimination
from wallflower.strategy.bandit.index import IndexPolicy
from wallflower.strategy.bandit.policy import Policy
from wallflower.strategy.bandit.recorded import State
from wallflower.strategy.bandit.spec import PolicySpec
from wallflower.strategy.policy_names import ELIMINATION, INDEX_POLICIES

if TYPE_CHECKING:
    from wallflower.strategy.config import ExperimentConfig

# name → what begins an experiment from a spec, or goes on from a written state
_POLICIES: dict[str, Callable[[PolicySpec, State | None], Policy]] = {
    ELIMINATION: Elimination,
    **dict.fromkeys(INDEX_POLICIES, IndexPolicy),
}


def build_policy(spec: PolicySpec) -> Policy:
    """Start an experiment; the spec has checked the name already."""
    return _POLICIES[spec.policy](spec, None)


def policy_from_state(state: State) -> Policy:
    """Restore a policy exactly; refuses a state it cannot read."""
    try:
        if state["schema_version"] != 1:
            raise JournalError(
                f"policy state has schema {state['schema_version']}; this version "
                "reads 1: use the Wallflower that wrote it"
            )
        spec = PolicySpec.from_json(state["spec"])
        return _POLICIES[spec.policy](spec, state)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise JournalError(
            f"policy state is damaged ({type(error).__name__}: {error}); "
            "restore the journal from a copy"
        ) from None


def policy_spec(config: ExperimentConfig) -> PolicySpec:
    """Return what the config says about how arms are compared.

    The floor to plan with is the fraction 1 − γ − δ of a cohort; real cohorts carry
    their own. It follows from the config alone, so that `verify` builds the same
    policy whoever took part.
    """
    stated = config.secure_sum
    return PolicySpec(
        policy=config.policy.name,
        arms=len(config.experiment.arms),
        horizon=config.horizon,
        mechanism=config.privacy.mechanism,
        epsilon=config.privacy.epsilon,
        scale=config.privacy.scale,
        failure_probability=config.experiment.failure_probability,
        radius=config.policy.radius,
        ratio=config.policy.ratio,
        first_batch=config.policy.first_batch,
        most_rounds=config.policy.most_rounds,
        few_rounds=not config.immediate,
        honest_fraction=Fraction(1) - stated.corrupt - stated.dropout,
        control=config.experiment.control_arm,
        keep_control=config.experiment.keep_control,
        margin=config.margin,
    )


def nodes_of_a_round(config: ExperimentConfig) -> int:
    """Return how many nodes a round draws from where they suffice; 0: all.

    Index policies compare cohorts of different rounds. Rounds on different nodes would
    differ by the nodes, so theirs draw from all.
    """
    if config.policy.name in INDEX_POLICIES:
        return 0
    return config.secure_sum.nodes_per_cohort


def planned_floors(config: ExperimentConfig) -> PlannedFloors:
    """Return the floors that a run of this file on its own ``[nodes]`` will have."""
    stated = config.secure_sum
    return PlannedFloors(
        sizes=tuple(sorted(config.nodes.sizes, reverse=True)),
        most=nodes_of_a_round(config),
        arms=len(config.experiment.arms),
        corrupt=stated.corrupt,
        dropout=stated.dropout,
    )


def policy_for(config: ExperimentConfig) -> Policy:
    """Start a policy; refuses a horizon that does not hold one first batch."""
    spec = policy_spec(config)
    policy = build_policy(spec)
    if policy.finished is not None:
        needed = spec.arms * spec.resolved().first_batch
        raise InputError(
            "horizon",
            config.horizon,
            f"at least {needed} users: a first round for each of {spec.arms} arms",
        )
    return policy
