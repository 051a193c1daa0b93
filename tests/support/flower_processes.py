"""What `flwr run` starts: a local SuperLink that has time to, and is ended."""

from __future__ import annotations

from pathlib import Path

import psutil

# Flower gives its SuperLink 15 s to start and 0.4 s to say that it is there.
_PATIENT = """#!{python}
from flwr.cli import constant

constant.LOCAL_SUPERLINK_STARTUP_TIMEOUT = 300.0
constant.CONTROL_API_PROBE_TIMEOUT = 60.0

from flwr.cli.app import app

app()
"""


def write_patient_flwr(programs: Path, python: str | Path) -> None:
    """Write a `flwr` into a folder of programs that waits for a busy machine."""
    programs.mkdir(exist_ok=True)
    script = programs / "flwr"
    script.write_text(_PATIENT.format(python=python))
    script.chmod(0o755)


def end_processes_of(home: Path) -> None:
    """End all processes whose FLWR_HOME is this folder."""
    mine = [p for p in psutil.process_iter() if _flower_home(p) == home]
    for process in mine:
        process.terminate()
    for process in psutil.wait_procs(mine, timeout=60)[1]:
        process.kill()


def _flower_home(process: psutil.Process) -> Path | None:
    try:
        return Path(process.environ().get("FLWR_HOME", ""))
    except psutil.Error:
        return None
