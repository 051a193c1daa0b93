"""Spent is what invitations and ledgers say, also of a round that was cut short."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.strategy.store.test_journal import config
from tests.support.orchestration import world
from tests.support.run_fixtures import command, environment, write
from tests.wallflower.results.test_page import Page
from tests.wallflower.test_interrupted_runs import SLOW
from tests.wallflower.test_run_commands import invoke
from wallflower.protocol.errors import UnavailableError
from wallflower.results.result import read_result
from wallflower.strategy.store import events
from wallflower.strategy.store.journal import Journal


@pytest.fixture(scope="module")
def cut_short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose server was killed while the first round's users saw their arms."""
    folder = tmp_path_factory.mktemp("killed")
    process = subprocess.Popen(
        command("run", write(folder, SLOW), "--run-dir", folder / "run"),
        cwd=folder,
        env={**environment(), "WALLFLOWER_TEST_SLOW": str(folder / "go")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 300
        while not (folder / "go.asked").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    return folder / "run"


def test_status_after_a_kill_says_who_may_have_spent(cut_short: Path) -> None:
    said = " ".join(invoke("status", cut_short)[1].split())
    assert "obody has spent any privacy" not in said
    assert "ε = 1 in all" in said
    assert "120 people were invited to a round that is not finished" in said
    spent = re.search(r"the hosted ledger says that (\d+) did", said)
    assert spent is not None
    assert 0 < int(spent[1]) <= 120  # charged before they are shown anything


def test_verify_after_a_kill_says_who_may_have_spent(cut_short: Path) -> None:
    code, said = invoke("verify", cut_short)
    assert code == 0
    assert "120 people were invited to a round that is not finished" in said
    assert said.rstrip().endswith("The record holds.")


def test_nobody_whose_cohort_is_under_way_is_called_lost(cut_short: Path) -> None:
    said = " ".join(invoke("status", cut_short)[1].split())
    assert "invited 120, answered 0, under way 120, lost 0" in said
    assert invoke("report", cut_short)[0] == 0
    page = Page(cut_short / "report.html")
    assert "lost 0 under way 120" in page.flat
    by_arm = page.table("People by arm")
    assert [row[1:] for row in by_arm] == [["40", "0", "0", "–"]] * 3
    assert "Everybody lost, by reason" not in page.tables


def test_programs_learn_it_too(cut_short: Path) -> None:
    result = json.loads(invoke("status", cut_short, "--format", "json")[1])
    assert result["guarantee"]["total-epsilon"] == "1"
    assert result["unfinished_round"]["invited"] == 120
    assert 0 < result["unfinished_round"]["spent"] <= 120
    assert result["rounds"] == 0


async def test_without_a_hosted_ledger_all_invited_count(tmp_path: Path) -> None:
    async with world(tmp_path) as there:

        def leave(event: events.Event) -> None:
            if isinstance(event, events.RoundStarted):
                there.port.gone = set(there.nodes)

        there.react = leave  # everybody is invited, nobody answers
        with pytest.raises(UnavailableError):
            await there.run()
        with Journal.read(there.run_dir) as journal:
            result = read_result(journal)
    assert result.unfinished.invited == result.invited > 0
    assert result.unfinished.spent is None
    assert "ε = 1 in all" in result.promise()


def test_before_anybody_is_asked_nobody_has_spent(tmp_path: Path) -> None:
    with Journal.create(tmp_path / "run", "r", config(), "local") as journal:
        promise = read_result(journal).promise()
    assert promise == "Nobody was asked yet: nobody has spent any privacy."
