"""Who caused a void cohort is named, or it is said that it cannot be known."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.orchestration import Altered, config, world
from tests.support.secure_sums import Cohort, cohort_spec, names, open_cohort
from wallflower.protocol.errors import UnavailableError
from wallflower.protocol.secure_sum.context import draw_order
from wallflower.protocol.secure_sum.envelope import unwrap, wrap
from wallflower.protocol.secure_sum.session import (
    OUT,
    SENT,
    SUSPECT,
    UNKNOWN,
    Ask,
    Dealt,
    Finding,
    SecureSum,
    Void,
)
from wallflower.protocol.wire import secure_sum_pb2 as wire
from wallflower.protocol.wire.node_pb2 import NodeAnswer
from wallflower.strategy.record.events import CohortEnded
from wallflower.strategy.record.journal import Journal
from wallflower.strategy.run.verify import verify

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
    assert not isinstance(step, Dealt)
    return step


def committee(nodes: int = 8) -> Cohort:
    parties = names(nodes)
    return open_cohort(cohort_spec("committee", parties), parties)


def other_total(payload: bytes) -> bytes:
    total = wire.TallyAnswer.FromString(payload).total
    return wire.TallyAnswer(total=(total + 1) % 1009).SerializeToString()


def test_a_wrong_tally_is_found_left_out_and_its_member_only_suspected() -> None:
    cohort = committee()
    outcome = run(cohort, {("tally", BAD): other_total})
    assert isinstance(outcome, SecureSum)
    assert outcome.total == cohort.expected(outcome.survivors)
    assert list(cohort.server.findings) == [Finding(BAD, SUSPECT, "tally-does-not-fit")]


def test_members_whose_numbers_contradict_each_other_are_not_blamed() -> None:
    cohort = committee()
    wrong = {("tally", party): other_total for party in names(4)}
    outcome = run(cohort, wrong)  # type: ignore[arg-type]
    assert isinstance(outcome, Void)
    assert outcome.code == "inconsistent-tallies"
    assert list(cohort.server.findings) == [
        Finding("", UNKNOWN, "inconsistent-tallies")
    ]


def garbled_for(victims: tuple[int, ...]) -> object:
    def change(payload: bytes) -> bytes:
        upload = wire.ContributeAnswer.FromString(payload)
        size = len(upload.sealed) // 8
        sealed = bytearray(upload.sealed)
        for position in victims:
            sealed[position * size] ^= 1
        upload.sealed = bytes(sealed)
        return upload.SerializeToString()

    return change


def test_a_contributor_of_whom_more_complain_than_can_collude_is_named() -> None:
    cohort = committee()
    order = draw_order(cohort.server.context, list(cohort.parties))  # type: ignore[attr-defined]
    victims = tuple(place for place, party in enumerate(order) if party != BAD)[:4]
    run(cohort, {("contribute", BAD): garbled_for(victims)})
    by_party = {one.party: one for one in cohort.server.findings}
    assert by_party[BAD] == Finding(BAD, SENT, "seals-do-not-open")


def test_a_complaint_that_a_colluder_could_have_made_up_proves_nothing() -> None:
    cohort = committee()
    run(cohort, {("contribute", BAD): garbled_for((0,))})
    by_party = {one.party: one for one in cohort.server.findings}
    assert by_party[BAD] == Finding(BAD, SUSPECT, "seals-do-not-open")


@pytest.mark.parametrize("backend", ["committee", "secagg-plus"])
def test_nodes_that_were_silent_are_named_as_not_there(backend: str) -> None:
    parties = names(4)
    cohort = open_cohort(cohort_spec(backend, parties), parties)
    stage = "tally" if backend == "committee" else "unmask"
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
