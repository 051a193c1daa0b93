"""The rehearsal without nodes keeps to the same floor as every other engine."""

from __future__ import annotations

from pathlib import Path

from tests.support.failing_nodes import nodes_fail
from tests.support.run_fixtures import write
from tests.wallflower.test_run_commands import invoke
from wallflower.strategy.store.entries import SUMMED, VOID
from wallflower.strategy.store.journal import Journal

# Three of 20 nodes fail: 85 % answer, above the floor of 80 % and below the quorum of
# 90 %.
EXPERIMENT = """
[experiment]
name = "missing"
arms = ["a", "b"]
[policy]
first-batch = 200
[nodes]
count = 20
users = 30
[rewards]
means = [0.5, 0.5]
"""


def run(folder: Path, *, missing: str) -> tuple[int, Path]:
    run_dir = folder / "run"
    file = write(folder, EXPERIMENT)
    with nodes_fail(("node-1", "node-7", "node-12"), missing):
        code, _ = invoke("run", file, "--engine", "fast", "--run-dir", run_dir)
    return code, run_dir


def test_a_sum_below_its_quorum_is_never_released(tmp_path: Path) -> None:
    code, run_dir = run(tmp_path, missing="ab")
    with Journal.read(run_dir) as journal:
        cohorts, rounds = journal.cohorts(), journal.rounds()
    assert code == 4
    assert not rounds
    assert {(cohort.state, cohort.reason) for cohort in cohorts} == {
        (VOID, "quorum-not-met")
    }
    assert all(cohort.result is None for cohort in cohorts)


def test_a_void_cohort_is_recruited_again_and_others_go_on(tmp_path: Path) -> None:
    code, run_dir = run(tmp_path, missing="b")
    with Journal.read(run_dir) as journal:
        cohorts = journal.cohorts()
    states = {(cohort.arm, cohort.state) for cohort in cohorts}
    assert code == 0
    assert states == {(0, SUMMED), (1, VOID)}
    assert max(cohort.attempt for cohort in cohorts) > 1
    assert invoke("verify", run_dir)[0] == 0


def test_with_all_nodes_there_nothing_is_void(tmp_path: Path) -> None:
    code, run_dir = run(tmp_path, missing="")
    with Journal.read(run_dir) as journal:
        assert {cohort.state for cohort in journal.cohorts()} == {SUMMED}
    assert code == 0
