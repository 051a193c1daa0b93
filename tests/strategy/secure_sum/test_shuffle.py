"""The server's half of a shuffled sum: floors, a lost shuffler, restarts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.secure_sums import Enrolment, names
from tests.support.shuffled_sums import (
    ShuffledCohort,
    finished,
    new_shuffler,
    shuffled_spec,
)
from wallflower.protocol.errors import (
    InputError,
    MalformedMessageError,
    ReplayedMessageError,
)
from wallflower.protocol.secure_sum.context import unwrap, wrap
from wallflower.protocol.secure_sum.session import Ask, SecureSum, Void
from wallflower.protocol.secure_sum.shuffle.mixing import shares_for
from wallflower.protocol.secure_sum.shuffle.plan import SHUFFLER, ShufflePlan
from wallflower.protocol.wire.shuffle_pb2 import ReleaseAnswer, SubmitAnswer
from wallflower.strategy.secure_sum import (
    ServerKeyring,
    restore_session,
    server_session,
)


def test_too_few_nodes_void_the_cohort_before_the_shuffler_is_asked() -> None:
    silent = frozenset(f"node-0000{number}" for number in range(3))
    _, outcome = ShuffledCohort(shuffled_spec(), silent=silent).submitted()
    assert isinstance(outcome, Void)
    assert outcome.code == "too-few-contributors"


def test_without_a_shuffler_nobody_is_asked() -> None:
    spec = shuffled_spec()
    step = server_session(spec, names(5), keyring=ServerKeyring("run-1")).start()
    assert isinstance(step, Void)
    assert step.code == "no-shuffler"


def test_a_node_cannot_be_called_like_the_shuffler() -> None:
    with pytest.raises(InputError):
        server_session(shuffled_spec(), {SHUFFLER: 1, **names(4)})


@pytest.mark.parametrize("longer", [-1, 1, 1_000_000])
def test_a_batch_has_the_length_that_all_have(longer: int) -> None:
    """One node fills neither the server's memory nor the shuffler's."""
    cohort = ShuffledCohort(shuffled_spec())
    cohort.submitted()
    sent = unwrap(cohort.answers["node-00000"])
    answer = SubmitAnswer.FromString(sent.payload)
    server = server_session(cohort.spec, cohort.parties, keyring=cohort.keyring)
    server.start()
    answer.batch = bytes(len(answer.batch) + longer)
    payload = answer.SerializeToString()
    body = wrap(sent.stage, sent.context, "node-00000", "", payload)
    with pytest.raises(MalformedMessageError, match="wrong length"):
        server.receive("node-00000", body)


@pytest.mark.parametrize("word", ["shuffler-unavailable", "shuffler-timeout"])
def test_a_shuffler_that_is_gone_voids_the_cohort_and_blames_no_node(word: str) -> None:
    server, _ = ShuffledCohort(shuffled_spec()).submitted()
    server.lose(SHUFFLER, word)
    outcome = server.advance()
    assert isinstance(outcome, Void)
    assert outcome.code == "no-shuffled-batch"
    assert word in outcome.detail
    assert not any(finding.party for finding in server.findings)


def test_a_refusing_shuffler_voids_the_cohort_with_its_reason() -> None:
    server, _ = ShuffledCohort(shuffled_spec()).submitted()
    body = ReleaseAnswer(refusal="given before\x1b[2J").SerializeToString()
    outcome = finished(server, body)
    assert isinstance(outcome, Void)
    assert outcome.detail == "the shuffler refused: given before?[2J"


def test_a_shuffled_batch_of_other_nodes_is_not_believed() -> None:
    server, _ = ShuffledCohort(shuffled_spec(malicious=True), Enrolment()).submitted()
    body = ReleaseAnswer(messages=b"", parties=["stranger"]).SerializeToString()
    outcome = finished(server, body)
    assert isinstance(outcome, Void)
    assert outcome.code == "shuffled-batch-does-not-fit"


def test_a_shuffled_batch_that_leaves_too_many_out_is_not_believed() -> None:
    server, _ = ShuffledCohort(shuffled_spec()).submitted()
    left_out = dict.fromkeys(range(5), "not-authenticated")
    outcome = finished(server, ReleaseAnswer(left_out=left_out).SerializeToString())
    assert isinstance(outcome, Void)
    assert outcome.code == "shuffled-batch-does-not-fit"


def test_a_second_shuffled_batch_is_refused(tmp_path: Path) -> None:
    server, request = ShuffledCohort(shuffled_spec()).submitted()
    assert isinstance(request, bytes)
    shuffled = new_shuffler(tmp_path).release(request)
    server.receive(SHUFFLER, shuffled)
    with pytest.raises(ReplayedMessageError):
        server.receive(SHUFFLER, shuffled)


def test_a_restarted_server_asks_for_the_very_same_shuffled_batch(
    tmp_path: Path,
) -> None:
    cohort = ShuffledCohort(shuffled_spec())
    server, request = cohort.submitted()
    assert isinstance(request, bytes)
    again = restore_session(server.snapshot(), keyring=cohort.keyring)
    step = again.start()
    assert isinstance(step, Ask)
    assert step.messages == {SHUFFLER: request}
    outcome = finished(again, new_shuffler(tmp_path).release(request))
    assert isinstance(outcome, SecureSum)
    assert outcome.total == sum(cohort.values.values())


def test_mixed_sums_need_as_many_nodes_as_their_shares_count_on() -> None:
    plan = ShufflePlan.of(shuffled_spec(40, mechanism="dist-dp", floor=32), 40)
    # 4 of 40 collude, 4 vanish: 32 honest ones mix, and 36 must send.
    assert plan.least == 36
    # ε = 1 takes σ = 42 for a δ of 2⁻⁴⁰.
    assert plan.messages == shares_for(32, plan.modulus, 42) == 21
