"""What a journal shows of who got which arm, each unevenness by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.orchestration import config, world
from wallflower.strategy.run import verify as verifying
from wallflower.strategy.run.replay import RecordedFacts
from wallflower.strategy.run.verify import find_unbalanced
from wallflower.strategy.store.chain import Entry
from wallflower.strategy.store.entries import INVITED, VOID, CohortRecord
from wallflower.strategy.store.journal import Journal

Asked = Mapping[str, tuple[str, ...]]


@pytest.fixture
async def even(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RecordedFacts:
    """Return the record of a short run of two arms."""
    async with world(tmp_path, config()) as there:
        await there.run()
    seen: list[RecordedFacts] = []

    def look(evidence: RecordedFacts) -> Iterator[str]:
        seen.append(evidence)
        return find_unbalanced(evidence)

    monkeypatch.setattr(verifying, "find_unbalanced", look)
    with Journal.read(there.run_dir) as journal:
        assert all(check.holds for check in verifying.verify(journal))
    return seen[0]


def first_draw(evidence: RecordedFacts) -> list[str]:
    return [one.cohort_id for one in evidence.cohorts if one.draw == 1]


def with_asked(evidence: RecordedFacts, cohort_id: str, asked: Asked) -> RecordedFacts:
    return replace(evidence, invited={**evidence.invited, cohort_id: asked})


def change(evidence: RecordedFacts, changed: CohortRecord) -> RecordedFacts:
    cohorts = [
        changed if one.cohort_id == changed.cohort_id else one
        for one in evidence.cohorts
    ]
    return replace(evidence, cohorts=cohorts)


def second(evidence: RecordedFacts) -> CohortRecord:
    return [one for one in evidence.cohorts if one.draw == 1][1]


async def test_cohorts_of_one_draw_that_differ_by_one_person_are_found(
    even: RecordedFacts,
) -> None:
    one = first_draw(even)[0]
    node, users = next(iter(even.invited[one].items()))
    asked = {**even.invited[one], node: users[1:]}
    found = list(find_unbalanced(with_asked(even, one, asked)))
    assert any("its cohorts have" in problem for problem in found)


async def test_a_node_that_gives_two_more_to_one_arm_is_found(
    even: RecordedFacts,
) -> None:
    one = first_draw(even)[0]
    (node, users), (other, _) = list(even.invited[one].items())[:2]
    moved = {**even.invited[one], node: users[2:]}
    moved[other] = (*moved[other], "x", "y")
    found = list(find_unbalanced(with_asked(even, one, moved)))
    assert not any("its cohorts have" in problem for problem in found)
    assert sum("to one arm and" in problem for problem in found) >= 1


async def test_a_person_in_two_cohorts_of_a_draw_is_found(even: RecordedFacts) -> None:
    one, other = first_draw(even)[:2]
    shared = set(even.invited[one]) & set(even.invited[other])
    node = min(shared)
    twice = (even.invited[one][node][0], *even.invited[other][node][1:])
    asked = {**even.invited[other], node: twice}
    found = list(find_unbalanced(with_asked(even, other, asked)))
    assert found == [
        f"draw 1: user {node}/{even.invited[one][node][0]} is in 2 of its cohorts"
    ]


async def test_a_draw_with_two_cohorts_of_an_arm_is_found(even: RecordedFacts) -> None:
    changed = replace(second(even), arm=even.cohorts[0].arm)
    found = list(find_unbalanced(change(even, changed)))
    assert "draw 1 has two cohorts of one arm" in found


async def test_a_draw_of_two_rounds_is_found(even: RecordedFacts) -> None:
    changed = replace(second(even), round_number=9)
    found = list(find_unbalanced(change(even, changed)))
    assert "draw 1 has cohorts of several rounds" in found


async def test_an_arm_that_joins_its_round_later_is_found(even: RecordedFacts) -> None:
    joined = replace(second(even), draw=99)
    found = list(find_unbalanced(change(even, joined)))
    assert f"round 1: arm {joined.arm} was not drawn together with the others" in found


def redrawn(evidence: RecordedFacts, kinds: Sequence[str]) -> list[str]:
    """Draw an arm of round 1 a second time; `kinds` are the entries about the first."""
    first = evidence.cohorts[0]
    again = replace(first, cohort_id="again", draw=99)
    told = [entry for entry in evidence.links if entry.subject != first.cohort_id]
    sample = next(one for one in evidence.links if one.subject == first.cohort_id)
    entries: list[Entry] = [
        replace(sample, kind=kind, subject=first.cohort_id) for kind in kinds
    ]
    entries.append(replace(sample, kind=INVITED, subject="again"))
    changed = replace(
        evidence,
        cohorts=[*evidence.cohorts, again],
        links=[*entries, *told],
        invited={**evidence.invited, "again": evidence.invited[first.cohort_id]},
    )
    return [one for one in find_unbalanced(changed) if "was not void" in one]


async def test_an_arm_is_drawn_again_only_after_its_cohort_is_void(
    even: RecordedFacts,
) -> None:
    assert redrawn(even, [INVITED, VOID]) == []
    assert len(redrawn(even, [INVITED])) == 1
