"""Who caused a void cohort is named, or it is said that it cannot be known."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.orchestration import Altered, config, world
from tests.support.secure_sums import Cohort, cohort_spec, names, open_cohort
from wallflower.protocol.errors import UnavailableError
from wallflower.protocol.secure_sum.context import unwrap, wrap
from wallflower.protocol.secure_sum.session import (
    OUT,
    SUSPECT,
    Ask,
    Finding,
    KeyReady,
    SecureSum,
    Void,
)
from wallflower.protocol.wire import secure_sum_pb2 as wire
from wallflower.protocol.wire.node_pb2 import NodeAnswer
from wallflower.strategy.run.verify import verify
from wallflower.strategy.store.events import CohortEnded
from wallflower.strategy.store.journal import Journal

BAD = "node-00003"


def answered(cohort: Cohort, party: str, body: bytes, change: object = None) -> bytes:
    """A party's answer, its payload altered."""
    answer = cohort.answer(party, body)
    if change is None:
        return answer
    envelope = unwrap(answer, largest=10**6)
    payload = change(envelope.payload)  # type: ignore[operator]
    return wrap(envelope.stage, envelope.context, party, "", payload)


def run(cohort: Cohort, changes: dict[tuple[str, str], object]) -> SecureSum | Void:
    """Run a cohort; `changes` alters the answer of (stage, party)."""
    step = cohort.server.start()
    while isinstance(step, Ask):
        for party, body in step.messages.items():
            change = changes.get((step.stage, party))
            if change != "silent":
                cohort.server.receive(party, answered(cohort, party, body, change))
        step = cohort.server.advance()
    assert not isinstance(step, KeyReady)
    return step


def other_share(payload: bytes) -> bytes:
    answer = wire.UnmaskAnswer.FromString(payload)
    answer.self_shares[0] = bytes(36)
    return answer.SerializeToString()


def test_a_wrong_share_is_found_left_out_and_its_holder_only_suspected() -> None:
    parties = names(8)
    cohort = open_cohort(cohort_spec("secagg-plus", parties), parties)
    outcome = run(cohort, {("unmask", BAD): other_share})
    assert isinstance(outcome, SecureSum)
    assert outcome.total == cohort.expected(outcome.survivors)
    assert list(cohort.server.findings) == [Finding(BAD, SUSPECT, "share-does-not-fit")]


@pytest.mark.parametrize(
    ("backend", "stage"), [("sealed", "open"), ("secagg-plus", "unmask")]
)
def test_nodes_that_were_silent_are_named_as_not_there(
    backend: str, stage: str
) -> None:
    parties = names(4)
    cohort = open_cohort(cohort_spec(backend, parties), parties)
    silent = ["node-00001", "node-00002", "node-00003"]
    outcome = run(cohort, {(stage, party): "silent" for party in silent})
    assert isinstance(outcome, Void)
    assert list(cohort.server.findings) == [
        Finding(party, OUT, "no-answer") for party in silent
    ]


def garbled(body: bytes) -> bytes:
    """Cut off every message of a secure sum; descriptions stay."""
    answer = NodeAnswer.FromString(body)
    for task in answer.answers:
        if task.WhichOneof("kind") == "message":
            task.message = task.message[:-1]
    return answer.SerializeToString()


async def test_a_void_cohort_names_its_causes_in_journal_events_and_verify(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, config()) as there:
        garbling = sorted(there.handlers)[:12]
        for name in garbling:
            there.handlers[name] = Altered(there.nodes[name], garbled)
        with pytest.raises(UnavailableError):
            await there.run()
    with Journal.read(tmp_path / "run") as journal:
        blame, voids = journal.blame(), [c for c in journal.cohorts() if c.reason]
        checks = verify(journal)
    told = {e.cohort_id: e.findings for e in there.heard if isinstance(e, CohortEnded)}
    assert voids
    for cohort in voids:
        assert set(told[cohort.cohort_id]) == set(blame[cohort.cohort_id])
        assert {one.party for one in blame[cohort.cohort_id]} <= set(garbling)
    assert all(check.holds for check in checks)
