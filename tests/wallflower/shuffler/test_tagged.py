"""A server that marks one node, to know its messages again, does not get them.

Nothing that lets a node in may tell it apart: what the server says to all nodes is the
same, and where it says something else to one, that node's messages are in no shuffled
batch.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.secure_sums import Enrolment
from tests.support.shuffled_sums import (
    ShuffledCohort,
    finished,
    new_shuffler,
    shuffled_spec,
)
from wallflower.protocol.errors import AuthenticationError
from wallflower.protocol.secure_sum.context import unwrap, wrap
from wallflower.protocol.secure_sum.session import Ask, SecureSum
from wallflower.protocol.secure_sum.shuffle.plan import ShufflePlan
from wallflower.protocol.secure_sum.shuffle.seals import OpeningKey, seal_info
from wallflower.protocol.wire.shuffle_pb2 import ReleaseAnswer, SubmitRequest
from wallflower.strategy.secure_sum import server_session

VICTIM = "node-00003"
NODES = 10
Change = Callable[[SubmitRequest], None]
MODES = pytest.mark.parametrize("mechanism", ["shuffle-dp", "dist-dp"])


class Marking(ShuffledCohort):
    """A cohort whose server says something else to one node."""

    change: Change

    def node_answer(self, party: str, body: bytes, value: int) -> bytes:
        if party == VICTIM:
            envelope = unwrap(body)
            request = SubmitRequest.FromString(envelope.payload)
            self.change(request)
            body = wrap(
                envelope.stage,
                envelope.context,
                "",
                party,
                request.SerializeToString(),
            )
        return super().node_answer(party, body, value)


def marking(change: Change, mechanism: str, *, malicious: bool = True) -> Marking:
    spec = shuffled_spec(NODES, mechanism=mechanism, malicious=malicious)
    cohort = Marking(spec, Enrolment())
    cohort.change = change
    return cohort


@MODES
@pytest.mark.parametrize("malicious", [True, False], ids=["named", "unnamed"])
def test_messages_for_a_key_that_only_one_node_was_given_are_in_no_shuffled_batch(
    mechanism: str, malicious: bool, tmp_path: Path
) -> None:
    plan = ShufflePlan.of(shuffled_spec(NODES, mechanism=mechanism), NODES)
    mark = OpeningKey.generate(plan.seal)

    def other_key(request: SubmitRequest) -> None:
        request.sealing_key = mark.public

    cohort = marking(other_key, mechanism, malicious=malicious)
    server, asked = cohort.submitted()
    assert isinstance(asked, bytes)
    body = new_shuffler(tmp_path, cohort.enrolment).release(asked)
    answer = ReleaseAnswer.FromString(body)
    size, keyring = plan.message_bytes, cohort.keyring
    info = seal_info(server.context, keyring.shuffler)  # type: ignore[attr-defined]
    shuffled = [
        answer.messages[at : at + size] for at in range(0, len(answer.messages), size)
    ]
    assert len(shuffled) == (NODES - 1) * plan.messages
    for message in shuffled[:: max(1, len(shuffled) // 400)]:
        with pytest.raises(AuthenticationError):
            mark.open(message, info)
    # The others lose nothing by it.
    outcome = finished(server, body)
    assert isinstance(outcome, SecureSum)
    assert VICTIM not in outcome.survivors
    assert list(server.out) == [VICTIM]


def test_all_nodes_of_a_cohort_are_told_the_same() -> None:
    cohort = marking(lambda _: None, "dist-dp")
    step = server_session(
        cohort.spec, cohort.parties, trust=cohort.trust, keyring=cohort.keyring
    ).start()
    assert isinstance(step, Ask)
    assert len(step.messages) == NODES
    assert len({unwrap(body).payload for body in step.messages.values()}) == 1
