"""Many kills: ``python -m tests.support.kill_soak FIRST KILLS``.

Runs of every back-end are killed (SIGKILL) again and again, each time in a phase and
after so many rounds as a seed draws, and resumed. After every kill the record must
verify and nobody may have been asked twice; no process may be left over. At the end
every run is resumed to its end: the best arm wins and the record holds.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import psutil

from tests.integration.test_kill import EXPERIMENT, SEALED, SECAGG_PLUS, state_of
from tests.support.run_fixtures import as_json, environment, wallflower, write

_MOST_DEATHS = 10  # of one run: each voids a round's people, and they must suffice
_ANYWHERE = (
    "invitations half written",
    "invitations written",
    "spend written",
    "cohorts given up",
    "restart noted",
    "sum known",
    "round half written",
    "round written",
    "between rounds",
)
PHASES = {
    "sealed": tuple(phase for phase, _ in SEALED),
    "secagg-plus": tuple(phase for phase, _ in SECAGG_PLUS),
    "shuffle": _ANYWHERE,
}


def die(words: Sequence[str | Path], phase: str, rounds: int, folder: Path) -> int:
    """Run a command that dies in a phase; return its exit code, 0 if it was over."""
    program = [sys.executable, "-m", "tests.integration.killed_server"]
    done = subprocess.run(
        [*program, phase, str(folder / "phase"), str(rounds), *map(str, words)],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode in (0, -signal.SIGKILL), (phase, done.stderr[-2000:])
    return done.returncode


def left_over(folder: Path) -> list[psutil.Process]:
    """Return the processes that a killed run left, after they had time to end."""
    ours = [
        process
        for process in psutil.process_iter(["cmdline"])
        if any(str(folder) in word for word in process.info["cmdline"] or ())
    ]
    return psutil.wait_procs(ours, timeout=300)[1]


def kill_often(seed: int, most: int) -> Counter[str]:
    """Kill one run up to `most` times and bring it to its end; count the phases."""
    rng = random.Random(seed)
    backend = rng.choice(sorted(PHASES))
    text = EXPERIMENT.replace("BACKEND", backend)
    if backend == "shuffle":
        text += 'shuffle = "mixed"\n'
    landed: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="kill-soak-") as name:
        folder = Path(name)
        run_dir = folder / "run"
        words: Sequence[str | Path] = ("run", write(folder, text), "--run-dir", run_dir)
        for _ in range(min(most, _MOST_DEATHS)):
            phase = rng.choice(PHASES[backend])
            rounds = rng.choice((0, 0, 0, 0, 0, 0, 0, 1))
            if die(words, phase, rounds, folder) == 0:
                break
            landed[f"{backend}: {phase}"] += 1
            state_of(run_dir)
            assert left_over(folder) == []
            words = ("resume", run_dir)
        result = as_json(
            wallflower(*("resume", run_dir, "--format", "json"), cwd=folder)
        )
        assert result["winner"] == "d", result["sentence"]
        state_of(run_dir)
    return landed


def soak(first: int, kills: int) -> None:
    """Kill runs until so many kills landed, and print where."""
    landed: Counter[str] = Counter()
    seed = first
    while landed.total() < kills:
        landed += kill_often(seed, kills - landed.total())
        print(f"seed {seed}: {landed.total()} of {kills} kills", flush=True)
        seed += 1
    for phase, often in sorted(landed.items()):
        print(f"  {phase}: {often}")
    print(
        f"{landed.total()} kills of {seed - first} runs: every record held, nobody was "
        "asked twice, no process was left, every run came to the best arm"
    )


if __name__ == "__main__":
    soak(int(sys.argv[1]), int(sys.argv[2]))
