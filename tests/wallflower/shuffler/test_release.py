"""A shuffler gives a batch once, of enough nodes; nobody can tell whose is whose."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.support.secure_sums import Enrolment
from tests.support.shuffled_sums import (
    KEY,
    ShuffledCohort,
    changed,
    finished,
    new_shuffler,
    shuffled_spec,
)
from wallflower.protocol.errors import ReplayedMessageError
from wallflower.protocol.secure_sum.session import SecureSum, Void
from wallflower.protocol.secure_sum.shuffle.plan import ShufflePlan, unnamed_info
from wallflower.protocol.wire.shuffle_pb2 import ReleaseAnswer, ReleaseRequest
from wallflower.shuffler.shuffled_batch import random_order


def refusal(body: bytes) -> str:
    answer = ReleaseAnswer.FromString(body)
    assert not answer.messages
    return answer.refusal


@pytest.mark.parametrize("mechanism", ["shuffle-dp", "dist-dp"])
def test_a_sum_goes_through_the_shuffler(mechanism: str, tmp_path: Path) -> None:
    cohort = ShuffledCohort(shuffled_spec(mechanism=mechanism))
    server, request = cohort.submitted()
    assert isinstance(request, bytes)
    outcome = finished(server, new_shuffler(tmp_path).release(request))
    assert isinstance(outcome, SecureSum)
    assert outcome.total == sum(cohort.values.values()) % cohort.spec.modulus
    assert set(outcome.survivors) == set(cohort.values)


def test_missing_nodes_are_survived_while_enough_are_left(tmp_path: Path) -> None:
    cohort = ShuffledCohort(shuffled_spec(6), silent=frozenset({"node-00001"}))
    server, request = cohort.submitted()
    assert isinstance(request, bytes)
    outcome = finished(server, new_shuffler(tmp_path).release(request))
    assert isinstance(outcome, SecureSum)
    assert outcome.total == sum(cohort.values.values())
    assert outcome.users == 5


def test_a_second_shuffled_batch_is_never_given_also_not_of_other_nodes(
    tmp_path: Path,
) -> None:
    _, request = ShuffledCohort(shuffled_spec()).submitted()
    assert isinstance(request, bytes)
    assert ReleaseAnswer.FromString(new_shuffler(tmp_path).release(request)).messages
    fewer = ReleaseRequest.FromString(request)
    del fewer.unnamed[0], fewer.users[0]
    for again in (request, fewer.SerializeToString()):
        # A new process with the same folder: what was given is on disk.
        assert "released before" in refusal(new_shuffler(tmp_path).release(again))


def test_below_the_floor_the_batches_are_destroyed(tmp_path: Path) -> None:
    _, request = ShuffledCohort(shuffled_spec()).submitted()
    assert isinstance(request, bytes)
    few = ReleaseRequest.FromString(request)
    del few.unnamed[2:], few.users[2:]
    shuffler = new_shuffler(tmp_path)
    assert "at least" in refusal(shuffler.release(few.SerializeToString()))
    assert "released before" in refusal(shuffler.release(request))


@pytest.mark.parametrize(
    "fields",
    [{"quorum": 2}, {"cohort_id": "another"}, {"honest_floor": 1}, {"arm": 1}],
)
def test_another_description_opens_no_batch(
    fields: dict[str, object], tmp_path: Path
) -> None:
    _, request = ShuffledCohort(shuffled_spec()).submitted()
    assert isinstance(request, bytes)
    lie = changed(request, **fields).SerializeToString()
    assert "0 nodes with 0 users" in refusal(new_shuffler(tmp_path).release(lie))


def test_a_batch_listed_twice_counts_once(tmp_path: Path) -> None:
    cohort = ShuffledCohort(shuffled_spec(6))
    _, request = cohort.submitted()
    assert isinstance(request, bytes)
    twice = ReleaseRequest.FromString(request)
    twice.unnamed[1] = twice.unnamed[0]
    answer = ReleaseAnswer.FromString(
        new_shuffler(tmp_path).release(twice.SerializeToString())
    )
    assert dict(answer.left_out) == {1: ReplayedMessageError.code}
    assert len(answer.messages) == 5 * ShufflePlan.of(cohort.spec, 6).batch_bytes


def test_a_node_named_twice_voids_the_shuffled_batch(tmp_path: Path) -> None:
    enrolment = Enrolment()
    _, request = ShuffledCohort(shuffled_spec(malicious=True), enrolment).submitted()
    assert isinstance(request, bytes)
    twice = ReleaseRequest.FromString(request)
    twice.batches.append(twice.batches[0])
    body = twice.SerializeToString()
    assert "twice" in refusal(new_shuffler(tmp_path, enrolment).release(body))


@pytest.mark.parametrize("listed", [4, 6], ids=["fewer", "more"])
def test_as_many_numbers_of_users_are_told_as_batches(
    listed: int, tmp_path: Path
) -> None:
    _, request = ShuffledCohort(shuffled_spec()).submitted()
    assert isinstance(request, bytes)
    lie = ReleaseRequest.FromString(request)
    lie.users[:] = [1] * listed
    body = new_shuffler(tmp_path).release(lie.SerializeToString())
    assert "other batches" in refusal(body)


def test_no_more_batches_are_taken_than_nodes_were_invited(tmp_path: Path) -> None:
    _, request = ShuffledCohort(shuffled_spec()).submitted()
    assert isinstance(request, bytes)
    lie = ReleaseRequest.FromString(request)
    lie.unnamed.append(b"made up")
    lie.users.append(1)
    body = new_shuffler(tmp_path).release(lie.SerializeToString())
    assert "other batches" in refusal(body)


def test_of_unnamed_batches_the_largest_nodes_are_taken_for_missing(
    tmp_path: Path,
) -> None:
    # 5 nodes with 6 users and a quorum of 5: were it known that the missing one has
    # one user, five would be left. It is not, and four are counted.
    spec = shuffled_spec()
    spec.quorum = 5
    cohort = ShuffledCohort(spec)
    _, request = cohort.submitted()
    assert isinstance(request, bytes)
    lacking = ReleaseRequest.FromString(request)
    lacking.users[0] = 2
    lacking.unnamed[4] = b"not sealed"
    body = new_shuffler(tmp_path).release(lacking.SerializeToString())
    assert "4 nodes with 4 users" in refusal(body)


@pytest.mark.parametrize("told", ["roster", "batches"])
def test_a_shuffler_that_need_not_check_names_wants_to_hear_none(
    told: str, tmp_path: Path
) -> None:
    cohort = ShuffledCohort(shuffled_spec())
    server, request = cohort.submitted()
    assert isinstance(request, bytes)
    telling = ReleaseRequest.FromString(request)
    if told == "roster":
        telling.roster.CopyFrom(server.roster_note)  # type: ignore[attr-defined]
    else:
        telling.batches.add(party="node-00000")
    body = new_shuffler(tmp_path).release(telling.SerializeToString())
    assert "names" in refusal(body)


def test_a_lying_servers_batches_do_not_go_unnamed(tmp_path: Path) -> None:
    enrolment = Enrolment()
    _, request = ShuffledCohort(shuffled_spec(malicious=True), enrolment).submitted()
    assert isinstance(request, bytes)
    hiding = ReleaseRequest.FromString(request)
    hiding.unnamed[:] = [batch.answer.batch for batch in hiding.batches]
    hiding.users[:] = [1] * len(hiding.batches)
    body = new_shuffler(tmp_path, enrolment).release(hiding.SerializeToString())
    assert "name" in refusal(body)


def test_a_batch_under_another_name_or_number_of_users_is_left_out(
    tmp_path: Path,
) -> None:
    enrolment = Enrolment()
    spec = shuffled_spec(6, malicious=True)
    server, request = ShuffledCohort(spec, enrolment).submitted()
    assert isinstance(request, bytes)
    lie = ReleaseRequest.FromString(request)
    lie.batches[0].answer.users = 2
    answer = ReleaseAnswer.FromString(
        new_shuffler(tmp_path, enrolment).release(lie.SerializeToString())
    )
    assert list(answer.refused) == ["node-00000"]
    outcome = finished(server, answer.SerializeToString())
    assert isinstance(outcome, SecureSum)
    assert "node-00000" not in outcome.survivors


def test_a_lying_server_needs_signed_batches(tmp_path: Path) -> None:
    enrolment = Enrolment()
    cohort = ShuffledCohort(shuffled_spec(malicious=True), enrolment)
    server, request = cohort.submitted()
    assert isinstance(request, bytes)
    outcome = finished(server, new_shuffler(tmp_path, enrolment).release(request))
    assert isinstance(outcome, SecureSum)


@pytest.mark.parametrize("fault", ["no signature", "made up", "another enrolment"])
def test_nodes_that_the_server_made_up_are_not_counted(
    fault: str, tmp_path: Path
) -> None:
    enrolment = Enrolment()
    _, request = ShuffledCohort(shuffled_spec(malicious=True), enrolment).submitted()
    assert isinstance(request, bytes)
    lie = ReleaseRequest.FromString(request)
    for batch in lie.batches[1:]:
        if fault == "no signature":
            batch.answer.signature = b""
        elif fault == "made up":
            batch.answer.signature = lie.batches[0].answer.signature
        else:
            other = Enrolment().identity(batch.party)
            assert other.certificate is not None
            batch.answer.certificate = other.certificate.to_bytes()
    body = new_shuffler(tmp_path, enrolment).release(lie.SerializeToString())
    assert "1 nodes with 1 users" in refusal(body)


def test_a_lying_server_is_not_served_without_an_enrolment_key(tmp_path: Path) -> None:
    enrolment = Enrolment()
    _, request = ShuffledCohort(shuffled_spec(malicious=True), enrolment).submitted()
    assert isinstance(request, bytes)
    assert "enrolment" in refusal(new_shuffler(tmp_path).release(request))


@pytest.mark.parametrize("body", [b"", b"garbage", b"\x0a\xff"])
def test_garbage_is_refused_and_claims_nothing(body: bytes, tmp_path: Path) -> None:
    assert refusal(new_shuffler(tmp_path).release(body))
    assert not list(tmp_path.iterdir())


def test_the_shuffler_cannot_open_what_it_carries_nor_link_what_it_gave(
    tmp_path: Path,
) -> None:
    cohort = ShuffledCohort(shuffled_spec())
    _, request = cohort.submitted()
    assert isinstance(request, bytes)
    answer = ReleaseAnswer.FromString(new_shuffler(tmp_path).release(request))
    # All that is left of it: an empty file with a digest for a name.
    left = [(path.name, path.read_bytes()) for path in tmp_path.iterdir()]
    assert [len(name) for name, _ in left] == [64]
    assert left[0][1] == b""
    assert not any(party in left[0][0] for party in cohort.parties)
    assert len(answer.messages) == 5 * ShufflePlan.of(cohort.spec, 5).batch_bytes


def test_what_the_server_carries_shares_no_message_with_the_shuffled_batch(
    tmp_path: Path,
) -> None:
    cohort = ShuffledCohort(shuffled_spec())
    _, request = cohort.submitted()
    assert isinstance(request, bytes)
    answer = ReleaseAnswer.FromString(new_shuffler(tmp_path).release(request))
    size = ShufflePlan.of(cohort.spec, 5).message_bytes
    for start in range(0, len(answer.messages), size):
        # The encapsulated key of a message, 32 bytes, stands in no batch.
        assert answer.messages[start : start + 16] not in request


def test_server_and_shuffler_together_learn_a_nodes_messages_and_no_more() -> None:
    # The documented loss: whoever has both keys reads what one node sent, which only
    # that node's own noise hides.
    cohort = ShuffledCohort(shuffled_spec())
    server, request = cohort.submitted()
    assert isinstance(request, bytes)
    plan = ShufflePlan.of(cohort.spec, 5)
    release = ReleaseRequest.FromString(request)
    context = server.context  # type: ignore[attr-defined]
    place = unnamed_info(context, release.sealing_key)
    opened = KEY.open(cohort.batch("node-00003"), place)
    bodies = server._bodies(opened)  # type: ignore[attr-defined]
    assert plan.read(bodies, 1) == cohort.values["node-00003"]


def test_every_order_is_as_likely_as_any_other() -> None:
    # 24 orders of 4, 12,000 draws: chi-square of 23 degrees; false alarm 10⁻⁶.
    counts = Counter(tuple(random_order(4).tolist()) for _ in range(12_000))
    assert len(counts) == 24
    assert sum((count - 500) ** 2 / 500 for count in counts.values()) < 67.6


def test_a_shuffled_batch_with_a_forged_message_gives_no_sum_and_blames_nobody(
    tmp_path: Path,
) -> None:
    server, request = ShuffledCohort(shuffled_spec()).submitted()
    assert isinstance(request, bytes)
    answer = ReleaseAnswer.FromString(new_shuffler(tmp_path).release(request))
    answer.messages = bytes(49) + answer.messages[49:]
    outcome = finished(server, answer.SerializeToString())
    assert isinstance(outcome, Void)
    assert outcome.code == "shuffled-batch-unreadable"
    assert [finding.party for finding in server.findings] == [""]
