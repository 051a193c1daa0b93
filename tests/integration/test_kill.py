"""SIGKILL in every phase: the record holds, nobody is asked twice, the best wins."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support import shown_log
from tests.support.run_fixtures import as_json, environment, wallflower, write
from tests.support.world.disk import ledger_rows
from wallflower.results.run_folder import ledger_checks
from wallflower.strategy.run.verify import verify
from wallflower.strategy.store.journal import Journal

# Some ten rounds of four arms: so sure a test drops no best arm and decides nothing in
# its first six rounds (300 simulated runs: 7 to 13).
EXPERIMENT = """
[experiment]
name = "kill"
arms = ["a", "b", "c", "d"]
failure-probability = 1e-9
[policy]
first-batch = 30
ratio = 1.2
[nodes]
count = 24
users = 800
[rewards]
means = [0.5, 0.55, 0.4, 0.75]
[secure-sum]
backend = "BACKEND"
"""

# Where each server dies, and how many rounds it finishes before.
SEALED = (
    ("enlist partly answered", 0),
    ("deal about to be asked", 0),
    ("check partly answered", 0),
    ("invitations half written", 0),
    ("invitations written", 0),
    ("seal partly answered", 0),
    ("spend written", 0),
    ("cohorts given up", 0),
    ("open partly answered", 1),
    ("sum known", 0),
    ("round half written", 0),
    ("round written", 0),
)
SECAGG_PLUS = (
    ("advertise partly answered", 0),
    ("restart noted", 0),
    ("share about to be asked", 1),
    ("share partly answered", 0),
    ("mask about to be asked", 0),
    ("mask partly answered", 0),
    ("unmask about to be asked", 1),
    ("unmask partly answered", 0),
    ("round half written", 0),
    ("between rounds", 0),
)


def killed(words: Sequence[str | Path], phase: str, rounds: int, folder: Path) -> None:
    """Start a server that dies in a phase, and see that it did, there."""
    marker = folder / "phase"
    marker.unlink(missing_ok=True)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.integration.killed_server",
            *(phase, str(marker), str(rounds)),
            *map(str, words),
        ],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, (phase, done.stderr)
    assert marker.read_text() == phase


def state_of(run_dir: Path) -> str:
    """Check that the record holds and nobody was asked twice; say where it stands."""
    with Journal.read(run_dir) as journal:
        checks = (*verify(journal), *ledger_checks(journal))
        often = Counter(
            (node, user) for _, node, users in journal.invitations() for user in users
        )
        cohorts = Counter(cohort.state for cohort in journal.cohorts())
        rounds = len(journal.rounds())
    assert [problem for check in checks for problem in check.problems] == []
    assert not often or max(often.values()) == 1
    return f"{rounds} rounds, {len(often)} people asked, cohorts {dict(cohorts)}"


def kill_and_resume(
    folder: Path, backend: str, deaths: Sequence[tuple[str, int]]
) -> tuple[str, str]:
    """Return the winner, and what `verify` says of the record."""
    experiment = write(folder, EXPERIMENT.replace("BACKEND", backend))
    run_dir = folder / "run"
    words: Sequence[str | Path] = ("run", experiment, "--run-dir", run_dir)
    landed = 0
    for phase, rounds in deaths:
        killed(words, phase, rounds, folder)
        landed += 1
        print(f"  {landed:>2} {backend:<11} {phase:<28} {state_of(run_dir)}")
        words = ("resume", run_dir)
    result = as_json(wallflower("resume", run_dir, "--format", "json", cwd=folder))
    print(f"{landed} of {len(deaths)} kills landed; then {state_of(run_dir)}")
    assert landed == len(deaths)
    done = wallflower("verify", run_dir, "--head", result["head"], cwd=folder)
    return result["winner"], "holds" if done.returncode == 0 else done.stdout


def charged(run_dir: Path) -> Counter[tuple[str, str]]:
    """Count how often users of each name were charged for each arm."""
    found: Counter[tuple[str, str]] = Counter()
    for _, cohort_id, users in ledger_rows(next(run_dir.rglob("ledger.sqlite"))):
        arm = "abcd"[int(cohort_id.split("-")[1].removeprefix("a"))]
        found.update((arm, user) for user in json.loads(users))
    return found


@pytest.mark.slow  # starts a server several times
@pytest.mark.parametrize("backend", ["sealed", "secagg-plus"])
def test_nobody_is_shown_an_arm_without_a_spend_on_disk(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "shown"
    monkeypatch.setenv(shown_log.LOG, str(log))
    text = EXPERIMENT.replace("BACKEND", backend).replace(
        "means = [0.5, 0.55, 0.4, 0.75]",
        'source = "callable"\nfunction = "tests.support.shown_log:reward"',
    )
    run_dir = tmp_path / "run"
    words = ("run", write(tmp_path, text), "--run-dir", run_dir)
    killed(words, "arms partly shown", 0, tmp_path)
    saw = shown_log.shown(log)
    assert saw.total() >= 25
    assert saw - charged(run_dir) == Counter()
    killed(("resume", run_dir), "arms partly shown", 1, tmp_path)
    assert shown_log.shown(log).total() > saw.total()
    assert shown_log.shown(log) - charged(run_dir) == Counter()


@pytest.mark.slow  # starts a server several times, a second each
@pytest.mark.parametrize(
    ("backend", "deaths"),
    [("sealed", SEALED[6:8]), ("secagg-plus", SECAGG_PLUS[7:9])],
)
def test_a_killed_server_resumes_to_the_same_winner(
    backend: str, deaths: Sequence[tuple[str, int]], tmp_path: Path
) -> None:
    assert kill_and_resume(tmp_path, backend, deaths) == ("d", "holds")


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("backend", "deaths"), [("sealed", SEALED), ("secagg-plus", SECAGG_PLUS)]
)
def test_a_server_killed_in_every_phase_resumes_to_the_same_winner(
    backend: str, deaths: Sequence[tuple[str, int]], tmp_path: Path
) -> None:
    assert kill_and_resume(tmp_path, backend, deaths) == ("d", "holds")
