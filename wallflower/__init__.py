"""Private multi-armed bandits on Flower: the operator's tools and public API.

Everything others build on can be imported from here. Names are looked up on first use,
so that the command line does not pay for Flower or NumPy before it needs them.

Examples
--------
>>> from fractions import Fraction
>>> from wallflower import mechanism_named
>>> mechanism = mechanism_named("dist-dp", Fraction(1))
>>> cohort = mechanism.for_cohort(100, 80, Fraction(1, 1000))
>>> cohort.precision, cohort.bits_per_user
(10, 11)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import protocol.tls  # noqa: F401 (before gRPC is loaded)

if TYPE_CHECKING:
    from clients.node import Node, NodeParts
    from clients.policy import ClientPolicy
    from protocol.errors import WallflowerError
    from protocol.law import NoiseLaw
    from protocol.mechanism import CohortMechanism, Mechanism, mechanism_named
    from protocol.port import Answer, NodeHandler, NodePort, Request
    from strategy.config import ExperimentConfig, load_config
    from strategy.flower_strategy import PrivateBandit
    from strategy.journal import Journal
    from strategy.orchestrator import Orchestrator
    from strategy.policy import ArmView, CohortOutcome, CohortWish, Policy

_HOMES = {
    "Answer": "protocol.port",
    "ArmView": "strategy.policy",
    "ClientPolicy": "clients.policy",
    "CohortMechanism": "protocol.mechanism",
    "CohortOutcome": "strategy.policy",
    "CohortWish": "strategy.policy",
    "ExperimentConfig": "strategy.config",
    "Journal": "strategy.journal",
    "Mechanism": "protocol.mechanism",
    "Node": "clients.node",
    "NodeHandler": "protocol.port",
    "NodeParts": "clients.node",
    "NodePort": "protocol.port",
    "NoiseLaw": "protocol.law",
    "Orchestrator": "strategy.orchestrator",
    "Policy": "strategy.policy",
    "PrivateBandit": "strategy.flower_strategy",
    "Request": "protocol.port",
    "WallflowerError": "protocol.errors",
    "load_config": "strategy.config",
    "mechanism_named": "protocol.mechanism",
}

__all__ = [
    "Answer",
    "ArmView",
    "ClientPolicy",
    "CohortMechanism",
    "CohortOutcome",
    "CohortWish",
    "ExperimentConfig",
    "Journal",
    "Mechanism",
    "Node",
    "NodeHandler",
    "NodeParts",
    "NodePort",
    "NoiseLaw",
    "Orchestrator",
    "Policy",
    "PrivateBandit",
    "Request",
    "WallflowerError",
    "load_config",
    "mechanism_named",
]


def __getattr__(name: str) -> Any:
    """Import a public name from where it lives, on first use."""
    if name not in _HOMES:
        raise AttributeError(f"wallflower has no {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
