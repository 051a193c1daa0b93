"""Golden bytes of what servers and nodes say to each other."""

from __future__ import annotations

import pytest
from google.protobuf.message import Message

from wallflower.protocol.wire import node_pb2 as wire
from wallflower.protocol.wire.cohort_pb2 import CohortSpec

GOLDEN: list[tuple[Message, str]] = [
    (wire.Task(task_id="t", describe=wire.Describe()), "0a0174 1200"),
    (
        wire.Task(task_id="t", offer=wire.Offer(spec=CohortSpec(run_id="r"))),
        "0a0174 2a05 0a03 0a0172",
    ),
    (wire.TaskAnswer(task_id="t", closed=wire.Closed()), "0a0174 2a00"),
    (wire.TaskAnswer(task_id="t", accepted=wire.Accepted()), "0a0174 3200"),
    (wire.Refusal(code="c", terms=True, untouched=True), "0a0163 1001 1801"),
]


@pytest.mark.parametrize(("message", "expected"), GOLDEN)
def test_messages_have_their_golden_bytes(message: Message, expected: str) -> None:
    body = message.SerializeToString(deterministic=True)
    assert body.hex() == expected.replace(" ", "")
