"""The ``fast`` engine of ``wallflower run``: the sums alone.

Same nodes, orchestrator and journal as engine ``local``, but the users' integers are
simply added up: no ledger, no secure sum, no transport. It rehearses an experiment in
moments. With ``test.noise-seed`` its sums are those of ``local`` and ``simulation``,
bit by bit, which shows that crypto and transport change nothing. It protects nobody:
whoever runs it holds every reward.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from wallflower.clients.node.node import Node, NodeParts
from wallflower.clients.node.randomizer import real_randomizer, seeded_randomizer
from wallflower.clients.node.spends import OneTimeAnswer, Spend
from wallflower.engines.population import (
    agreed_policy,
    check_known_people,
    check_rewards,
    hosted_window,
    node_names,
    reward_sources,
    users_of,
)
from wallflower.engines.registry import EngineJob, EngineSpec
from wallflower.protocol.errors import MalformedMessageError
from wallflower.protocol.messages.port import NodeId
from wallflower.protocol.secure_sum.backends import SEALED, stages_of
from wallflower.protocol.secure_sum.session import (
    Ask,
    Contribution,
    Finding,
    SecureSum,
    StageAnswer,
    Void,
)
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.strategy.config import ExperimentConfig
from wallflower.strategy.run.orchestrator import Orchestrator
from wallflower.strategy.run.pending_cohorts import Contributions
from wallflower.strategy.secure_sum.keyring import SharedKey
from wallflower.strategy.store.event_log import EventLog
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.transport.memory import MemoryTransport
from wallflower.strategy.watch.telemetry import fan_out

_ANY_SHUFFLER = "0" * 64  # none is asked


def check_fast(config: ExperimentConfig) -> None:
    """Refuse what would fail later."""
    check_known_people(config, "fast")
    check_rewards(config)
    agreed_policy(config, (_ANY_SHUFFLER,))


async def run_fast(job: EngineJob) -> None:
    """Drive a job to its end; see `wallflower.engines.registry.Engine`."""
    run_dir, config = job.run_dir, job.config
    with Journal.resume(run_dir, config) as journal, EventLog(run_dir) as log:
        nodes = _nodes(config)
        orchestrator = Orchestrator(
            config,
            journal,
            MemoryTransport(nodes),
            _PlainSessions(),
            fan_out(log.listen, job.listen),
            expected_nodes=len(nodes),
        )
        await orchestrator.run()


def _nodes(config: ExperimentConfig) -> Mapping[NodeId, Node]:
    source, seed = reward_sources(config), config.test.noise_seed
    policy, ledger = agreed_policy(config, (_ANY_SHUFFLER,)), _RehearsalLedger()
    real = real_randomizer()
    return {
        name: Node(
            name,
            users_of(source(name), count),
            NodeParts(
                source=source(name),
                policy=policy,
                ledger=ledger,
                open_session=_PlainClient,
                randomize=real if seed is None else seeded_randomizer(seed, name),
                window=hosted_window(config),
                reward_range=config.reward_range,
            ),
        )
        for name, count in zip(node_names(config), config.nodes.sizes, strict=True)
    }


class _RehearsalLedger:
    """A `NodeLedger` that keeps nothing: a rehearsal spends nobody's budget."""

    async def has_answered(self, node_id: str, run_id: str, cohort_id: str) -> bool:
        """Never: the journal asks nobody twice."""
        return False

    async def latest_cohorts(
        self, node_id: str, run_id: str, most: int
    ) -> Sequence[str]:
        """None: nothing is written down."""
        return ()

    async def prepare(self, entry: Spend) -> Mapping[str, str]:
        """Refuse nobody."""
        return {}

    async def spend(self, entry: Spend) -> None:
        """Write nothing."""

    async def record_answer(self, answer: OneTimeAnswer) -> None:
        """Write nothing."""

    async def withdrawn(self, node_id: str) -> frozenset[str]:
        """Nobody: no person is asked."""
        return frozenset()


class _PlainRequest:
    """Takes a node's value whatever the message says."""

    needs_value = True

    def check_users(self, users: int) -> None:
        return

    def answer(self, value: Contribution | None = None) -> StageAnswer:
        if value is None:
            raise MalformedMessageError("a sum needs a contribution")
        return StageAnswer(b"%d %d" % (value.users, value.value))


@dataclass(slots=True)
class _PlainClient:
    """Sends a node's integer as it is."""

    spec: CohortSpec

    def inspect(self, body: bytes) -> _PlainRequest:
        return _PlainRequest()

    def snapshot(self) -> bytes:
        return b""

    def close(self) -> None:
        return


@dataclass(slots=True)
class _PlainServer:
    """Adds up what nodes send; no sum below its quorum."""

    spec: CohortSpec
    awaited: set[NodeId]
    out: dict[NodeId, str] = field(default_factory=dict)
    findings: Sequence[Finding] = ()
    _heard: dict[NodeId, Contribution] = field(default_factory=dict)

    def start(self) -> Ask:
        stages = stages_of(self.spec.backend).values()
        name = next(stage.name for stage in stages if stage.takes_reward)
        return Ask(name, dict.fromkeys(sorted(self.awaited), b""))

    def receive(self, party: NodeId, body: bytes) -> None:
        users, value = map(int, body.split())
        self._heard[party] = Contribution(value, users)
        self.awaited.discard(party)

    def lose(self, party: NodeId, code: str) -> None:
        self.out[party] = code
        self.awaited.discard(party)

    @property
    def stage_complete(self) -> bool:
        return not self.awaited

    def advance(self) -> SecureSum | Void:
        users = self._users(self._heard.keys())
        if users < self.spec.quorum:
            detail = f"{users} users contributed; quorum {self.spec.quorum}"
            return Void("quorum-not-met", detail)
        total = sum(one.value for one in self._heard.values()) % self.spec.modulus
        return SecureSum(total, self.spec.modulus, tuple(sorted(self._heard)), users)

    def snapshot(self) -> bytes:
        return b""

    def _users(self, parties: Set[NodeId]) -> int:
        return sum(self._heard[party].users for party in parties)


class _ChoosingServer(_PlainServer):
    """Lets the round choose who is in the sum, as `sealed` does."""

    chosen: Set[NodeId] | None = None

    def contributors(self) -> Set[NodeId]:
        return self._heard.keys()

    def can_close_without(self, parties: Set[NodeId]) -> bool:
        return self._users(self._heard.keys() - parties) >= self.spec.quorum

    def leave_out(self, parties: Set[NodeId], code: str) -> None:
        for party in parties & self._heard.keys():
            self.out[party] = code
            del self._heard[party]


class _NoKey(SharedKey):
    """Nothing is sealed, so there is always a key."""

    def __init__(self) -> None:
        self.dealing_id = ""
        self.places = {}

    def usable(self, present: object = None) -> bool:
        return True

    def serves(self, nodes: int) -> bool:
        return True


class _PlainSessions:
    """Opens the server's halves."""

    shared_key: SharedKey | None = _NoKey()

    def open(
        self,
        spec: CohortSpec,
        parties: Mapping[NodeId, int],
        contributions: Contributions | None = None,
        /,
    ) -> _PlainServer:
        kind = _ChoosingServer if spec.backend == SEALED else _PlainServer
        return kind(spec, set(parties))

    def restore(self, snapshot: bytes) -> _PlainServer:
        raise MalformedMessageError("sums of engine fast are not kept")


FAST = EngineSpec(run_fast, check_fast)
