"""Messages that nodes take to the shuffler themselves: in once, linked to nobody."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.secure_sums import Enrolment
from tests.support.shuffled_sums import (
    KEY,
    TOKEN,
    ShuffledCohort,
    finished,
    new_deposits,
    new_shuffler,
    shuffled_spec,
)
from wallflower.protocol.errors import (
    AuthenticationError,
    MalformedMessageError,
    RefusalError,
    ReplayedMessageError,
)
from wallflower.protocol.secure_sum.envelope import unwrap, wrap
from wallflower.protocol.secure_sum.session import SecureSum
from wallflower.protocol.secure_sum.shuffle.deposits import TICKET_BYTES, deposit_info
from wallflower.protocol.secure_sum.shuffle.plan import batch_info, batch_statement
from wallflower.protocol.secure_sum.shuffle.seals import HYBRID, OpeningKey, SealingKey
from wallflower.protocol.wire.shuffle_pb2 import (
    DepositRequest,
    ReleaseAnswer,
    SubmitAnswer,
    SubmitRequest,
)
from wallflower.shuffler.deposits import Deposits
from wallflower.shuffler.given import Given


def direct(nodes: int = 5, mechanism: str = "dist-dp") -> ShuffledCohort:
    return ShuffledCohort(shuffled_spec(nodes, mechanism=mechanism), direct=True)


def brought(cohort: ShuffledCohort, deposits: Deposits) -> None:
    for parcel in cohort.parcels.values():
        assert deposits.put(parcel.body)[0] == parcel.receipt


@pytest.mark.parametrize("mechanism", ["shuffle-dp", "dist-dp"])
@pytest.mark.parametrize("malicious", [False, True])
def test_a_sum_of_deposits_is_the_sum(
    mechanism: str, malicious: bool, tmp_path: Path
) -> None:
    enrolment = Enrolment() if malicious else None
    spec = shuffled_spec(mechanism=mechanism, malicious=malicious)
    cohort = ShuffledCohort(spec, enrolment, direct=True)
    server, request = cohort.submitted()
    assert isinstance(request, bytes)
    deposits = new_deposits(tmp_path)
    brought(cohort, deposits)
    outcome = finished(
        server, new_shuffler(tmp_path, enrolment, deposits).release(request)
    )
    assert isinstance(outcome, SecureSum)
    assert outcome.total == sum(cohort.values.values())
    assert deposits.held_bytes == 0


def test_a_deposit_names_nobody_and_all_show_the_same_admission() -> None:
    cohort = direct()
    cohort.submitted()
    bodies = [parcel.body for parcel in cohort.parcels.values()]
    assert len({DepositRequest.FromString(body).admission for body in bodies}) == 1
    assert len({len(body) for body in bodies}) == 1
    for body in bodies:
        assert not any(party.encode() in body for party in cohort.parties)


def test_the_server_never_sees_a_ticket_nor_a_message_with_a_name() -> None:
    cohort = direct()
    _, request = cohort.submitted()
    assert isinstance(request, bytes)
    for parcel in cohort.parcels.values():
        deposit = DepositRequest.FromString(parcel.body)
        opened = KEY.open(deposit.sealed, deposit_info(deposit.context))
        for start in range(0, len(opened) - 16, 16):
            assert opened[start : start + 16] not in request
            assert all(
                opened[start : start + 16] not in said
                for said in cohort.answers.values()
            )


@pytest.mark.parametrize("admission", [b"", b"guess", bytes(32)])
def test_who_has_no_admission_is_not_let_in(admission: bytes, tmp_path: Path) -> None:
    cohort = direct()
    cohort.submitted()
    deposit = DepositRequest.FromString(cohort.parcels["node-00000"].body)
    deposit.admission = admission
    deposits = new_deposits(tmp_path)
    with pytest.raises(AuthenticationError):
        deposits.put(deposit.SerializeToString())
    assert deposits.held_bytes == 0


def test_a_deposit_opens_for_no_other_cohort(tmp_path: Path) -> None:
    cohort, other = (
        direct(),
        ShuffledCohort(
            shuffled_spec(mechanism="dist-dp", cohort_id="other"), direct=True
        ),
    )
    cohort.submitted()
    other.submitted()
    moved = DepositRequest.FromString(other.parcels["node-00000"].body)
    moved.sealed = DepositRequest.FromString(cohort.parcels["node-00000"].body).sealed
    with pytest.raises(AuthenticationError):
        new_deposits(tmp_path).put(moved.SerializeToString())


def test_a_deposit_brought_twice_counts_once(tmp_path: Path) -> None:
    cohort, deposits = direct(), new_deposits(tmp_path)
    server, request = cohort.submitted()
    assert isinstance(request, bytes)
    brought(cohort, deposits)
    held = deposits.held_bytes
    brought(cohort, deposits)
    assert deposits.held_bytes == held
    outcome = finished(
        server, new_shuffler(tmp_path, deposits=deposits).release(request)
    )
    assert isinstance(outcome, SecureSum)
    assert outcome.total == sum(cohort.values.values())


def test_after_the_release_nothing_is_taken_any_more(tmp_path: Path) -> None:
    cohort, deposits = direct(), new_deposits(tmp_path)
    _, request = cohort.submitted()
    assert isinstance(request, bytes)
    brought(cohort, deposits)
    new_shuffler(tmp_path, deposits=deposits).release(request)
    with pytest.raises(ReplayedMessageError):
        deposits.put(cohort.parcels["node-00000"].body)
    assert deposits.held_bytes == 0


class Interrupted(OpeningKey):
    """Opens a deposit; something happens while it does."""

    meanwhile: Callable[[], object] = staticmethod(lambda: None)

    def open(self, sealed: bytes, info: bytes) -> bytes:
        self.meanwhile()
        return super().open(sealed, info)


@pytest.mark.parametrize("written_down", [True, False])
def test_what_was_handed_out_while_a_deposit_was_opened_does_not_come_back(
    written_down: bool, tmp_path: Path
) -> None:
    """Also where the disk was full, so that no heap was given."""
    key = Interrupted(HYBRID, KEY.private_bytes())
    given = Given(tmp_path)
    cohort, deposits = direct(), Deposits(key, given, TOKEN)
    cohort.submitted()
    first, second, *_ = (parcel.body for parcel in cohort.parcels.values())
    deposits.put(first)
    context = DepositRequest.FromString(first).context

    def hand_out() -> None:
        if written_down:
            given.claim(context)
        assert len(deposits.end(context)) == 1

    key.meanwhile = hand_out
    if written_down:
        with pytest.raises(ReplayedMessageError):
            deposits.put(second)
    else:
        deposits.put(second)
    assert len(deposits.end(context)) == (0 if written_down else 1)


def test_what_no_node_answered_for_is_in_no_heap(tmp_path: Path) -> None:
    # A stranger with the admission of a member leaves messages of its own.
    cohort, deposits = direct(), new_deposits(tmp_path)
    server, request = cohort.submitted()
    assert isinstance(request, bytes)
    brought(cohort, deposits)
    known = DepositRequest.FromString(cohort.parcels["node-00000"].body)
    opened = KEY.open(known.sealed, deposit_info(known.context))
    known.sealed = SealingKey(HYBRID, KEY.public).seal(
        bytes(TICKET_BYTES) + opened[TICKET_BYTES:], deposit_info(known.context)
    )
    deposits.put(known.SerializeToString())
    outcome = finished(
        server, new_shuffler(tmp_path, deposits=deposits).release(request)
    )
    assert isinstance(outcome, SecureSum)
    assert outcome.total == sum(cohort.values.values())
    assert deposits.held_bytes == 0


def test_a_node_whose_deposit_did_not_arrive_is_left_out(tmp_path: Path) -> None:
    cohort, deposits = direct(6, "shuffle-dp"), new_deposits(tmp_path)
    server, request = cohort.submitted()
    assert isinstance(request, bytes)
    del cohort.parcels["node-00002"]
    brought(cohort, deposits)
    body = new_shuffler(tmp_path, deposits=deposits).release(request)
    left_out = ReleaseAnswer.FromString(body).left_out
    assert list(left_out.values()) == ["no-deposit"]
    outcome = finished(server, body)
    assert isinstance(outcome, SecureSum)
    assert dict(server.out) == {"node-00002": "no-deposit"}
    assert "node-00002" not in outcome.survivors
    assert outcome.total == sum(cohort.values.values()) - cohort.values["node-00002"]


class Cheating(ShuffledCohort):
    """A cohort with a node of two names, which brought its messages once."""

    def node_answer(self, party: str, body: bytes, value: int) -> bytes:
        own = super().node_answer(party, body, value)
        if party != "node-00001":
            return own
        assert self.enrolment is not None
        sender, request = unwrap(own), SubmitRequest.FromString(unwrap(body).payload)
        answer = SubmitAnswer.FromString(sender.payload)
        answer.batch = self.batch("node-00000")
        place = batch_info(sender.context, party, 1, request.sealing_key)
        statement = batch_statement(place, answer.batch)
        answer.signature = self.enrolment.identity(party).sign(statement)
        payload = answer.SerializeToString()
        return wrap(sender.stage, sender.context, party, "", payload)


def test_a_ticket_serves_one_node_only(tmp_path: Path) -> None:
    enrolment, deposits = Enrolment(), new_deposits(tmp_path)
    cohort = Cheating(shuffled_spec(6, malicious=True), enrolment, direct=True)
    _, request = cohort.submitted()
    assert isinstance(request, bytes)
    brought(cohort, deposits)
    shuffler = new_shuffler(tmp_path, enrolment, deposits)
    answer = ReleaseAnswer.FromString(shuffler.release(request))
    assert dict(answer.refused) == {"node-00001": "no-deposit"}


@pytest.mark.parametrize("limit", [{"most_bytes": 60_000}, {"most_nodes": 2}])
def test_no_more_is_held_than_agreed(limit: dict[str, int], tmp_path: Path) -> None:
    cohort, deposits = direct(), new_deposits(tmp_path, **limit)
    cohort.submitted()
    with pytest.raises(RefusalError, match="full"):
        brought(cohort, deposits)
    assert 0 < deposits.held_bytes <= limit.get("most_bytes", 10**9)


def test_a_cohort_that_is_given_up_is_destroyed_and_never_given(tmp_path: Path) -> None:
    cohort, deposits = direct(), new_deposits(tmp_path)
    _, request = cohort.submitted()
    assert isinstance(request, bytes)
    brought(cohort, deposits)
    context = DepositRequest.FromString(cohort.parcels["node-00000"].body).context
    deposits.give_up(context)
    assert deposits.held_bytes == 0
    answer = ReleaseAnswer.FromString(
        new_shuffler(tmp_path, deposits=deposits).release(request)
    )
    assert "given before" in answer.refusal
    assert not answer.heap


def test_an_empty_deposit_is_refused(tmp_path: Path) -> None:
    cohort = direct()
    cohort.submitted()
    deposit = DepositRequest.FromString(cohort.parcels["node-00000"].body)
    deposit.sealed = SealingKey(HYBRID, KEY.public).seal(
        bytes(TICKET_BYTES), deposit_info(deposit.context)
    )
    with pytest.raises(MalformedMessageError):
        new_deposits(tmp_path).put(deposit.SerializeToString())


def test_below_the_floor_deposits_are_destroyed(tmp_path: Path) -> None:
    cohort, deposits = direct(), new_deposits(tmp_path)
    _, request = cohort.submitted()
    assert isinstance(request, bytes)
    for party in list(cohort.parcels)[2:]:
        del cohort.parcels[party]
    brought(cohort, deposits)
    body = new_shuffler(tmp_path, deposits=deposits).release(request)
    assert "floor-not-met" in ReleaseAnswer.FromString(body).refusal
    assert deposits.held_bytes == 0
