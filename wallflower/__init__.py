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

import wallflower.protocol.identity.tls  # noqa: F401 (before gRPC is loaded)
from wallflower.version import __version__

if TYPE_CHECKING:
    from wallflower.api import check, plan, resume, run, simulate, verify
    from wallflower.clients.client_app import serve_nodes
    from wallflower.clients.consent import ClientPolicy
    from wallflower.clients.node.node import Node, NodeParts
    from wallflower.clients.rewards.source import (
        LostRewardError,
        Pull,
        RewardSource,
        RewardStream,
    )
    from wallflower.engines.in_process_grid import InProcessGrid, partitions
    from wallflower.protocol.errors import WallflowerError
    from wallflower.protocol.messages.port import (
        Answer,
        NodeHandler,
        NodeTransport,
        Request,
    )
    from wallflower.protocol.noise.law import NoiseLaw
    from wallflower.protocol.privacy.mechanism import (
        CohortMechanism,
        Mechanism,
        mechanism_named,
    )
    from wallflower.reports import (
        CheckReport,
        PlannedGap,
        PlanReport,
        SimulatedArm,
        SimulationReport,
        Verification,
    )
    from wallflower.results.page import Run, load_run
    from wallflower.strategy.bandit.policy import (
        ArmView,
        CohortRequest,
        CohortSum,
        Policy,
    )
    from wallflower.strategy.config import ExperimentConfig, load_config
    from wallflower.strategy.flower_config import experiment, run_directory
    from wallflower.strategy.named_arm import NamedArm
    from wallflower.strategy.private_bandit import PrivateBandit
    from wallflower.strategy.run.orchestrator import Orchestrator
    from wallflower.strategy.store.journal import Journal

# Where each public name lives.
_HOMES = {
    "Answer": "wallflower.protocol.messages.port",
    "ArmView": "wallflower.strategy.bandit.policy",
    "CheckReport": "wallflower.reports",
    "ClientPolicy": "wallflower.clients.consent",
    "CohortMechanism": "wallflower.protocol.privacy.mechanism",
    "CohortRequest": "wallflower.strategy.bandit.policy",
    "CohortSum": "wallflower.strategy.bandit.policy",
    "ExperimentConfig": "wallflower.strategy.config",
    "InProcessGrid": "wallflower.engines.in_process_grid",
    "Journal": "wallflower.strategy.store.journal",
    "LostRewardError": "wallflower.clients.rewards.source",
    "Mechanism": "wallflower.protocol.privacy.mechanism",
    "NamedArm": "wallflower.strategy.named_arm",
    "Node": "wallflower.clients.node.node",
    "NodeHandler": "wallflower.protocol.messages.port",
    "NodeParts": "wallflower.clients.node.node",
    "NodeTransport": "wallflower.protocol.messages.port",
    "NoiseLaw": "wallflower.protocol.noise.law",
    "Orchestrator": "wallflower.strategy.run.orchestrator",
    "PlanReport": "wallflower.reports",
    "PlannedGap": "wallflower.reports",
    "Policy": "wallflower.strategy.bandit.policy",
    "PrivateBandit": "wallflower.strategy.private_bandit",
    "Pull": "wallflower.clients.rewards.source",
    "Request": "wallflower.protocol.messages.port",
    "RewardSource": "wallflower.clients.rewards.source",
    "RewardStream": "wallflower.clients.rewards.source",
    "Run": "wallflower.results.page",
    "SimulatedArm": "wallflower.reports",
    "SimulationReport": "wallflower.reports",
    "Verification": "wallflower.reports",
    "WallflowerError": "wallflower.protocol.errors",
    "check": "wallflower.api",
    "experiment": "wallflower.strategy.flower_config",
    "load_config": "wallflower.strategy.config",
    "load_run": "wallflower.results.page",
    "mechanism_named": "wallflower.protocol.privacy.mechanism",
    "partitions": "wallflower.engines.in_process_grid",
    "plan": "wallflower.api",
    "resume": "wallflower.api",
    "run": "wallflower.api",
    "run_directory": "wallflower.strategy.flower_config",
    "serve_nodes": "wallflower.clients.client_app",
    "simulate": "wallflower.api",
    "verify": "wallflower.api",
}

__all__ = [
    "Answer",
    "ArmView",
    "CheckReport",
    "ClientPolicy",
    "CohortMechanism",
    "CohortRequest",
    "CohortSum",
    "ExperimentConfig",
    "InProcessGrid",
    "Journal",
    "LostRewardError",
    "Mechanism",
    "NamedArm",
    "Node",
    "NodeHandler",
    "NodeParts",
    "NodeTransport",
    "NoiseLaw",
    "Orchestrator",
    "PlanReport",
    "PlannedGap",
    "Policy",
    "PrivateBandit",
    "Pull",
    "Request",
    "RewardSource",
    "RewardStream",
    "Run",
    "SimulatedArm",
    "SimulationReport",
    "Verification",
    "WallflowerError",
    "__version__",
    "check",
    "experiment",
    "load_config",
    "load_run",
    "mechanism_named",
    "partitions",
    "plan",
    "resume",
    "run",
    "run_directory",
    "serve_nodes",
    "simulate",
    "verify",
]


if not TYPE_CHECKING:  # a type checker knows the names above and no other

    def __getattr__(name: str) -> Any:
        """Import a public name from where it lives, on first use."""
        if name not in _HOMES:
            raise AttributeError(f"wallflower has no {name!r}")
        return getattr(importlib.import_module(_HOMES[name]), name)
