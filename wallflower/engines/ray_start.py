"""What Ray, which carries Flower's simulation, needs to start; what to say if it fails.

Ray's first process listens on a port. If Ray chooses it, Ray waits 30 seconds and no
longer for the choice, which is too short on a busy machine. If the port is given and
something else takes it first, Ray's driver waits and then ends its whole process
without a word to Flower. So the port is given and kept from everybody else.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wallflower.protocol.errors import UnavailableError

LOGS_FOLDER = "ray-logs"
# Ray's own limits, 5 to 100 s, are too short on a busy machine.
_START_S = 120


@contextmanager
def reserved_port() -> Iterator[int]:
    """Keep a TCP port for a server that another process is about to start.

    The system may give a port that was only looked up to any connection before the
    server gets it. Linux keeps a port for the socket that has it, and lets a server
    listen there as long as both allow the reuse of addresses and the first does not
    listen. Other systems do not let the server in, so there the port is looked up only.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("", 0))
        port: int = holder.getsockname()[1]
        if sys.platform != "linux":
            holder.close()
        yield port


def ray_environment(port: int) -> dict[str, str]:
    """Return Ray's settings: a port of its own, and patience on a busy machine."""
    return {
        "RAY_GCS_SERVER_PORT": str(port),
        "RAY_py_gcs_connect_timeout_s": str(_START_S),
        "RAY_gcs_rpc_server_reconnect_timeout_s": str(_START_S),
        "RAY_agent_register_timeout_ms": str(1000 * _START_S),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # silences a warning per actor
    }


def keep_ray_logs(scratch: Path, home: Path) -> None:
    """Copy what Ray logged below its scratch folder, which is about to be removed."""
    logs = scratch / "ray" / "session_latest" / "logs"
    if logs.is_dir():
        with contextlib.suppress(OSError, shutil.Error):  # Ray may still write there
            shutil.copytree(logs, home / LOGS_FOLDER, dirs_exist_ok=True)


def simulation_error(
    run_dir: Path, log_file: Path, *, has_asked: bool
) -> UnavailableError:
    """Return the error of a simulation of which Flower says only that it failed."""
    if has_asked:
        happened = "failed during the run; finished rounds are kept"
    else:
        happened = "failed because Ray did not start or was killed; nobody was asked"
    return UnavailableError(
        f"Flower's simulation {happened}. The machine may lack memory or processor "
        f"time. See {log_file} and {run_dir / 'flower' / LOGS_FOLDER}. Try `wallflower "
        f"resume {run_dir}`, or run the experiment with --engine local: it needs no Ray"
    )
