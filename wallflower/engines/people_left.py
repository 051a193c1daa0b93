"""Whom of a hosted population an experiment could ask, by the ledger they share.

Read without touching it: for whoever plans or checks an experiment.
"""

from __future__ import annotations

from collections.abc import Mapping

from wallflower.clients.node.ledger_reading import read_accounts
from wallflower.clients.node.spends import NodeAccount, make_spend
from wallflower.engines.population import (
    agreed_policy,
    node_names,
    reward_sources,
    users_of,
)
from wallflower.protocol.cohort import cohort_mechanism
from wallflower.strategy.bandit.setup import policy_for
from wallflower.strategy.config import ExperimentConfig
from wallflower.strategy.run.cohort_spec import cohort_spec, floor_rule
from wallflower.strategy.store.askable import Askable, askable_of
from wallflower.strategy.store.entries import Met

_NEW_RUN = "a run that is yet to begin"


def hosted_people(
    config: ExperimentConfig, shufflers: tuple[str, ...] = ()
) -> Mapping[str, Met]:
    """Return how many people each hosted node has, and how many it would leave out."""
    names, sizes = node_names(config), config.nodes.sizes
    path = config.nodes.ledger
    if path is None or not path.exists():
        return dict(zip(names, map(Met, sizes), strict=True))
    policy, accounts = agreed_policy(config, shufflers), read_accounts(path)
    cohort_request = policy_for(config).next_cohorts()[0]
    floor = floor_rule(config, config.nodes.count).floor(cohort_request.size)
    spec = cohort_spec(config, _NEW_RUN, cohort_request, floor, 1)
    mechanism, source = cohort_mechanism(spec), reward_sources(config)
    people = {}
    for name, size in zip(names, sizes, strict=True):
        users = users_of(source(name), size)
        spend = make_spend(policy, name, spec, mechanism, users)
        unable = accounts.get(name, NodeAccount()).unable(spend)
        people[name] = Met(len(users), len(unable))
    return people


def count_askable(config: ExperimentConfig) -> Askable | None:
    """Count whom an experiment could ask; None where no ledger tells."""
    path = config.nodes.ledger
    if path is None or config.rewards is None or not path.exists():
        return None
    return askable_of(hosted_people(config), 0)
