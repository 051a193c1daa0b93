"""Looking at a run reads what it shows: not each person, not each round, no engine."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.run_fixtures import environment, write
from tests.wallflower.test_run_commands import invoke
from wallflower.results.result import read_result
from wallflower.strategy.store.journal import Journal

# Equal arms in rounds of nearly one size: nothing is decided.
ROUNDS = """
[experiment]
name = "rounds"
arms = ["a", "b"]
horizon = {horizon}
[policy]
ratio = 1.0001
first-batch = 16
[nodes]
count = 4
users = 200
[rewards]
means = [0.5, 0.5]
"""


def ran(folder: Path, rounds: int) -> Path:
    experiment = write(folder, ROUNDS.format(horizon=rounds * 34))
    run_dir = folder / f"run-{rounds}"
    with contextlib.chdir(folder):
        assert invoke("run", experiment, "--run-dir", run_dir)[0] == 0
    with Journal.read(run_dir) as journal:
        assert journal.count_rounds() == rounds
    return run_dir


def list_queries(run_dir: Path, patch: pytest.MonkeyPatch) -> list[str]:
    """Return what a result asks of a journal."""
    asked: list[str] = []
    rows = Journal.rows

    def note(journal: Journal, query: str, *values: object) -> list[object]:
        asked.append(query)
        return rows(journal, query, *values)

    with Journal.read(run_dir) as journal, patch.context() as patched:
        patched.setattr(Journal, "rows", note)
        read_result(journal)
    return asked


def test_a_result_asks_no_more_after_twelve_rounds_than_after_three(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few, many = (list_queries(ran(tmp_path, rounds), monkeypatch) for rounds in (3, 12))
    assert few == many


def test_a_finished_runs_result_reads_nobodys_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = ran(tmp_path, 3)

    def fail(*_: object) -> Iterator[object]:
        raise AssertionError("people were read one by one")

    monkeypatch.setattr(Journal, "used", fail)
    monkeypatch.setattr(Journal, "invitations", fail)
    with Journal.read(run_dir) as journal:
        assert read_result(journal).invited == 100


def test_a_result_reads_invitations_and_cohorts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list_queries(ran(tmp_path, 3), monkeypatch)
    large = [query for query in asked if "invitation" in query or "cohort " in query]
    assert sorted(large) == sorted(set(large))


@pytest.mark.parametrize("output", ["human", "json"])
def test_status_loads_neither_engines_nor_flower(tmp_path: Path, output: str) -> None:
    run_dir = ran(tmp_path, 3)
    code = (
        "import sys\n"
        "from wallflower.cli import main\n"
        "sys.argv[0] = 'wallflower'\n"
        "try: main()\n"
        "finally: sys.stderr.write(repr(sorted(\n"
        "    {'flwr', 'grpc', 'wallflower.engines'} & sys.modules.keys())))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "status", run_dir, "--format", output],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "[]")
