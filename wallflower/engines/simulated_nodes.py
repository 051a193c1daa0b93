"""The nodes of Flower's simulation: the experiment's ``[nodes]``, in any process.

Flower's simulation serves a node's messages by any of its actors. So the ledger and the
open sessions lie in the run directory and are shared by all processes; a node itself is
made anew in each process that meets it, from the experiment and its own number.
"""

from __future__ import annotations

from pathlib import Path

from flwr.app import Context

from wallflower.clients.host.assemble import make_node
from wallflower.clients.node.node import Node
from wallflower.clients.node.sessions import SessionStore
from wallflower.clients.rewards.source import RewardsOf
from wallflower.clients.transport.grpc_client import Invitation
from wallflower.engines.population import (
    hosted_ledger,
    hosted_setup,
    node_name,
    users_of,
)
from wallflower.protocol.errors import InputError
from wallflower.protocol.identity.enrolment import (
    SEED_FILE,
    EnrolmentKey,
    NodeIdentity,
    simulated_identity,
)
from wallflower.protocol.wire.node_pb2 import (
    Description,
    NodeAnswer,
    NodeRequest,
    TaskAnswer,
)
from wallflower.strategy.config import ExperimentConfig
from wallflower.strategy.flower_config import experiment, run_directory


class _SimulatedRun:
    """What one process knows of one simulated run; all processes share `run_dir`.

    `rewards` replaces ``[rewards]`` of the experiment.
    """

    def __init__(
        self, config: ExperimentConfig, run_dir: Path, rewards: RewardsOf | None
    ) -> None:
        self._sizes = config.nodes.sizes
        seed_file = run_dir / SEED_FILE
        self._seed = seed_file.read_bytes() if seed_file.exists() else None
        self._store = SessionStore(run_dir / "nodes", durable=False)
        self._ledger = hosted_ledger(run_dir, config.nodes.ledger)
        self._setup = hosted_setup(
            config, self._ledger, self._identity, self._enrolment_key(), rewards
        )
        self._trust = self._setup.trust()
        self._nodes: dict[int, Node] = {}

    @property
    def count(self) -> int:
        """How many nodes the experiment describes."""
        return len(self._sizes)

    def node(self, number: int) -> Node:
        """Return the node with this number."""
        if number not in self._nodes:
            name = node_name(number)
            users = users_of(self._setup.source(name), self._sizes[number])
            self._nodes[number] = make_node(
                self._setup, name, users, self._trust, self._store
            )
        return self._nodes[number]

    def close(self) -> None:
        """Close the files; the run may go on in other processes."""
        self._ledger.close()
        self._store.close()

    def _identity(self, name: str) -> NodeIdentity | None:
        if self._seed is None:
            return None
        users = self._sizes[int(name.rpartition("-")[2])]
        return simulated_identity(self._seed, name, users)

    def _enrolment_key(self) -> bytes | None:
        if self._seed is None:
            return None
        return EnrolmentKey.from_private_bytes(self._seed).public_key


def _nobody(body: bytes) -> bytes:
    """Answer for a node beyond those described: nobody lives there.

    An exception would fill Flower's log with a stack trace for every message.
    """
    tasks = NodeRequest.FromString(body).tasks
    return NodeAnswer(
        answers=[
            TaskAnswer(task_id=t.task_id, description=Description()) for t in tasks
        ]
    ).SerializeToString()


class SimulatedProvider:
    """The `NodeProvider` of Flower's simulation; runs are read once per process."""

    def __init__(self, rewards: RewardsOf | None = None) -> None:
        self._rewards = rewards
        self._runs: dict[object, _SimulatedRun] = {}

    def name(self, context: Context) -> str:
        """Return the node's name by its number, which outlives Flower's node ids."""
        return node_name(_number(context))

    async def work(self, context: Context, body: bytes) -> bytes:
        """Answer one request."""
        run, number = self._run(context), _number(context)
        if number >= run.count:
            return _nobody(body)
        return await run.node(number).handle(body)

    async def connect_node(self, context: Context, invitation: Invitation) -> str:
        """Refuse: an actor connected to a gRPC server would serve one node only."""
        raise InputError(
            "transport.kind", "grpc", "flower, in Flower's simulation (or auto)"
        )

    def _run(self, context: Context) -> _SimulatedRun:
        run_config = {key: str(value) for key, value in context.run_config.items()}
        key = context.run_id, tuple(sorted(run_config.items()))
        if key not in self._runs:
            config = experiment(run_config)
            run_dir = run_directory(run_config, config, context.run_id)
            while self._runs:  # an actor lives for one run, a test for many
                self._runs.popitem()[1].close()
            self._runs[key] = _SimulatedRun(config, run_dir, self._rewards)
        return self._runs[key]


def _number(context: Context) -> int:
    return int(context.node_config["partition-id"])
