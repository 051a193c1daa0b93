"""One real node as a pure function: state and message in, state and answer out.

The node is a `Node` with its ledger in a file, its policy and the machines of both
back-ends. Before every message it is built from its state, which is what it has on its
disk: the rows of its ledger and the secrets of its session store. A *hosted* node keeps
its sessions in memory instead; its state also lists what it handled since its process
began, and is replayed.
"""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path

from tests.support.machines.randomness import seeded
from tests.support.secure_sums import Enrolment
from wallflower.clients.consent import ClientPolicy
from wallflower.clients.host.assemble import stored_keyring
from wallflower.clients.node.ledger import Ledger
from wallflower.clients.node.node import Node, NodeParts
from wallflower.clients.node.sessions import (
    MemorySessions,
    SessionStore,
    StoredSessions,
)
from wallflower.clients.rewards.source import Pull
from wallflower.clients.secure_sum.keyring import ClientKeyring
from wallflower.clients.secure_sum.opener import SessionFactory
from wallflower.protocol.identity.canonical import digest
from wallflower.protocol.identity.enrolment import NodeIdentity, Trust
from wallflower.protocol.secure_sum.backends import STAGES
from wallflower.protocol.secure_sum.context import unwrap
from wallflower.protocol.secure_sum.sealed.group import ORDER, read_scalar
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.protocol.wire.node_pb2 import (
    CloseCohort,
    CohortStage,
    NodeAnswer,
    NodeRequest,
    Task,
)
from wallflower.protocol.wire.sealed_pb2 import MemberState

RUN = "run-1"
Secrets = tuple[tuple[tuple[str, str, str], bytes], ...]
_FACTS = {stage.number: stage for stage in STAGES}


class CrashError(BaseException):
    """The process ends here; what is on the disk stays."""


@dataclass(frozen=True, slots=True)
class Rows:
    """What a node's ledger holds, without the time of day."""

    spends: tuple[tuple[str, str], ...] = ()  # cohort, users
    one_time_answers: tuple[tuple[str, str, bytes], ...] = ()  # cohort, stage, digest


@dataclass(frozen=True, slots=True)
class NodeState:
    """All that a node is; two equal states answer alike.

    `life` counts processes, and `forgot` says that a session was given up, so that
    randomness is fresh after either. The rest is of a hosted node: what its process was
    asked, the rows that there were when it began, and a digest of what it knows.
    """

    rows: Rows = Rows()
    secrets: Secrets = ()
    life: int = 0
    forgot: bool = False
    handled: tuple[bytes, ...] = field(default=(), compare=False)
    began: Rows = field(default=Rows(), compare=False)
    live: bytes = b""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a message did: the state after it, and what the node said."""

    state: NodeState
    answer: bytes = b""
    refusal: str = ""
    fault: str = ""  # an answer that left without its row


class _Store(SessionStore):
    """A session store in memory whose writes may be the last thing that happens."""

    def __init__(self, kept: Secrets, *, crash: bool) -> None:
        self.kept = dict(kept)
        self._crash = crash

    def read(self, kind: str, node_id: str, name: str) -> bytes | None:
        return self.kept.get((kind, node_id, name))

    def write(self, kind: str, node_id: str, name: str, secret: bytes) -> None:
        if self._crash and kind == "session":
            raise CrashError
        self.kept[kind, node_id, name] = secret

    def write_once(self, kind: str, node_id: str, name: str, secret: bytes) -> bytes:
        return self.kept.setdefault((kind, node_id, name), secret)

    def delete(self, kind: str, node_id: str, name: str) -> None:
        self.kept.pop((kind, node_id, name), None)


class _Sessions(MemorySessions):
    """Sessions in memory, and what they would write down."""

    def written(self) -> list[tuple[str, bytes]]:
        return [(name, one.snapshot()) for name, one in sorted(self._open.items())]


class _Keyring(ClientKeyring):
    """A keyring in memory, and what it knows beside the keys of open sessions."""

    def known(self) -> object:
        assert isinstance(self.key_shares, dict)
        return sorted(self._claimed), sorted(self.key_shares.items())


class _Source:
    """Everybody's outcome is 1."""

    async def pull(self, pull: Pull) -> Sequence[object]:
        return [1.0] * len(pull.users)

    async def close(self) -> None:
        return


class Laboratory:
    """What all nodes of one world share: folder, event loop, enrolment, policy."""

    def __init__(self, *, malicious: bool, corrupt: Fraction = Fraction(0)) -> None:
        self._folder = tempfile.TemporaryDirectory(dir=_memory_folder())
        self.folder = Path(self._folder.name)
        self.runner = asyncio.Runner()
        self.enrolment = Enrolment()
        self.trust: Trust | None = self.enrolment.trust if malicious else None
        self.policy = ClientPolicy(
            largest_epsilon=Fraction(1000),
            largest_total_epsilon=Fraction(10**9),
            smallest_cohort=2,
            smallest_floor_fraction=Fraction(0),
            smallest_corrupt=corrupt,
            malicious_server=malicious,
        )

    def __enter__(self) -> Laboratory:
        return self

    def __exit__(self, *_: object) -> None:
        self.runner.close()
        self._folder.cleanup()

    def identity(self, name: str) -> NodeIdentity | None:
        return self.enrolment.identity(name) if self.trust is not None else None


@dataclass(frozen=True, slots=True)
class Actor:
    """A node of a laboratory; `value` is what its one user adds to a sum."""

    name: str
    value: int
    laboratory: Laboratory
    hosted: bool = False
    _files: dict[Rows, bytes] = field(default_factory=dict)

    @property
    def user(self) -> str:
        return f"{self.name}-user"

    def first_state(self) -> NodeState:
        """Return the state of a node that was never asked anything."""
        if self.hosted:
            return NodeState()
        key = hashlib.sha256(self.name.encode()).digest()
        return NodeState(secrets=((("run-key", self.name, RUN), key),))

    def restart(self, state: NodeState) -> NodeState:
        """End the node's process and begin another."""
        return NodeState(state.rows, state.secrets, state.life + 1, began=state.rows)

    def ask(self, state: NodeState, body: bytes, *, crash: bool = False) -> Reply:
        """Hand over one NodeRequest; with `crash` the process ends before it answers.

        What the ledger was told by then is on the disk, the session is as before.
        """
        path = self.laboratory.folder / self.name
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        rows = state.began if self.hosted else state.rows
        path.write_bytes(self._files.get(rows, b""))
        store = None if self.hosted else _Store(state.secrets, crash=crash)
        run = self.laboratory.runner.run
        with Ledger(path) as ledger:
            keyring = _Keyring(RUN)
            sessions, node = self._node(ledger, store, keyring)
            for past in state.handled:
                with seeded(self.name, state.life, False, past):
                    run(node.handle(past))
            try:
                with seeded(self.name, state.life, state.forgot, body):
                    payload = run(node.handle(body))
            except CrashError:
                payload = NodeAnswer().SerializeToString()
            rows = _read_rows(path)
        if rows not in self._files:
            self._files[rows] = path.read_bytes()
        after = replace(state, rows=rows)
        if isinstance(sessions, _Sessions):
            knows = sessions.written(), keyring.known()
            live = hashlib.sha256(repr(knows).encode()).digest()
            after = replace(after, handled=(*state.handled, body), live=live)
        if store is not None:
            after = replace(after, secrets=tuple(sorted(store.kept.items())))
        if crash:
            return Reply(self.restart(after))
        if _forgot(state, after):
            after = replace(after, forgot=True)
        return self._reply(after, body, payload)

    def _node(
        self, ledger: Ledger, store: _Store | None, keyring: ClientKeyring
    ) -> tuple[MemorySessions | StoredSessions, Node]:
        shared = self.laboratory
        stored = None if store is None else stored_keyring(store, self.name)
        opener = SessionFactory(
            self.name,
            shared.policy,
            shared.identity(self.name),
            shared.trust,
            stored if stored is not None else lambda _: keyring,
        )
        sessions: MemorySessions | StoredSessions = (
            _Sessions()
            if store is None
            else StoredSessions(store, self.name, opener.restore)
        )
        parts = NodeParts(
            source=_Source(),
            policy=shared.policy,
            ledger=ledger,
            open_session=opener.open,
            forget=opener.forget,
            randomize=lambda spec, mechanism, users, rewards: self.value,
        )
        return sessions, Node(self.name, (self.user,), parts, sessions)

    def _reply(self, after: NodeState, body: bytes, payload: bytes) -> Reply:
        for entry in NodeAnswer.FromString(payload).answers:
            if entry.WhichOneof("kind") == "message":
                stage = NodeRequest.FromString(body).tasks[0].stage
                fault = _unwritten(after.rows, stage, entry.message)
                return Reply(after, entry.message, fault=fault)
            if entry.WhichOneof("kind") == "refusal":
                return Reply(after, refusal=entry.refusal.code)
        return Reply(after)


def stage_request(spec: CohortSpec, users: Sequence[str], message: bytes) -> bytes:
    """Write the request for one stage of a cohort."""
    stage = CohortStage(spec=spec, users=users, message=message)
    task = Task(task_id="1", stage=stage)
    return NodeRequest(run_id=RUN, tasks=[task]).SerializeToString(deterministic=True)


def close_request(cohort_id: str) -> bytes:
    """Write the request to forget a cohort."""
    task = Task(task_id="1", close=CloseCohort(cohort_id=cohort_id))
    return NodeRequest(run_id=RUN, tasks=[task]).SerializeToString(deterministic=True)


def share_of(state: NodeState, dealing_id: str, dealers: Sequence[str]) -> int | None:
    """Return a node's share of the key that these dealers made; None without one."""
    for (kind, _, _), body in state.secrets:
        if kind == "share":
            held = MemberState.FromString(body)
            if held.dealing_id == dealing_id and set(dealers) <= set(held.shares):
                parts = (read_scalar(held.shares[one].share) for one in dealers)
                return sum(parts) % ORDER
    return None


def _unwritten(rows: Rows, stage: CohortStage, answer: bytes) -> str:
    """Say which row an answer should have on the disk and has not."""
    facts, cohort = _FACTS[unwrap(answer).stage], stage.spec.cohort_id
    if facts.takes_reward and cohort not in {one for one, _ in rows.spends}:
        return f"an answer of stage {facts.name} left without its spend"
    if facts.given_once:
        payload = digest("wallflower/v1/one-time-answer", stage.message, answer)
        if (cohort, facts.name, payload) not in rows.one_time_answers:
            return f"an answer of stage {facts.name} left without its claim"
    return ""


def _forgot(before: NodeState, after: NodeState) -> bool:
    """Return whether an open session is gone."""
    kept = {place for place, _ in after.secrets}
    return any(place not in kept for place, _ in before.secrets)


def _read_rows(path: Path) -> Rows:
    with sqlite3.connect(path) as database:
        spends = database.execute("SELECT cohort_id, users FROM spend ORDER BY 1")
        one_time_answers = database.execute(
            "SELECT cohort_id, stage, digest FROM answer ORDER BY 1, 2"
        )
        rows = Rows(tuple(spends), tuple(one_time_answers))
    database.close()
    return rows


def _memory_folder() -> str | None:
    shared = Path("/dev/shm")
    return str(shared) if shared.is_dir() else None
