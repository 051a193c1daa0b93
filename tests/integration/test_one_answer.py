"""A server that asks twice, hoping for two sums that differ by one person.

Twenty enrolled nodes, a threat that includes a lying server (t = 12). The server runs
an honest cohort, closes it, and asks the same members for the sum without its victim.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import pytest

from protocol.committee_seals import SEAL_BYTES
from protocol.floor import cohort_floor
from protocol.identity import Trust
from protocol.sealing import SALT_BYTES
from protocol.session import Ask, ServerSession, Step
from protocol.wire import secure_sum_pb2 as wire
from protocol.wire.cohort_pb2 import CohortSpec
from protocol.wire.node_pb2 import CloseCohort, CohortStage, NodeRequest, Task
from strategy.cohort_spec import cohort_spec
from strategy.config import (
    ExperimentConfig,
    ExperimentSettings,
    PrivacySettings,
    SecureSumSettings,
)
from strategy.policy import CohortWish
from strategy.secure_sum import server_session
from tests.integration.transports import (
    NAMES,
    RUN,
    TRANSPORTS,
    Reach,
    furnish,
    key_store,
    reach,
)
from tests.secure_sums import forged
from wallflower.keystore import KeyStore

DROPOUT = Fraction(3, 10)  # a quorum of 14
VICTIM = NAMES[3]
CONTRIBUTORS = NAMES[:15]
LAST = {"committee": "tally", "secagg-plus": "unmask"}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> KeyStore:
    return key_store(tmp_path_factory.mktemp("keys") / "store")


@dataclass
class Liar:
    """A server that keeps to the protocol until it has what it wants."""

    spec: CohortSpec
    session: ServerSession
    reach: Reach
    asked: dict[str, bytes] = field(default_factory=dict)
    given: dict[str, bytes] = field(default_factory=dict)

    async def ask(self, party: str, message: bytes) -> bytes:
        """Ask one node; its message, or nothing where it refuses."""
        stage = CohortStage(spec=self.spec, users=["u0"], message=message)
        request = NodeRequest(run_id=RUN, tasks=[Task(task_id="t", stage=stage)])
        (answer,) = await self.reach(party, request)
        return answer.message

    async def until(self, stage: str) -> Ask:
        """Keep to the protocol up to a stage; give its messages."""
        step = self.session.start()
        while isinstance(step, Ask) and step.stage != stage:
            step = await self.carry_out(step)
        assert isinstance(step, Ask), step
        return step

    async def carry_out(self, ask: Ask) -> Step:
        answers = await asyncio.gather(
            *(self.ask(party, message) for party, message in ask.messages.items())
        )
        for party, answer in zip(ask.messages, answers, strict=True):
            if answer:
                self.session.receive(party, answer)
            else:
                self.session.lose(party, "refused")
        return self.session.advance()

    async def close(self, parties: Sequence[str]) -> None:
        task = Task(task_id="c", close=CloseCohort(cohort_id=self.spec.cohort_id))
        request = NodeRequest(run_id=RUN, tasks=[task])
        await asyncio.gather(*(self.reach(party, request) for party in parties))


def liar(backend: str, trust: Trust, reach: Reach) -> Liar:

    config = ExperimentConfig(
        ExperimentSettings("test", ("a", "b")),
        PrivacySettings(epsilon=Fraction(1)),
        secure_sum=SecureSumSettings(
            server="malicious", backend=backend, dropout=DROPOUT
        ),
    )
    floor = cohort_floor([1] * len(NAMES), Fraction(1, 10), DROPOUT)
    wish = CohortWish(1, 0, len(NAMES), Fraction(1, 10**6))
    spec = cohort_spec(config, RUN, wish, floor, 1)
    session = server_session(spec, dict.fromkeys(NAMES, 1), trust=trust)
    return Liar(spec, session, reach)


def without_victim(body: bytes) -> bytes:
    """Rewrite a tally request: the same set, less one person."""

    def leave_out(request: wire.TallyRequest) -> None:
        closed = wire.ClosedSet.FromString(request.closed)
        at = list(closed.contributors).index(VICTIM)
        del closed.contributors[at], closed.keys[at], closed.users[at]
        closed.salts = _cut(closed.salts, at, SALT_BYTES)
        request.closed = closed.SerializeToString()
        request.sealed = _cut(request.sealed, at, SEAL_BYTES)

    return forged(body, wire.TallyRequest, leave_out)


def _cut(joined: bytes, at: int, size: int) -> bytes:
    return joined[: at * size] + joined[(at + 1) * size :]


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_member_never_tallies_a_second_set_of_the_same_cohort(
    transport: str, store: KeyStore, tmp_path: Path
) -> None:
    """Members whose value is in no sum have spent nothing; they answer once as well.

    Fifteen contribute. The other five are asked for the sum of the fifteen and, after
    the server closed the cohort, for the sum without the victim; each contributor is
    asked for one of the two. Five that answer twice make it 12 and 13 of t = 12.
    """
    homes = furnish(store, tmp_path)
    trust = homes[VICTIM].trust()
    assert trust is not None
    async with reach(transport, homes, store) as reached:
        server = liar("committee", trust, reached)
        contribute = await server.until("contribute")
        few = {party: contribute.messages[party] for party in CONTRIBUTORS}
        tally = await server.carry_out(Ask("contribute", few))
        assert isinstance(tally, Ask)
        idle = NAMES[len(CONTRIBUTORS) :]
        whole = [*idle, *CONTRIBUTORS[:7]]
        less = [*idle, *CONTRIBUTORS[7:]]
        for party in whole:
            assert await server.ask(party, tally.messages[party])
        await server.close(idle)
        again = {
            party: await server.ask(party, without_victim(tally.messages[party]))
            for party in less
        }
        assert {party for party in less if again[party]} == set(CONTRIBUTORS[7:])
