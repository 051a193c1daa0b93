"""A person who arrives, at real workers: once, on their own terms, or not at all."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from tests.support.seat_server import SeatServer
from tests.support.seated_sums import RUN, SeatedRun
from tests.support.virtual_time import in_virtual_time
from tests.support.web.drawn_seats import request_of
from wallflower.clients.consent import ClientPolicy
from wallflower.clients.host.assemble import NodeSetup
from wallflower.clients.host.visitor import Shown, visitor_at
from wallflower.clients.node.ledger import Ledger
from wallflower.clients.node.spends import make_spend
from wallflower.clients.rewards.source import Pull
from wallflower.clients.transport.visitor_calls import Poll
from wallflower.protocol.accounting.account import NOTHING
from wallflower.protocol.errors import ProtocolError, RefusalError, UnavailableError
from wallflower.protocol.identity.enrolment import NodeIdentity
from wallflower.protocol.visitors import Invitation
from wallflower.protocol.wire.node_pb2 import CloseCohort, NodeRequest, Task
from wallflower.protocol.wire.visitors_pb2 import (
    NoSeat,
    PollRefused,
    Seat,
    VisitorPoll,
    VisitorReply,
)

LENIENT = ClientPolicy(
    largest_epsilon=Fraction(100),
    largest_total_epsilon=Fraction(10**9),
    smallest_cohort=2,
    smallest_trustees=2,
    smallest_floor_fraction=Fraction(0),
)


class Shelf:
    """Shows arms and gives the outcome 1; counts what it showed."""

    def __init__(self, home: Path) -> None:
        self.shown: list[str] = []
        self._home = home

    async def pull(self, pull: Pull) -> Sequence[object]:
        assert spends(self._home) == 1  # on the disk before anything is shown
        self.shown.append(pull.arm_name)
        return [1]

    async def close(self) -> None:
        pass


def spends(home: Path) -> int:
    with sqlite3.connect(home / "ledger.sqlite") as database:
        count: int = database.execute("SELECT count(*) FROM spend").fetchone()[0]
    return count


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SeatServer]:
    made = SeatServer(tmp_path / "run", SeatedRun("open"))
    made.open_round()
    yield made
    made.close()


class Home:
    """One person's folder; processes of theirs come and go."""

    def __init__(self, path: Path, policy: ClientPolicy = LENIENT) -> None:
        path.mkdir()
        self.path, self.policy, self.shelf = path, policy, Shelf(path)
        self.enrolment_key: bytes | None = None

    async def take_part(
        self,
        poll: Poll,
        identity: NodeIdentity | None = None,
        admission: str = "open",
        run_id: str = RUN,
    ) -> Shown:
        with Ledger(self.path / "ledger.sqlite") as ledger:
            setup = NodeSetup(
                self.policy,
                ledger,
                lambda _: self.shelf,
                enrolment_key=self.enrolment_key,
            )
            with visitor_at(self.path, run_id, setup, identity, admission) as visitor:
                return await visitor.take_part(poll)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def poll_of(server: SeatServer) -> Poll:
    worker = server.worker()

    async def poll(body: bytes) -> bytes:
        return (await worker.handle(body)).reply

    return poll


def replying(reply: VisitorReply) -> Poll:
    async def poll(body: bytes) -> bytes:
        return reply.SerializeToString()

    return poll


async def test_a_person_is_charged_shown_an_arm_and_counted(
    server: SeatServer, home: Home
) -> None:
    shown = await home.take_part(poll_of(server))
    assert shown == Shown("red")
    assert shown.measured
    assert home.shelf.shown == ["red"]
    assert len(server.stored("cohort-0")) == 1


async def test_an_invitation_is_all_that_somebody_invited_needs(tmp_path: Path) -> None:
    server = SeatServer(tmp_path / "run", SeatedRun("invited"))
    server.open_round()
    try:
        text = Invitation.issue(server.run.inviter, not_after=2_000_000_000).text()
        identity = Invitation.read(text).identity
        home = Home(tmp_path / "home")
        shown = await home.take_part(poll_of(server), identity, "invited")
        assert shown == Shown("red")
        assert list(server.stored("cohort-0")) == [identity.node_id]
    finally:
        server.close()


async def test_without_a_seat_an_arm_is_shown_and_nothing_is_spent(home: Home) -> None:
    no_seat = NoSeat(arm=1, arm_name="green", reason="paused")
    shown = await home.take_part(replying(VisitorReply(no_seat=no_seat)))
    assert shown == Shown("green", "paused")
    assert not shown.measured
    assert spends(home.path) == 0


async def test_terms_that_were_not_agreed_to_are_refused_before_anything_is_shown(
    server: SeatServer, tmp_path: Path
) -> None:
    strict = Home(tmp_path / "strict", ClientPolicy(smallest_cohort=2))
    with pytest.raises(RefusalError) as caught:
        await strict.take_part(poll_of(server))
    assert caught.value.code == "epsilon-too-large"
    assert strict.shelf.shown == []
    assert spends(strict.path) == 0
    assert server.stored("cohort-0") == {}


@pytest.mark.parametrize("believes", [None, False])
async def test_with_an_enrolment_key_the_server_is_not_believed_unless_somebody_says_so(
    tmp_path: Path, believes: bool | None
) -> None:
    """A server that is believed names whatever key it likes, its own for example."""
    server = SeatServer(tmp_path / "run", SeatedRun("invited", lying=False))
    server.open_round()
    home = Home(tmp_path / "home", replace(LENIENT, malicious_server=believes))
    home.enrolment_key = server.run.enrolment.key.public_key
    come = home.take_part(poll_of(server), server.run.person().identity, "invited")
    try:
        if believes is False:
            assert (await come).measured
            return
        with pytest.raises(RefusalError) as caught:
            await come
        assert caught.value.code == "threat-too-weak"
        assert (home.shelf.shown, spends(home.path)) == ([], 0)
    finally:
        server.close()


async def test_an_experiment_with_an_arm_that_was_not_agreed_to_is_refused(
    server: SeatServer, tmp_path: Path
) -> None:
    red = ClientPolicy(largest_epsilon=Fraction(100), arms=("red",))
    with pytest.raises(RefusalError) as caught:
        await Home(tmp_path / "red", red).take_part(poll_of(server))
    assert caught.value.code == "arm-not-allowed"


def other_task(request: NodeRequest) -> None:
    request.tasks.append(Task(task_id="x", close=CloseCohort(cohort_id="x")))


def other_kind(request: NodeRequest) -> None:
    request.tasks[0].close.CopyFrom(CloseCohort(cohort_id="x"))


def two_people(request: NodeRequest) -> None:
    request.tasks[0].stage.users.append("another")


def known_people(request: NodeRequest) -> None:
    request.tasks[0].stage.spec.admission = ""


def invited_people(request: NodeRequest) -> None:
    request.tasks[0].stage.spec.admission = "invited"


def other_arm(request: NodeRequest) -> None:
    request.tasks[0].stage.spec.arm_name = "mauve"


def other_cohort(request: NodeRequest) -> None:
    request.tasks[0].stage.spec.cohort_id = "cohort-9"


@pytest.mark.parametrize(
    ("lie", "why"),
    [
        (other_task, "one stage of one cohort"),
        (other_kind, "one stage of one cohort"),
        (two_people, "for one person"),
        (known_people, "bad-cohort"),
        (invited_people, "bad-cohort"),
        (other_arm, "not in the experiment"),
        (other_cohort, "wrong-context"),
    ],
)
async def test_a_seat_that_asks_for_anything_else_is_refused(
    server: SeatServer, home: Home, lie: Callable[[NodeRequest], None], why: str
) -> None:
    honest = poll_of(server)

    async def lying(body: bytes) -> bytes:
        reply = VisitorReply.FromString(await honest(body))
        request = NodeRequest.FromString(reply.seat.request)
        lie(request)
        seat = Seat(request=request.SerializeToString(), arms=reply.seat.arms)
        return VisitorReply(seat=seat).SerializeToString()

    with pytest.raises((RefusalError, ProtocolError), match=why):
        await home.take_part(lying)
    assert home.shelf.shown == []
    assert spends(home.path) == 0


@in_virtual_time
async def test_replies_that_are_lost_are_fetched_again_and_nothing_happens_twice(
    server: SeatServer, home: Home
) -> None:
    honest, calls = poll_of(server), 0

    async def lossy(body: bytes) -> bytes:
        nonlocal calls
        calls += 1
        reply = await honest(body)
        if calls % 3:
            raise UnavailableError("the reply was lost")
        return reply

    assert await home.take_part(lossy) == Shown("red")
    assert calls == 6
    assert home.shelf.shown == ["red"]
    assert len(server.stored("cohort-0")) == 1


@in_virtual_time
async def test_while_the_store_is_down_the_same_poll_comes_again(home: Home) -> None:
    down = VisitorReply(refused=PollRefused(code="store-unavailable", again=True))
    up = VisitorReply(no_seat=NoSeat(arm_name="red", reason="paused"))
    replies, bodies = [down, down, up], set()

    async def poll(body: bytes) -> bytes:
        bodies.add(body)
        return replies.pop(0).SerializeToString()

    assert await home.take_part(poll) == Shown("red", "paused")
    assert len(bodies) == 1


async def test_after_a_crash_before_the_answer_left_another_process_goes_on(
    server: SeatServer, home: Home
) -> None:
    class DiedError(Exception):
        pass

    honest = poll_of(server)

    async def dying(body: bytes) -> bytes:
        if spends(home.path):
            raise DiedError
        return await honest(body)

    with pytest.raises(DiedError):
        await home.take_part(dying)
    assert await home.take_part(honest) == Shown("red")
    assert home.shelf.shown == ["red"]
    assert spends(home.path) == 1
    assert len(server.stored("cohort-0")) == 1


async def test_inputs_that_cannot_be_proved_are_refused_before_the_arm_is_shown(
    home: Home,
) -> None:
    run = SeatedRun("open", proved=True)
    spec = run.spec("cohort-0")
    spec.mechanism = "dist-dp"
    spec.epsilon.numerator, spec.epsilon.denominator, spec.modulus = 65, 1, 2**61
    assert run.ring.dealt is not None
    note = run.ring.dealt.note

    async def offering(body: bytes) -> bytes:
        request = request_of(spec, note, VisitorPoll.FromString(body).visitor)
        seat = Seat(request=request.SerializeToString(), arms=[spec.arm_name])
        return VisitorReply(seat=seat).SerializeToString()

    with pytest.raises(RefusalError) as caught:
        await home.take_part(offering)
    assert caught.value.code == "cohort-not-acceptable"
    assert home.shelf.shown == []
    assert spends(home.path) == 0


async def test_a_server_cannot_refuse_for_the_persons_own_reasons(home: Home) -> None:
    refused = PollRefused(code="epsilon-too-large")
    with pytest.raises(ProtocolError) as caught:
        await home.take_part(replying(VisitorReply(refused=refused)))
    assert caught.value.code == "protocol-violation"


@pytest.mark.parametrize(
    ("name", "code"),
    [("green", "arm-not-allowed"), ("x" * 201, "malformed-message")],
)
async def test_somebody_without_a_seat_is_shown_no_arm_that_they_did_not_agree_to(
    tmp_path: Path, name: str, code: str
) -> None:
    red = Home(tmp_path / "red", ClientPolicy(arms=("red",)))
    no_seat = NoSeat(arm_name=name, reason="run-over")
    with pytest.raises((RefusalError, ProtocolError)) as caught:
        await red.take_part(replying(VisitorReply(no_seat=no_seat)))
    assert getattr(caught.value, "code", None) == code


async def test_a_reason_of_the_servers_own_making_is_not_repeated(home: Home) -> None:
    no_seat = NoSeat(arm_name="red", reason="<b>")
    shown = await home.take_part(replying(VisitorReply(no_seat=no_seat)))
    assert shown == Shown("red", "no-free-seat")


async def test_a_person_whom_the_server_moves_to_another_cohort_answers_no_second_time(
    tmp_path: Path,
) -> None:
    """Else two noised answers of one person would stand in two sums."""
    server = SeatServer(tmp_path / "run", SeatedRun("open"))
    server.open_round(arms=2)
    honest, home = poll_of(server), Home(tmp_path / "home")
    sent: list[bytes] = []

    async def moving(body: bytes) -> bytes:
        """Swallow answers; give the seat of one cohort, then that of the other."""
        poll = VisitorPoll.FromString(body)
        if poll.answer:
            sent.append(poll.answer)
            raise ConnectionError
        reply = VisitorReply.FromString(await honest(body))
        if sent:
            (task,) = NodeRequest.FromString(reply.seat.request).tasks
            other = {"cohort-0": "cohort-1", "cohort-1": "cohort-0"}[task.task_id]
            reply.seat.request = server.terms(other).request_for(poll.visitor)
        return reply.SerializeToString()

    try:
        with pytest.raises(ConnectionError):
            await home.take_part(moving)
        with pytest.raises(RefusalError) as caught:
            await home.take_part(moving)
        assert caught.value.code == "user-repeated"
        assert (len(home.shelf.shown), len(sent), spends(home.path)) == (1, 1, 1)
    finally:
        server.close()


async def test_a_poll_that_is_refused_for_good_is_not_sent_again(home: Home) -> None:
    calls = 0

    async def refusing(body: bytes) -> bytes:
        nonlocal calls
        calls += 1
        refused = PollRefused(code="not-authenticated")
        return VisitorReply(refused=refused).SerializeToString()

    with pytest.raises(RefusalError) as caught:
        await home.take_part(refusing)
    assert (caught.value.code, calls) == ("not-authenticated", 1)


def once() -> ClientPolicy:
    """Agree to one experiment's ε in all, whatever its cohorts cost exactly."""
    spec = SeatedRun("open").spec("cohort-0")
    price = make_spend(LENIENT, "", spec, LENIENT.check(spec), ()).price.cost
    total = NOTHING.plus(price).total(LENIENT.privacy_delta)
    assert total is not None
    return replace(LENIENT, largest_total_epsilon=total)


@pytest.mark.parametrize("admission", ["open", "invited"])
async def test_what_a_person_spent_in_one_run_counts_in_the_next(
    tmp_path: Path, admission: str
) -> None:
    """Another run, another name: the person is the same."""
    home = Home(tmp_path / "home", once())
    for name, allowed in (("run-1", True), ("run-2", False)):
        server = SeatServer(tmp_path / name, SeatedRun(admission, run_id=name))
        server.open_round()
        try:
            person = server.run.person()
            come = home.take_part(poll_of(server), person.identity, admission, name)
            if allowed:
                assert (await come).measured
                continue
            with pytest.raises(RefusalError) as caught:
                await come
            assert caught.value.code == "budget-exceeded"
        finally:
            server.close()
    assert home.shelf.shown == ["red"]
    assert spends(home.path) == 1


async def test_a_second_invitation_to_the_same_run_is_of_no_use(tmp_path: Path) -> None:
    server = SeatServer(tmp_path / "run", SeatedRun("invited"))
    server.open_round(arms=2)
    home = Home(tmp_path / "home")
    try:
        first, second = (server.run.person().identity for _ in range(2))
        assert (await home.take_part(poll_of(server), first, "invited")).measured
        with pytest.raises(RefusalError) as caught:
            await home.take_part(poll_of(server), second, "invited")
        assert caught.value.code == "user-repeated"
        assert spends(home.path) == 1
    finally:
        server.close()


async def test_without_a_seat_too_no_arm_is_shown_that_was_not_agreed_to(
    tmp_path: Path,
) -> None:
    red = Home(tmp_path / "red", ClientPolicy(arms=("red",)))
    no_seat = VisitorReply(no_seat=NoSeat(arm=1, arm_name="green", reason="paused"))
    with pytest.raises(RefusalError) as caught:
        await red.take_part(replying(no_seat))
    assert caught.value.code == "arm-not-allowed"
