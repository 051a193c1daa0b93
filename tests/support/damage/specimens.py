"""Two small runs to be damaged: one that is over, one whose server was killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.run_fixtures import environment, wallflower, write

# Several rounds, so that there is a tail to lose: no sum of twelve people decides at
# this failure probability.
EXPERIMENT = """
[experiment]
name = "damaged"
arms = ["a", "b", "c"]
failure-probability = 1e-6
[policy]
first-batch = 12
[nodes]
count = 6
users = 120
[rewards]
means = [0.3, 0.9, 0.5]
"""


def make_specimens(folder: Path) -> tuple[Path, Path]:
    """Return the directories of a finished run and of one that was killed."""
    experiment = write(folder, EXPERIMENT)
    finished, killed = folder / "finished", folder / "killed"
    done = wallflower("run", experiment, "--run-dir", finished, cwd=folder)
    assert done.returncode == 0, done.stderr
    phase = ("seal partly answered", str(folder / "marker"), "1")
    words = ("run", str(experiment), "--run-dir", str(killed))
    subprocess.run(
        [sys.executable, "-m", "tests.integration.killed_server", *phase, *words],
        cwd=folder,
        env=environment(),
        capture_output=True,
        check=False,
    )
    assert (folder / "marker").exists()
    for shm in folder.glob("*/*-shm"):
        shm.unlink()  # it holds nothing, and is another in every copy
    return finished, killed
