"""What a node of one person does with a seat: the reference of the browser's client."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from wallflower.clients.consent import ClientPolicy
from wallflower.clients.host.visitor import Person, read_seat
from wallflower.clients.node.ledger import Ledger
from wallflower.clients.node.node import Node, NodeParts
from wallflower.clients.node.randomizer import real_randomizer
from wallflower.clients.node.rollback_counter import RollbackCounter
from wallflower.clients.node.spends import Price, Spend
from wallflower.clients.rewards.source import Pull
from wallflower.clients.secure_sum.opener import SessionFactory
from wallflower.protocol.accounting.account import Cost
from wallflower.protocol.errors import ProtocolError, RefusalError
from wallflower.protocol.identity.enrolment import NodeIdentity, Trust
from wallflower.protocol.noise.bits import BitSource, OsBits
from wallflower.protocol.numbers import exact
from wallflower.protocol.rewards.outcome_window import OutcomeWindow
from wallflower.protocol.rewards.reward_range import DEFAULT_RANGE, RewardRange
from wallflower.protocol.visitors import Invitation
from wallflower.protocol.wire.node_pb2 import NodeAnswer
from wallflower.protocol.wire.visitors_pb2 import Seat

Values = dict[str, Any]
ACCEPTED = "accepted"
# Hundreds of ledgers are made: where there is a file system in memory, there.
_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
_PLENTY = Fraction(10**9)


class _Outcome:
    """A source that knows one outcome."""

    def __init__(self, outcome: float) -> None:
        self._outcome = outcome

    async def pull(self, pull: Pull) -> Sequence[float]:
        return [self._outcome] * len(pull.users)

    async def close(self) -> None:
        """Nothing is held."""


def policy_of(given: Values) -> ClientPolicy:
    """Read a policy as a page states it."""
    fields: Values = {"backends": ("sealed",)}
    for name, value in given["policy"].items():
        key = "".join(f"_{c.lower()}" if c.isupper() else c for c in name)
        if isinstance(value, list):
            fields[key] = tuple(value)
        else:
            fields[key] = Fraction(value) if isinstance(value, str) else value
    policy = ClientPolicy(**fields)
    return policy.enrolled() if given["enrolmentKey"] else policy


def _identity(given: Values) -> NodeIdentity | None:
    text = given["invitation"]
    return Invitation.read(text).identity if text else None


async def _remember(ledger: Ledger, given: Values) -> None:
    """Write what the person spent before."""
    for past in given["history"]:
        cost, price = (
            Cost(
                past["kind"],
                Fraction(past["epsilon"]),
                precision,
                Fraction(past["delta"]),
            )
            for precision in (
                int(past["precision"]),
                1 if past["kind"] == "renyi" else 0,
            )
        )
        spend = Spend(
            node_id=given["visitor"],
            run_id=past["run"],
            cohort_id=past["cohort"],
            cost=cost,
            users=(given["visitor"],),
            most_epsilon=_PLENTY,
            privacy_delta=Fraction(1, 2),
            most_participations=10**6,
            price=Price(past["run"], price, 10**6),
        )
        await ledger.prepare(spend)
        if past["cohort"]:
            await ledger.spend(spend)


def _node(given: Values, ledger: Ledger, bits: BitSource) -> Node:
    key, agreed = given["enrolmentKey"], given["range"]
    policy, visitor, now = policy_of(given), given["visitor"], given["now"]
    revoked = frozenset(map(int, given.get("revoked", [])))
    trust = Trust(bytes.fromhex(key), lambda: now, revoked) if key else None
    identity = _identity(given)
    certificate = None if identity is None else identity.certificate
    sessions = SessionFactory(visitor, policy, identity, trust)
    window = given["windowMs"]
    low, high, unit = agreed or ("0", "1", "")
    parts = NodeParts(
        source=_Outcome(given.get("outcome", 0.0)),
        policy=policy,
        ledger=ledger,
        open_session=sessions.open,
        randomize=real_randomizer(bits),
        window=OutcomeWindow(window / 1000) if window else OutcomeWindow(),
        reward_range=RewardRange(exact("range", low), exact("range", high), unit)
        if agreed
        else DEFAULT_RANGE,
        capacity=2**32 - 1 if certificate is None else certificate.capacity,
    )
    node = Node(visitor, [visitor], parts)
    node.only_run, node.polls = given["run"], True
    node.admission = given["admission"]
    return node


async def _handle(given: Values, bits: BitSource) -> NodeAnswer:
    with tempfile.TemporaryDirectory(dir=_MEMORY) as folder:
        counter = RollbackCounter(Path(folder) / "counter")
        with Ledger(Path(folder) / "ledger.sqlite", counter) as ledger:
            await _remember(ledger, given)
            node = _node(given, ledger, bits)
            body = await node.handle(bytes.fromhex(given["request"]))
    return NodeAnswer.FromString(body)


def _check_seat(given: Values) -> None:
    """Refuse what is no seat of this person, and arms that may not be shown."""
    person = Person(given["run"], given["admission"], given["visitor"], None, b"")
    read_seat(Seat(request=bytes.fromhex(given["request"]), arms=given["arms"]), person)
    policy_of(given).check_arms(given["arms"])


def code_of(given: Values) -> str:
    """Return the code with which a node of one person refuses a seat, or accepted."""
    try:
        _check_seat(given)
        answer = asyncio.run(_handle(given, OsBits()))
    except (ProtocolError, RefusalError) as error:
        return error.code
    (found,) = answer.answers
    if found.WhichOneof("kind") == "message":
        return ACCEPTED
    return found.refusal.code


def answer_of(given: Values, bits: BitSource) -> bytes:
    """Return the answer to a seat's request that these bits make."""
    return asyncio.run(_handle(given, bits)).SerializeToString()
