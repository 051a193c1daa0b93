from __future__ import annotations

import stat
from pathlib import Path

import pytest

from wallflower.clients.host.home import NodeHome
from wallflower.clients.host.outcome_counts import (
    FILE_NAME,
    OutcomeCounts,
    add_counts,
    read_counts,
)
from wallflower.clients.node.ledger import Ledger


def test_a_home_counts_what_was_not_known_over_all_cohorts(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text(
        '[node]\nname = "a"\n[rewards]\nmeans = [0, 1]\n'
    )
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        count = NodeHome(tmp_path).node(ledger)._parts.count
    count(10, {"reward-late": 2})
    count(5, {})
    count(5, {"reward-late": 1, "reward-not-a-number": 4})
    expected = {"reward-late": 3, "reward-not-a-number": 4}
    assert read_counts(tmp_path) == OutcomeCounts(20, expected)
    assert stat.S_IMODE((tmp_path / FILE_NAME).stat().st_mode) == 0o600


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"shown": "x", "unknown": {}}'])
def test_a_damaged_count_begins_anew(text: str, tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text(text)
    assert read_counts(tmp_path) == OutcomeCounts()
    add_counts(tmp_path, 3, {"reward-late": 1})
    assert read_counts(tmp_path) == OutcomeCounts(3, {"reward-late": 1})


def test_a_count_that_cannot_be_written_costs_nobody_their_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add_counts(tmp_path / "gone", 3, {"reward-late": 1})
    assert "outcomes are not counted" in caplog.text
