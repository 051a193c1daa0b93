"""States by difference: nothing is lost, and what did not change is not written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategy.store.test_journal import cohort, config, summed
from wallflower.protocol.errors import JournalError
from wallflower.strategy.store.entries import PrivacySpend, RoundRecord
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.store.journal_rows import apply_changes, find_changes

LEAF = st.none() | st.integers() | st.text(max_size=2) | st.lists(st.integers())
STATE = st.recursive(
    st.dictionaries(st.sampled_from("abc"), LEAF, max_size=3),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner | LEAF, max_size=3),
    max_leaves=8,
)


@given(STATE, STATE)
def test_changes_make_the_earlier_state_into_the_later_one(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    kept = json.dumps(before)
    changes = find_changes(before, after)
    if changes is not None:
        assert apply_changes(before, changes) == after
    assert json.dumps(before) == kept


@given(STATE)
def test_a_state_that_did_not_change_has_no_changes(state: dict[str, Any]) -> None:
    assert find_changes(state, json.loads(json.dumps(state))) == {}


def test_a_key_that_is_gone_cannot_be_said_by_a_change() -> None:
    assert find_changes({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}) is None


def state_after(number: int) -> dict[str, Any]:
    """A state that grows with every round, and changes in one place."""
    return {
        "batch": number,
        "spec": "x" * 1000,
        "arms": {str(arm): {"last": min(number, arm + 1)} for arm in range(50)},
    }


def write_rounds(journal: Journal, numbers: range) -> None:
    for number in numbers:
        journal.invite([cohort(f"c{number}", number)])
        record = RoundRecord(number, (), state_after(number), PrivacySpend(), None)
        journal.finish_round(record, [summed(f"c{number}")])


def written(journal: Journal) -> list[int]:
    rows = journal.rows("SELECT length(policy_state) FROM round ORDER BY number")
    return [length for (length,) in rows]


def test_a_round_writes_what_it_changed_also_after_a_restart(tmp_path: Path) -> None:
    with Journal.create(tmp_path / "run", "r", config(), "local") as journal:
        write_rounds(journal, range(1, 60))
    with Journal.resume(tmp_path / "run") as journal:
        write_rounds(journal, range(60, 70))
        sizes = written(journal)
        assert sizes[0] > 1000
        assert max(sizes[52:]) <= len('{"changed":{"batch":69}}')
        states = [record.policy_state for record in journal.rounds()]
        assert states == [state_after(number) for number in range(1, 70)]
        last = journal.last_round()
        assert last is not None
        assert last.policy_state == state_after(69)
        assert journal.count_rounds() == 69


def test_a_state_that_loses_a_key_is_written_whole(tmp_path: Path) -> None:
    with Journal.create(tmp_path / "run", "r", config(), "local") as journal:
        for number, state in enumerate(({"a": 1, "b": 2}, {"a": 1}), 1):
            journal.invite([cohort(f"c{number}", number)])
            record = RoundRecord(number, (), state, PrivacySpend(), None)
            journal.finish_round(record, [summed(f"c{number}")])
        last = journal.last_round()
        assert last is not None
        assert last.policy_state == {"a": 1}


def test_changes_of_no_state_are_refused(tmp_path: Path) -> None:
    with Journal.create(tmp_path / "run", "r", config(), "local") as journal:
        write_rounds(journal, range(1, 3))
        with journal.database.transaction() as database:
            database.execute("DELETE FROM round WHERE number = 1")
        with pytest.raises(JournalError, match="cannot be read"):
            journal.last_round()


def test_open_cohorts_and_draws_are_found_without_reading_all_cohorts(
    tmp_path: Path,
) -> None:
    from wallflower.strategy.store.sql import NEXT_DRAW, OPEN_COHORTS

    with Journal.create(tmp_path / "run", "r", config(), "local") as journal:
        for query in (OPEN_COHORTS, NEXT_DRAW):
            plan = journal.rows(f"EXPLAIN QUERY PLAN {query}")
            assert all("USING" in row[-1] or "B-TREE" in row[-1] for row in plan), plan
