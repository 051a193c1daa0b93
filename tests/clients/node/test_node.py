"""The test plays the server: honest, greedy, forgetful, lying."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import pytest

from wallflower.clients.consent import ClientPolicy
from wallflower.clients.host.assemble import NodeSetup, make_node
from wallflower.clients.node.ledger import Ledger
from wallflower.clients.node.node import Node
from wallflower.clients.node.spends import Spend
from wallflower.clients.rewards.source import Pull
from wallflower.protocol.errors import (
    RefusalError,
    UnavailableError,
)
from wallflower.protocol.identity.enrolment import NodeIdentity
from wallflower.protocol.messages.port import Answer
from wallflower.protocol.privacy.honest_floor import cohort_floor
from wallflower.protocol.refusals import RefusalCode
from wallflower.protocol.rewards.outcome_window import NO_WINDOW, OutcomeWindow
from wallflower.protocol.secure_sum.sealed.committee import dealing_spec
from wallflower.protocol.secure_sum.session import (
    Ask,
    SecureSum,
    ServerSession,
    Step,
    Void,
)
from wallflower.protocol.secure_sum.threat import Threat
from wallflower.protocol.wire.node_pb2 import (
    NodeAnswer,
    NodeRequest,
    Offer,
    Task,
    TaskAnswer,
)
from wallflower.strategy.bandit.policy import CohortRequest
from wallflower.strategy.config import (
    ExperimentConfig,
    ExperimentSettings,
    PrivacySettings,
)
from wallflower.strategy.run.cohort import describe_cohort
from wallflower.strategy.run.driver import Refusal
from wallflower.strategy.run.requests import Closings, CohortTraffic
from wallflower.strategy.sections import SecureSumSettings
from wallflower.strategy.secure_sum import ServerKeyring, server_session

TENTH = Fraction(1, 10)
RUN = "run"
_numbers = itertools.count(1)


class Ones:
    """Everybody's reward is 1, except where the test says otherwise."""

    def __init__(self) -> None:
        self.given: dict[str, object] = {}
        self.pulled: list[Pull] = []
        self.asked = asyncio.Event()
        self.hold: asyncio.Event | None = None
        self.down = False

    async def ready(self, arm: int, arm_name: str) -> None:
        if self.down:
            raise UnavailableError("the database at 10.0.0.7 is down")

    async def pull(self, pull: Pull) -> Sequence[object]:
        self.pulled.append(pull)
        self.asked.set()
        if self.hold is not None:
            await self.hold.wait()
        return [self.given.get(f"{pull.node_id}/{user}", 1.0) for user in pull.users]

    async def close(self) -> None:
        return


@dataclass
class Site:
    """Four nodes with ten users each, and a server made of this test."""

    path: Path
    policy: ClientPolicy
    ledger: Ledger
    source: Ones
    window: OutcomeWindow = NO_WINDOW
    nodes: dict[str, Node] = field(default_factory=dict)
    keyrings: dict[str, ServerKeyring] = field(default_factory=dict)

    def restart(self) -> None:
        """All nodes lose their memory; the ledger's file stays."""
        self.ledger.close()
        self.ledger = Ledger(self.path)
        self.certify(lambda name: None)

    def certify(self, identity: Callable[[str], NodeIdentity | None]) -> None:
        """Make the nodes anew with these identities."""
        setup = NodeSetup(
            self.policy,
            self.ledger,
            lambda node_id: self.source,
            identity,
            window=self.window,
        )
        users = [f"u{i}" for i in range(10)]
        self.nodes = {f"n{i}": make_node(setup, f"n{i}", users) for i in range(4)}

    async def ask(self, node: str, *tasks: Task) -> list[TaskAnswer]:
        request = NodeRequest(run_id=RUN, tasks=tasks)
        body = await self.nodes[node].handle(request.SerializeToString())
        return list(NodeAnswer.FromString(body).answers)

    async def spent(self, node: str, user: str) -> Fraction | None:
        account = await self.ledger.read_account(node, user)
        return account.total(Fraction(1, 10**12))


@asynccontextmanager
async def site(tmp_path: Path, **terms: object) -> AsyncIterator[Site]:
    policy = ClientPolicy(**({"smallest_cohort": 8} | terms))  # type: ignore[arg-type]
    path = tmp_path / "ledger.sqlite"
    there = Site(path, policy, Ledger(path), Ones())
    there.restart()
    try:
        yield there
    finally:
        there.ledger.close()


def cohort(
    users: Sequence[str] = ("u0", "u1", "u2"),
    epsilon: Fraction = Fraction(1, 2),
    mechanism: str = "dist-dp",
    backend: str = "sealed",
    shuffle: str = "pure",
) -> CohortTraffic:
    """Describe a cohort of these users on each of the four nodes."""
    asked = {f"n{i}": tuple(users) for i in range(4)}
    config = ExperimentConfig(
        ExperimentSettings("test", ("a", "b")),
        PrivacySettings(epsilon=epsilon, mechanism=mechanism),
        secure_sum=SecureSumSettings(
            backend=backend, dropout=Fraction(0), shuffle=shuffle
        ),
    )
    floor = cohort_floor([len(users)] * 4, TENTH, Fraction(0))
    cohort_request = CohortRequest(
        next(_numbers), 0, 4 * len(users), Fraction(1, 10**6)
    )
    spec = describe_cohort(config, RUN, cohort_request, floor, 1)
    return CohortTraffic(spec, asked, Closings())


async def play(
    there: Site,
    traffic: CohortTraffic,
    change: Callable[[str, Task], None] = lambda stage, task: None,
) -> tuple[Step, dict[str, str]]:
    """Drive a secure sum by hand; `change` may alter any task on its way out."""
    keyring = await dealt(there, traffic)
    parties = {node: len(users) for node, users in traffic.users.items()}
    session = server_session(traffic.spec, parties, keyring=keyring)
    return await carry_out(there, session, traffic, change)


async def dealt(there: Site, traffic: CohortTraffic) -> ServerKeyring:
    """Return the run's key, dealt by the nodes if there is none yet."""
    run_id = traffic.spec.run_id
    keyring = there.keyrings.setdefault(run_id, ServerKeyring(run_id))
    if keyring.dealt is None:
        threat = Threat.from_wire(traffic.spec.threat)
        name = f"dealing-{next(_numbers)}"
        parties = dict.fromkeys(there.nodes, 10)
        spec = dealing_spec(run_id, name, threat, parties)
        session = server_session(spec, parties, keyring=keyring)
        await carry_out(there, session, CohortTraffic(spec, {}, Closings()))
    return keyring


async def carry_out(
    there: Site,
    session: ServerSession,
    traffic: CohortTraffic,
    change: Callable[[str, Task], None] = lambda stage, task: None,
) -> tuple[Step, dict[str, str]]:
    refused: dict[str, str] = {}
    step = session.start()
    while isinstance(step, Ask):
        for party, message in step.messages.items():
            request = NodeRequest.FromString(
                traffic.wrap(party, step.stage, message).body
            )
            change(step.stage, request.tasks[0])
            body = await there.nodes[party].handle(request.SerializeToString())
            inside = traffic.unwrap(Answer(party, "", body))
            if isinstance(inside, Refusal):
                refused[party] = inside.code
                session.lose(party, inside.code)
            else:
                session.receive(party, inside)
        step = session.advance()
    return step, refused


async def test_an_agreed_cohort_is_answered_and_every_user_charged(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as there:
        end, refused = await play(there, cohort())
        assert isinstance(end, SecureSum)
        assert (end.users, refused) == (12, {})
        assert await there.spent("n2", "u1") == Fraction(1, 2)
        assert await there.spent("n2", "u5") == 0


@pytest.mark.parametrize(
    ("traffic", "code"),
    [
        (cohort(epsilon=Fraction(2)), "epsilon-too-large"),
        (cohort(["u0"]), "cohort-too-small"),
    ],
)
async def test_what_the_policy_forbids_is_refused_before_any_reward_is_pulled(
    traffic: CohortTraffic, code: str, tmp_path: Path
) -> None:
    async with site(tmp_path) as there:
        _, refused = await play(there, traffic)
        assert set(refused.values()) == {code}
        assert there.source.pulled == []
        assert await there.spent("n0", "u0") == 0


async def test_nobody_is_shown_an_arm_while_the_source_is_down(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as there:
        there.source.down = True
        traffic = cohort()
        offer = Task(task_id="o", offer=Offer(spec=traffic.spec))
        (said,) = await there.ask("n0", offer)
        assert (said.refusal.code, said.refusal.terms) == ("reward-source-down", False)
        assert b"10.0.0.7" not in said.SerializeToString()
        _, refused = await play(there, traffic)
        assert set(refused.values()) == {"reward-source-down"}
        assert there.source.pulled == []
        assert traffic.returned.keys() == traffic.users.keys()
        there.source.down = False
        end, refused = await play(there, cohort())
        assert isinstance(end, SecureSum)
        assert refused == {}


async def test_an_arm_is_shown_only_after_its_spend_is_on_disk(tmp_path: Path) -> None:
    async with site(tmp_path) as there:
        there.source.hold = asyncio.Event()
        playing = asyncio.create_task(play(there, cohort()))
        await there.source.asked.wait()
        (shown,) = there.source.pulled
        with Ledger(there.path) as file:  # as another process reads it
            for user in shown.users:
                account = await file.read_account(shown.node_id, user)
                assert account.total(Fraction(1, 10**12)) == Fraction(1, 2)
        there.source.hold.set()
        end, refused = await playing
        assert isinstance(end, SecureSum)
        assert refused == {}


async def test_nobody_is_shown_an_arm_whose_spend_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(ledger: Ledger, entry: Spend) -> None:
        raise RefusalError(
            RefusalCode.LEDGER_UNAVAILABLE, "the disk at /var/secret is full"
        )

    async with site(tmp_path) as there:
        monkeypatch.setattr(Ledger, "spend", full)
        _, refused = await play(there, cohort())
        assert set(refused.values()) == {"ledger-unavailable"}
        assert there.source.pulled == []


@pytest.mark.parametrize(
    ("stated", "code"),
    [
        (0, "window-too-short"),
        (9_999, "window-too-short"),
        (2**60, "bad-cohort"),
    ],
)
async def test_a_window_that_is_too_short_is_refused_by_offer_and_stage(
    tmp_path: Path, stated: int, code: str
) -> None:
    async with site(tmp_path) as there:
        there.window = OutcomeWindow(10)
        there.restart()

        def lie(stage: str, task: Task) -> None:
            task.stage.spec.window_ms = stated

        traffic = cohort()
        _, refused = await play(there, traffic, lie)
        assert set(refused.values()) == {code}
        traffic.spec.window_ms = stated
        offer = Task(task_id="t", offer=Offer(spec=traffic.spec))
        (answer,) = await there.ask("n0", offer)
        assert (answer.refusal.code, answer.refusal.terms) == (code, True)
        assert there.source.pulled == []
        assert await there.spent("n0", "u0") == 0


@pytest.mark.parametrize("stated", [10_000, 600_000])
async def test_a_window_that_is_long_enough_is_accepted(
    tmp_path: Path, stated: int
) -> None:
    async with site(tmp_path) as there:
        there.window = OutcomeWindow(10)
        there.restart()
        traffic = cohort()
        traffic.spec.window_ms = stated
        offer = Task(task_id="t", offer=Offer(spec=traffic.spec))
        (answer,) = await there.ask("n0", offer)
        assert answer.WhichOneof("kind") == "accepted"


async def test_a_cohort_answered_before_a_restart_is_never_answered_again(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as there:
        traffic = cohort()
        end, _ = await play(there, traffic)
        assert isinstance(end, SecureSum)
        there.restart()
        _, refused = await play(there, traffic)
        assert set(refused.values()) == {"cohort-repeated"}


async def test_a_description_changed_between_stages_is_refused(tmp_path: Path) -> None:
    def smaller(stage: str, task: Task) -> None:
        if stage == "open":
            task.stage.spec.honest_floor += 1

    async with site(tmp_path) as there:
        end, refused = await play(there, cohort(), smaller)
        assert set(refused.values()) == {"cohort-changed"}
        assert isinstance(end, Void)


async def test_a_cohort_of_another_run_is_refused(tmp_path: Path) -> None:
    def other(stage: str, task: Task) -> None:
        task.stage.spec.run_id = "other"

    async with site(tmp_path) as there:
        _, refused = await play(there, cohort(), other)
        assert set(refused.values()) == {"wrong-run"}


async def test_a_node_at_a_server_works_for_that_server_run_only(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as there:
        traffic = cohort()
        await dealt(there, traffic)
        for node in there.nodes.values():
            node.only_run = "the run of the gRPC server"
        _, refused = await play(there, traffic)
        assert set(refused.values()) == {"wrong-run"}
