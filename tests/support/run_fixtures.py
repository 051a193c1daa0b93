"""Small experiments and the command line as a process, for tests of whole runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SMALL = """
[experiment]
name = "small"
arms = ["a", "b", "c"]
[policy]
first-batch = 40
[nodes]
count = 12
users = 60
[rewards]
means = [0.1, 0.9, 0.2]
"""


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def command(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "wallflower", *map(str, words)]


def wallflower(
    *words: str | Path, cwd: Path, timeout_s: float = 100
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*words),
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def as_json(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    envelope: dict[str, Any] = json.loads(done.stdout)
    assert envelope["schema_version"] == 1
    return envelope


def write(folder: Path, text: str = SMALL, name: str = "experiment.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path
