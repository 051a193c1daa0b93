"""Messages that nodes take to the shuffler themselves: in once, linked to nobody."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.secure_sums import Enrolment
from tests.support.shuffled_sums import (
    KEY,
    TOKEN,
    ShuffledCohort,
    deposited,
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
from wallflower.protocol.secure_sum.session import Ask, SecureSum
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
from wallflower.strategy.secure_sum import server_session


def direct(nodes: int = 5, mechanism: str = "dist-dp") -> ShuffledCohort:
    return ShuffledCohort(shuffled_spec(nodes, mechanism=mechanism), direct=True)


def brought(cohort: ShuffledCohort, deposits: Deposits) -> None:
    for upload in cohort.uploads.values():
        assert deposits.put(upload.greeting, upload.body)[0] == upload.receipt


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
    uploads = list(cohort.uploads.values())
    assert len({upload.greeting for upload in uploads}) == 1
    assert len({len(upload.body) for upload in uploads}) == 1
    for upload in uploads:
        said = upload.greeting + upload.body
        assert not any(party.encode() in said for party in cohort.parties)


def test_the_server_never_sees_a_ticket_nor_a_message_with_a_name() -> None:
    cohort = direct()
    _, request = cohort.submitted()
    assert isinstance(request, bytes)
    for upload in cohort.uploads.values():
        greeting, deposit = deposited(upload)
        opened = KEY.open(deposit.sealed, deposit_info(greeting.context))
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
    greeting, deposit = deposited(cohort.uploads["node-00000"])
    greeting.admission = admission
    deposits = new_deposits(tmp_path)
    with pytest.raises(AuthenticationError):
        deposits.put(greeting.SerializeToString(), deposit.SerializeToString())
    assert deposits.held_bytes == 0


@pytest.mark.parametrize(
    "change",
    [{"nodes": 6}, {"batch_bytes": 1}, {"run": b"another"}, {"context": bytes(32)}],
    ids=str,
)
def test_an_admission_says_how_much_it_admits(
    change: dict[str, Any], tmp_path: Path
) -> None:
    cohort, deposits = direct(), new_deposits(tmp_path)
    cohort.submitted()
    first, second, *_ = cohort.uploads.values()
    greeting, _ = deposited(first)
    for name, value in change.items():
        setattr(greeting, name, value)
    with pytest.raises(AuthenticationError, match="without admission"):
        deposits.put(greeting.SerializeToString(), first.body)
    # Nor beside one that was let in.
    deposits.put(first.greeting, first.body)
    with pytest.raises(AuthenticationError, match="without admission"):
        deposits.put(greeting.SerializeToString(), second.body)


def forged(cohort: ShuffledCohort, size: int) -> tuple[bytes, bytes]:
    """A deposit of so many bytes by a node that has its cohort's admission."""
    greeting, _ = deposited(cohort.uploads["node-00000"])
    sealed = SealingKey(HYBRID, KEY.public).seal(
        os.urandom(TICKET_BYTES) + bytes(size), deposit_info(greeting.context)
    )
    body = DepositRequest(sealed=sealed).SerializeToString()
    return greeting.SerializeToString(), body


@pytest.mark.parametrize("longer", [-1, 1, 1_000_000])
def test_a_deposit_has_the_length_that_all_have(longer: int, tmp_path: Path) -> None:
    cohort, deposits = direct(), new_deposits(tmp_path)
    cohort.submitted()
    greeting, _ = deposited(cohort.uploads["node-00000"])
    size = greeting.batch_bytes + longer
    with pytest.raises(MalformedMessageError, match="another length"):
        deposits.put(*forged(cohort, size))
    assert deposits.held_bytes == 0


@pytest.mark.parametrize("run_id", ["run-1", "run-2"])
def test_one_node_fills_no_more_than_the_room_of_its_cohort(
    run_id: str, tmp_path: Path
) -> None:
    """Before, it filled the shuffler: cohorts of all runs were refused."""
    hostile, deposits = direct(), new_deposits(tmp_path, most_bytes=1 << 20)
    hostile.submitted()
    size = deposited(hostile.uploads["node-00000"])[0].batch_bytes
    for _ in hostile.parties:
        deposits.put(*forged(hostile, size))
    for _ in range(20):
        with pytest.raises(RefusalError, match="full"):
            deposits.put(*forged(hostile, size))
    spec = shuffled_spec(mechanism="dist-dp", cohort_id="cohort-2")
    spec.run_id = run_id
    honest = ShuffledCohort(spec, direct=True)
    server, request = honest.submitted()
    assert isinstance(request, bytes)
    brought(honest, deposits)
    outcome = finished(
        server, new_shuffler(tmp_path, deposits=deposits).release(request)
    )
    assert isinstance(outcome, SecureSum)
    assert outcome.total == sum(honest.values.values())


def test_one_run_leaves_room_for_others(tmp_path: Path) -> None:
    def cohort_of(run_id: str, cohort_id: str) -> ShuffledCohort:
        spec = shuffled_spec(mechanism="dist-dp", cohort_id=cohort_id)
        spec.run_id = run_id
        cohort = ShuffledCohort(spec, direct=True)
        cohort.submitted()
        return cohort

    first = cohort_of("run-1", "cohort-0")
    size = deposited(first.uploads["node-00000"])[0].batch_bytes
    deposits = new_deposits(tmp_path, most_bytes=20 * size)
    for number in range(3):
        brought(cohort_of("run-1", f"cohort-{number}"), deposits)
    with pytest.raises(RefusalError, match="full"):
        brought(cohort_of("run-1", "cohort-3"), deposits)
    other = cohort_of("run-2", "cohort-0")
    brought(other, deposits)
    assert deposits.held_bytes == 20 * size
    context = deposited(first.uploads["node-00000"])[0].context
    deposits.end(context)
    brought(cohort_of("run-1", "cohort-3"), deposits)


def test_a_relayed_cohort_admits_nobody(tmp_path: Path) -> None:
    """Where the server carries messages, nodes are given nothing to deposit with."""
    cohort = ShuffledCohort(shuffled_spec(mechanism="dist-dp"))
    server = server_session(cohort.spec, cohort.parties, keyring=cohort.keyring)
    step = server.start()
    assert isinstance(step, Ask)
    for message in step.messages.values():
        assert not SubmitRequest.FromString(unwrap(message).payload).admission
    _, request = cohort.submitted()
    assert isinstance(request, bytes)
    assert not cohort.uploads
    hostile, deposits = direct(), new_deposits(tmp_path)
    hostile.submitted()
    size = deposited(hostile.uploads["node-00000"])[0].batch_bytes
    for _ in hostile.parties:
        deposits.put(*forged(hostile, size))
    answer = ReleaseAnswer.FromString(
        new_shuffler(tmp_path, deposits=deposits).release(request)
    )
    assert answer.heap


def test_a_deposit_opens_for_no_other_cohort(tmp_path: Path) -> None:
    cohort, other = (
        direct(),
        ShuffledCohort(
            shuffled_spec(mechanism="dist-dp", cohort_id="other"), direct=True
        ),
    )
    cohort.submitted()
    other.submitted()
    greeting, body = other.uploads["node-00000"], cohort.uploads["node-00000"].body
    with pytest.raises(AuthenticationError):
        new_deposits(tmp_path).put(greeting.greeting, body)


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
    late = cohort.uploads["node-00000"]
    with pytest.raises(ReplayedMessageError):
        deposits.put(late.greeting, late.body)
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
    first, second, *_ = cohort.uploads.values()
    deposits.put(first.greeting, first.body)
    context = deposited(first)[0].context

    def hand_out() -> None:
        if written_down:
            given.claim(context)
        assert len(deposits.end(context)) == 1

    key.meanwhile = hand_out
    if written_down:
        with pytest.raises(ReplayedMessageError):
            deposits.put(second.greeting, second.body)
    else:
        deposits.put(second.greeting, second.body)
    assert len(deposits.end(context)) == (0 if written_down else 1)


def test_what_no_node_answered_for_is_in_no_heap(tmp_path: Path) -> None:
    # A stranger with the admission of a member leaves messages of its own.
    cohort, deposits = direct(6, "shuffle-dp"), new_deposits(tmp_path)
    cohort.silent = frozenset({"node-00005"})
    server, request = cohort.submitted()
    assert isinstance(request, bytes)
    brought(cohort, deposits)
    greeting, _ = deposited(cohort.uploads["node-00000"])
    deposits.put(*forged(cohort, greeting.batch_bytes))
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
    del cohort.uploads["node-00002"]
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


@pytest.mark.parametrize("limit", [{"most_bytes": 120_000}, {"most_nodes": 2}])
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
    context = deposited(cohort.uploads["node-00000"])[0].context
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
    with pytest.raises(MalformedMessageError):
        new_deposits(tmp_path).put(*forged(cohort, 0))


def test_below_the_floor_deposits_are_destroyed(tmp_path: Path) -> None:
    cohort, deposits = direct(), new_deposits(tmp_path)
    _, request = cohort.submitted()
    assert isinstance(request, bytes)
    for party in list(cohort.uploads)[2:]:
        del cohort.uploads[party]
    brought(cohort, deposits)
    body = new_shuffler(tmp_path, deposits=deposits).release(request)
    assert "floor-not-met" in ReleaseAnswer.FromString(body).refusal
    assert deposits.held_bytes == 0
