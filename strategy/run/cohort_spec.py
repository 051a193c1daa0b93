"""A cohort's public description, derived from config, wish and draw."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence

from wallflower.protocol.cohort import to_range, to_rational
from wallflower.protocol.errors import InputError
from wallflower.protocol.messages.port import NodeId
from wallflower.protocol.privacy.honest_floor import Floor, FloorRule
from wallflower.protocol.secure_sum.backends import backend_modulus
from wallflower.protocol.secure_sum.threat import Threat
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.strategy.bandit.policies import nodes_of_a_round, policy_from_state
from wallflower.strategy.bandit.policy import CohortRequest, Policy
from wallflower.strategy.bandit.spec import INDEX_POLICIES
from wallflower.strategy.config import ExperimentConfig
from wallflower.strategy.run.drawing import Draw, UserRegistry
from wallflower.strategy.run.sharing import Composition, UsersExhaustedError


def threat_of(config: ExperimentConfig) -> Threat:
    """Give the threat that ``[secure-sum]`` states."""
    stated = config.secure_sum
    return Threat(
        corrupt=stated.corrupt,
        dropout=stated.dropout,
        malicious_server=stated.server == "malicious",
    )


def floor_rule(config: ExperimentConfig, nodes: int) -> FloorRule:
    """Give the floor to plan with when cohorts are spread over `nodes` nodes."""
    stated = config.secure_sum
    return FloorRule(nodes, stated.corrupt, stated.dropout)


def composition_of(
    config: ExperimentConfig, like: Mapping[NodeId, int] | None = None
) -> Composition:
    """Return how many people of each node a round of this experiment takes.

    Elimination compares the arms of a round with each other. Index policies compare
    cohorts of different rounds, which must all be drawn from the same mixture.
    """
    in_proportion = config.policy.name in INDEX_POLICIES
    return Composition(in_proportion, None if in_proportion else like)


def draw_round(
    registry: UserRegistry,
    config: ExperimentConfig,
    next_cohorts: Sequence[CohortRequest],
    present: Collection[NodeId],
    like: Mapping[NodeId, int] | None = None,
) -> list[Draw]:
    """Draw the users of a round's cohorts as one set; all or nobody.

    Where the nodes picked first do not suffice after all, everyone present is drawn
    from. `like` has the people of each node in a cohort of the same round: its nodes
    are picked first, and where its composition cannot be had, another is.
    """
    size, cohorts = _size_of(next_cohorts), len(next_cohorts)
    everyone = registry.choose(0, 0, present)
    tries = [(everyone, composition_of(config))]
    most = nodes_of_a_round(config)
    chosen = registry.choose(size * cohorts, most, present)
    if len(chosen) < len(everyone):
        tries.insert(0, (chosen, composition_of(config)))
    if like is not None:
        alike = composition_of(config, like)
        same = tuple(name for name in everyone if name in like)
        tries = [(same, alike), (everyone, alike), *tries]
    for names, composition in tries[:-1]:
        rule = floor_rule(config, len(names))
        try:
            return registry.draw_round(size, cohorts, rule, names, composition)
        except (UsersExhaustedError, InputError):
            continue
    names, composition = tries[-1]
    rule = floor_rule(config, len(names))
    return registry.draw_round(size, cohorts, rule, names, composition)


def everybody_suffices(
    registry: UserRegistry,
    config: ExperimentConfig,
    next_cohorts: Sequence[CohortRequest],
    without: Collection[NodeId] = (),
) -> bool:
    """Say whether a round could be drawn if all nodes ever known were there."""
    return floors_of_everybody(registry, config, next_cohorts, without) is not None


def floors_of_everybody(
    registry: UserRegistry,
    config: ExperimentConfig,
    next_cohorts: Sequence[CohortRequest],
    without: Collection[NodeId] = (),
) -> Sequence[Floor] | None:
    """Return what a round's cohorts could promise if all nodes known were there.

    None where everybody known does not suffice for the round.
    """
    rule = floor_rule(config, registry.nodes_left(without))
    return registry.floors_of_everybody(
        _size_of(next_cohorts),
        len(next_cohorts),
        rule,
        composition=composition_of(config),
        without=without,
    )


def who_is_left(
    registry: UserRegistry, config: ExperimentConfig, policy: Policy
) -> int | None:
    """Give the largest limit under which everybody known fills the next round.

    Smaller rounds are tried in steps of 2 %, so up to so many may be left out.
    None where even the smallest round that the policy would ask cannot be filled.
    """
    limited = policy_from_state(policy.state())
    rule = floor_rule(config, registry.nodes_left())
    users = registry.people_left(rule, composition_of(config))
    while True:
        limited.limit(users)
        next_cohorts = limited.next_cohorts()
        if not next_cohorts:
            return None
        if everybody_suffices(registry, config, next_cohorts):
            return users
        size = next_cohorts[0].size
        users = min(users - 1, len(next_cohorts) * (size - max(1, size // 50)))


def _size_of(next_cohorts: Sequence[CohortRequest]) -> int:
    """Return how many users each cohort of a round wants: all want as many."""
    sizes = {cohort_request.size for cohort_request in next_cohorts}
    if len(sizes) != 1:
        raise InputError("cohorts of a round", sorted(sizes), "of one size")
    return sizes.pop()


def may_go_on(registry: UserRegistry, config: ExperimentConfig, policy: Policy) -> bool:
    """Say whether everybody known fills the next round, as planned or a smaller one."""
    if everybody_suffices(registry, config, policy.next_cohorts()):
        return True
    return who_is_left(registry, config, policy) is not None


def cohort_spec(
    config: ExperimentConfig,
    run_id: str,
    cohort_request: CohortRequest,
    floor: Floor,
    attempt: int,
) -> CohortSpec:
    """Describe a cohort; its id is new for every attempt and never repeated.

    Clients refuse a cohort id they answered before, also after their restart, so the
    id carries randomness: a run directory that was deleted must not block a new run.
    """
    mechanism = config.mechanism().for_cohort(
        floor.cohort_size, floor.honest_floor, cohort_request.wrap_probability
    )
    backend = config.secure_sum.backend
    return CohortSpec(
        run_id=run_id,
        batch=cohort_request.batch,
        arm=cohort_request.arm,
        arm_name=config.experiment.arms[cohort_request.arm],
        cohort_id=f"b{cohort_request.batch}-a{cohort_request.arm}-t{attempt}-{secrets.token_hex(6)}",
        mechanism=config.privacy.mechanism,
        epsilon=to_rational(config.privacy.epsilon),
        scale=to_rational(config.privacy.scale),
        wrap_probability=to_rational(cohort_request.wrap_probability),
        cohort_size=floor.cohort_size,
        honest_floor=floor.honest_floor,
        quorum=floor.quorum,
        backend=backend,
        modulus=backend_modulus(backend, mechanism.modulus),
        threat=threat_of(config).to_wire(),
        proved_inputs=config.secure_sum.inputs == "proved",
        reward_range=to_range(config.reward_range),
        window_ms=config.window.stated_ms,
    )
