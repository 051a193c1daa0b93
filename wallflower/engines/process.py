"""Flower's own programs as child processes: started, watched and stopped by pid.

`flwr run` exits 0 even when the run fails, Flower's managed local SuperLink keeps
running after the run, and all runs of a user share one port and one ``~/.flwr``. So a
simulation of ours gets its own SuperLink on a free port with its own FLWR_HOME below
the run directory, the run's status is read from ``flwr ls``, and everything that was
started is stopped: first by SIGTERM, then by SIGKILL.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from wallflower.engines.ray_start import (
    keep_ray_logs,
    ray_environment,
    reserved_port,
)
from wallflower.protocol.errors import UnavailableError

CONNECTION = "wallflower"  # the name of our connection in Flower's config.toml
_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 10.0
_STARTED = re.compile(r"Successfully started run (\d+)")


@dataclass(frozen=True, slots=True)
class FlowerSite:
    """Where Flower's command line finds its files and its SuperLink.

    A SuperLink of our `own` is stopped with all its runs; on another's, runs are.
    """

    environment: Mapping[str, str]
    connection: str = CONNECTION
    own: bool = False


def find_program(name: str) -> str:
    """Find one of Flower's programs beside this Python, else on the path."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise UnavailableError(
            f'"{name}" is not installed beside {sys.executable}; '
            "install Wallflower with its dependencies"
        )
    return found


def flower_environment(home: Path, extra: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of Flower's programs: quiet, offline, own home."""
    return {
        **os.environ,
        # Flower starts its own helpers by name: they must be this Python's.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "PYTHONUNBUFFERED": "1",
        **extra,
    }


def write_connection(home: Path, address: str, lines: Sequence[str]) -> None:
    """Write Flower's config.toml with one connection, ours."""
    home.mkdir(parents=True, exist_ok=True)
    text = [
        "[superlink]",
        f'default = "{CONNECTION}"',
        "",
        f"[superlink.{CONNECTION}]",
        f'address = "{address}"',
        *lines,
    ]
    (home / "config.toml").write_text("\n".join(text) + "\n", encoding="utf-8")


@asynccontextmanager
async def simulation_superlink(directory: Path) -> AsyncIterator[FlowerSite]:
    """Run a SuperLink for one simulation; on leaving, nothing of it is left."""
    home = directory / "flower"
    home.mkdir(parents=True, exist_ok=True)
    # Ray puts sockets below its folder, and a socket's path has at most 107 bytes.
    scratch = Path(tempfile.mkdtemp(prefix="wf-ray-"))
    try:
        with reserved_port() as port, reserved_port() as ray_port:
            write_connection(home, f"127.0.0.1:{port}", ["insecure = true"])
            ray = {"RAY_TMPDIR": str(scratch), **ray_environment(ray_port)}
            async with _superlink(port, home, flower_environment(home, ray)) as site:
                yield site
    except BaseException:
        keep_ray_logs(scratch, home)
        raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@asynccontextmanager
async def _superlink(
    port: int, home: Path, environment: Mapping[str, str]
) -> AsyncIterator[FlowerSite]:
    log_path = home / "superlink.log"
    with log_path.open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *(find_program("flower-superlink"), "--insecure", "--simulation"),
            *("--isolation", "subprocess", "--host", "127.0.0.1"),
            *("--port", str(port), "--disable-runtime-dependency-installation"),
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C is ours to handle, not the child's
        )
    try:
        await _wait_until_listening(process, port, log_path)
        yield FlowerSite(environment, own=True)
    finally:
        await stop_tree(process)


async def _wait_until_listening(
    process: asyncio.subprocess.Process, port: int, log_path: Path
) -> None:
    """Wait until the SuperLink accepts connections; raise UnavailableError if not."""
    try:
        async with asyncio.timeout(_START_TIMEOUT_S):
            while process.returncode is None:
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    return
                await asyncio.sleep(0.05)
    except TimeoutError:
        reason = f"did not listen within {_START_TIMEOUT_S:.0f} s"
    else:
        reason = f"ended with exit code {process.returncode}"
    raise UnavailableError(f"flower-superlink {reason}; see {log_path}")


async def stop_tree(process: asyncio.subprocess.Process) -> None:
    """Stop a child and all its descendants: by SIGTERM first, then by SIGKILL."""
    try:
        parent = psutil.Process(process.pid)
        below = parent.children(recursive=True)
    except psutil.NoSuchProcess:
        parent, below = None, []
    for member in [*below, *([parent] if parent else [])]:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.terminate()
    # Our own child is asyncio's to wait for; psutil would take its exit code away.
    _, alive = await asyncio.to_thread(psutil.wait_procs, below, _STOP_TIMEOUT_S)
    for member in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
    await asyncio.to_thread(psutil.wait_procs, alive, _STOP_TIMEOUT_S)
    try:
        async with asyncio.timeout(_STOP_TIMEOUT_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


async def _start(
    site: FlowerSite, arguments: Sequence[str]
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        find_program("flwr"),
        *arguments,
        env=dict(site.environment),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,  # Ctrl-C is ours to handle, not the child's
        limit=2**20,  # one line of a log may be long
    )


async def flwr(site: FlowerSite, *arguments: str) -> tuple[int, str]:
    """Run one `flwr` command to its end; return its exit code and output."""
    process = await _start(site, arguments)
    try:
        output, _ = await process.communicate()
    except asyncio.CancelledError:
        await stop_tree(process)
        raise
    return process.returncode or 0, output.decode(errors="replace")


@dataclass(frozen=True, slots=True)
class FlowerRun:
    """A run that was submitted: Flower's id for it, and how it ended."""

    run_id: str
    status: str

    @property
    def completed(self) -> bool:
        """Whether Flower saw the ServerApp return normally."""
        return self.status == "finished:completed"


async def flwr_run(
    site: FlowerSite,
    app: Path,
    run_config: Path,
    federation: Mapping[str, int | float] | None = None,
    *,
    on_line: Callable[[str], None] = lambda line: None,
) -> FlowerRun:
    """Submit an app with `flwr run --stream` and stay until the run has ended.

    The command ends when the run does, and only then is Flower asked for the status.
    When this task is cancelled the run is stopped.

    Parameters
    ----------
    site : FlowerSite
        Where to submit.
    app : Path
        The folder with the app's pyproject.toml.
    run_config : Path
        A TOML file with the run config's values.
    federation : Mapping, optional
        What ``--federation-config`` says: nodes and resources of a simulation.
    on_line : Callable
        Gets every line that the command or the ServerApp writes.
    """
    # Without a name `flwr` takes the default connection of its config.
    name = [site.connection] if site.connection else []
    command = ["run", str(app), *name, "--stream", "-c", str(run_config)]
    if federation:
        pairs = " ".join(f"{key}={value}" for key, value in federation.items())
        command += ["--federation-config", pairs]
    process = await _start(site, command)
    assert process.stdout is not None
    run_id, last = "", ""
    try:
        async for raw in process.stdout:
            line = raw.decode(errors="replace").rstrip()
            if found := _STARTED.search(line):
                run_id = found.group(1)
            last = line.strip() or last
            on_line(line)
        await process.wait()
    except asyncio.CancelledError:
        await stop_tree(process)
        if run_id and not site.own:
            await flwr(site, "stop", run_id, *name)
        raise
    if not run_id:
        raise UnavailableError(f"`flwr run` did not start the app: {last}")
    return FlowerRun(run_id, await _wait_for_final_status(site, run_id))


async def _wait_for_final_status(site: FlowerSite, run_id: str) -> str:
    """Return the final status: the log may end a moment before the run does."""
    status = "unknown"
    for _ in range(10):
        status = await run_status(site, run_id)
        if status.startswith("finished"):
            break
        await asyncio.sleep(0.5)
    return status


async def run_status(site: FlowerSite, run_id: str) -> str:
    """Return the status that Flower has for a run, such as ``finished:completed``."""
    name = [site.connection] if site.connection else []
    _, output = await flwr(site, "ls", *name, "--run-id", run_id, "--format", "json")
    runs = _parse_json(output).get("runs") or []
    return str(runs[0].get("status", "unknown")) if runs else "unknown"


def _parse_json(output: str) -> dict[str, Any]:
    """Return the JSON object in a command's output, which may start with notices."""
    start = output.find("{")
    if start < 0:
        return {}
    try:
        value, _ = json.JSONDecoder().raw_decode(output[start:])
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
