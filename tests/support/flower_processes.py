"""End what `flwr run` leaves running: a local SuperLink and its children."""

from __future__ import annotations

from pathlib import Path

import psutil


def end_processes_of(home: Path) -> None:
    """End all processes whose FLWR_HOME is this folder."""
    mine = [p for p in psutil.process_iter() if _flower_home(p) == home]
    for process in mine:
        process.terminate()
    for process in psutil.wait_procs(mine, timeout=10)[1]:
        process.kill()


def _flower_home(process: psutil.Process) -> Path | None:
    try:
        return Path(process.environ().get("FLWR_HOME", ""))
    except psutil.Error:
        return None
