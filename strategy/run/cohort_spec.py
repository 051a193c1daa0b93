"""A cohort's public description, derived from config, wish and draw."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence

from wallflower.protocol.cohort import to_rational
from wallflower.protocol.errors import InputError
from wallflower.protocol.messages.port import NodeId
from wallflower.protocol.privacy.honest_floor import Floor, FloorRule
from wallflower.protocol.secure_sum.backends import backend_modulus
from wallflower.protocol.secure_sum.threat import Threat
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.strategy.bandit.policy import CohortWish, Policy
from wallflower.strategy.bandit.setup import restored_policy
from wallflower.strategy.config import ExperimentConfig
from wallflower.strategy.run.drawing import Draw, UserRegistry
from wallflower.strategy.run.sharing import UsersExhaustedError


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


def draw_round(
    registry: UserRegistry,
    config: ExperimentConfig,
    wishes: Sequence[CohortWish],
    present: Collection[NodeId],
) -> list[Draw]:
    """Draw the users of a round's cohorts, all from the same nodes; all or nobody.

    Where the nodes picked first do not suffice after all, everyone present is drawn
    from.
    """
    sizes = [wish.size for wish in wishes]
    most = config.secure_sum.nodes_per_cohort
    chosen = registry.choose(sum(sizes), most, present)
    try:
        return registry.draw_all(sizes, floor_rule(config, len(chosen)), chosen)
    except (UsersExhaustedError, InputError):
        everyone = registry.choose(sum(sizes), 0, present)
        if len(chosen) == len(everyone):
            raise
    return registry.draw_all(sizes, floor_rule(config, len(everyone)), everyone)


def everybody_suffices(
    registry: UserRegistry,
    config: ExperimentConfig,
    wishes: Sequence[CohortWish],
    without: Collection[NodeId] = (),
) -> bool:
    """Say whether a round could be drawn if all nodes ever known were there."""
    sizes = [wish.size for wish in wishes]
    nodes, _ = registry.everybody_left(without)
    return registry.suffices(sizes, floor_rule(config, nodes), without)


def who_is_left(
    registry: UserRegistry, config: ExperimentConfig, policy: Policy
) -> int | None:
    """Give the largest limit under which everybody known fills the next round.

    None where even the smallest round that the policy would ask cannot be filled.
    """
    limited = restored_policy(policy.state())
    _, users = registry.everybody_left()
    while True:
        limited.limit(users)
        wishes = limited.wishes()
        if not wishes:
            return None
        if everybody_suffices(registry, config, wishes):
            return users
        users = min(users - 1, len(wishes) * (wishes[0].size - 1))


def may_go_on(registry: UserRegistry, config: ExperimentConfig, policy: Policy) -> bool:
    """Say whether everybody known fills the next round, as planned or a smaller one."""
    if everybody_suffices(registry, config, policy.wishes()):
        return True
    return who_is_left(registry, config, policy) is not None


def cohort_spec(
    config: ExperimentConfig, run_id: str, wish: CohortWish, floor: Floor, attempt: int
) -> CohortSpec:
    """Describe a cohort; its id is new for every attempt and never repeated.

    Clients refuse a cohort id they answered before, also after their restart, so the
    id carries randomness: a run directory that was deleted must not block a new run.
    """
    mechanism = config.mechanism().for_cohort(
        floor.cohort_size, floor.honest_floor, wish.wrap_probability
    )
    backend = config.secure_sum.backend
    return CohortSpec(
        run_id=run_id,
        batch=wish.batch,
        arm=wish.arm,
        arm_name=config.experiment.arms[wish.arm],
        cohort_id=f"b{wish.batch}-a{wish.arm}-t{attempt}-{secrets.token_hex(6)}",
        mechanism=config.privacy.mechanism,
        epsilon=to_rational(config.privacy.epsilon),
        scale=to_rational(config.privacy.scale),
        wrap_probability=to_rational(wish.wrap_probability),
        cohort_size=floor.cohort_size,
        honest_floor=floor.honest_floor,
        quorum=floor.quorum,
        backend=backend,
        modulus=backend_modulus(backend, mechanism.modulus),
        threat=threat_of(config).to_wire(),
        proved_inputs=config.secure_sum.inputs == "proved",
    )
