"""The engines that run on Flower: ``simulation`` and ``deployment``, by `flwr run`.

The ServerApp runs in a process of Flower's. It gets the experiment and the run
directory by the run config, writes journal and events there, and leaves a note when it
fails. Here the events become the live view and the note becomes the error.

``simulation`` starts one SuperLink per run, on a free port of loopback, with its own
FLWR_HOME in the run directory. Ray starts as many actors as there are processors
(option ``processors``). `flwr run .` against any SuperLink runs the same app.

``deployment`` submits to a SuperLink and its SuperNodes. Its options are
``connection``, a connection of the Flower config (``$FLWR_HOME/config.toml``), or
``address`` with ``root-certificates`` (a file) for a SuperLink without one. The
ServerApp opens the gRPC server (``[transport]``) and must reach the run directory.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import logging
import os
import re
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from wallflower.clients.rewards.local import FUNCTION_FAILED
from wallflower.engines.population import (
    agreed_policy,
    check_known_people,
    check_rewards,
    hosted_window,
)
from wallflower.engines.process import (
    CONNECTION,
    FlowerRun,
    FlowerSite,
    flower_environment,
    flwr_run,
    simulation_superlink,
    write_connection,
)
from wallflower.engines.ray_start import simulation_error
from wallflower.engines.registry import EngineJob, EngineSpec
from wallflower.protocol import errors
from wallflower.protocol.errors import (
    InputError,
    UnavailableError,
    WallflowerError,
    first_error,
    optional_module,
)
from wallflower.protocol.numbers import whole
from wallflower.results.run_folder import check_hosted_ledger
from wallflower.strategy.config import ExperimentConfig
from wallflower.strategy.flower_config import FAILURE_FILE
from wallflower.strategy.run.run_state import round_after_retirement
from wallflower.strategy.store import event_log
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.store.run_store import is_held, requests_of
from wallflower.strategy.transport.grpc.host import enrolment_key, grpc_certificates

_log = logging.getLogger(__name__)
LOG_FILE = "flower.log"
_SIMULATION_FAILED = "Exit Code: 700"  # Flower's, for any failure of its engine
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def app_folder() -> Path:
    """Find the Flower app that the installed package carries."""
    return Path(__file__).resolve().parent.parent / "app"


async def carry(
    job: EngineJob,
    site: FlowerSite,
    engine: str,
    federation: Mapping[str, int | float] | None = None,
) -> None:
    """Submit the app and follow it to its end; raises what ended it early."""
    run_config = _run_config(job, engine)
    (job.run_dir / FAILURE_FILE).unlink(missing_ok=True)
    over = asyncio.Event()
    start = event_log.size(job.run_dir)
    tail: deque[str] = deque(maxlen=20)
    shown: set[str] = set()
    simulation_failed = False
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_relay(job, over, start))
            try:
                with (job.run_dir / LOG_FILE).open("a", 1, encoding="utf-8") as log:

                    def keep(line: str) -> None:
                        nonlocal simulation_failed
                        plain = _COLOURS.sub("", line)
                        log.write(plain + "\n")
                        tail.append(plain)
                        simulation_failed |= _SIMULATION_FAILED in plain
                        _show_failure(plain, shown)

                    async with _while_server_lives(job, engine):
                        run = await flwr_run(
                            site, app_folder(), run_config, federation, on_line=keep
                        )
            finally:
                over.set()
    except BaseExceptionGroup as failures:
        raise first_error(failures) from None
    _raise_failure(job, run, tail, simulation_failed=simulation_failed)


def _show_failure(line: str, shown: set[str]) -> None:
    """Show once what simulated nodes log of their reward function's failures."""
    _, mark, rest = line.partition(FUNCTION_FAILED)
    if mark and rest not in shown:
        shown.add(rest)
        _log.warning("%s%s", mark, rest)


def _run_config(job: EngineJob, engine: str) -> Path:
    """Write the run config that the app gets."""
    values = {
        "config": job.config.canonical(),
        "run-dir": str(job.run_dir.resolve()),
        "engine": engine,
    }
    path = job.run_dir / "flower" / "run-config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    # JSON's strings are TOML's basic strings.
    lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


async def _relay(job: EngineJob, over: asyncio.Event, start: int) -> None:
    async for event in event_log.follow(job.run_dir, over, offset=start):
        await job.listen(event)


def _raise_failure(
    job: EngineJob, run: FlowerRun, tail: deque[str], *, simulation_failed: bool
) -> None:
    """Raise the error that the ServerApp noted, or that Flower knows of, if any."""
    note = job.run_dir / FAILURE_FILE
    if note.exists():
        raise _rebuild_error(json.loads(note.read_text(encoding="utf-8")))
    if not run.completed:
        if simulation_failed:
            raise _simulation_error(job)
        last = next((line for line in reversed(tail) if "ERROR" in line), "")
        raise UnavailableError(
            f"Flower's run {run.run_id} ended as {run.status}; see "
            f"{job.run_dir / LOG_FILE} {last.strip()}".rstrip()
        )


def _simulation_error(job: EngineJob) -> UnavailableError:
    return simulation_error(
        job.run_dir, job.run_dir / LOG_FILE, has_asked=_has_asked(job)
    )


def _has_asked(job: EngineJob) -> bool:
    with Journal.read(job.run_dir) as journal:
        return bool(journal.cohorts())


def _rebuild_error(note: Mapping[str, str | int]) -> WallflowerError:
    """Return the error that ended the ServerApp, with its exit code.

    Its class may live in a module that only the ServerApp imports.
    """
    found = getattr(errors, str(note["error"]), WallflowerError)
    kind = found if issubclass(found, WallflowerError) else WallflowerError
    error: WallflowerError = kind.__new__(kind)
    Exception.__init__(error, str(note["text"]))
    error.exit_code = int(note["exit"])
    return error


_LOOK_S = 0.5
# A server that ends in order frees the lock before it leaves its last note.
_GRACE_S = 5.0


@asynccontextmanager
async def _while_server_lives(job: EngineJob, engine: str) -> AsyncIterator[None]:
    """Run the block; raise UnavailableError if the run's server dies meanwhile."""
    inside = asyncio.current_task()
    assert inside is not None
    died = False

    async def watch() -> None:
        nonlocal died
        await _wait_for_death(job.run_dir)
        died = True
        inside.cancel()

    watching = asyncio.create_task(watch())
    try:
        yield
    except asyncio.CancelledError:
        if died and inside.uncancel() == 0:
            raise _death_error(job, engine) from None
        raise
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching


def _death_error(job: EngineJob, engine: str) -> UnavailableError:
    # A simulated ServerApp shares its process with Ray's driver, which ends the process
    # when it does not reach Ray.
    if engine == "simulation" and not _has_asked(job):
        return _simulation_error(job)
    return UnavailableError(
        f"the ServerApp of {job.run_dir} died without a message (was it killed?); "
        "finished rounds are kept"
    )


async def _wait_for_death(run_dir: Path) -> None:
    """Return when a server held the lock, is gone, and left no note about its end."""
    while not _is_served(run_dir):  # noqa: ASYNC110 (a lock sends no notice)
        await asyncio.sleep(_LOOK_S)
    while True:
        await asyncio.sleep(_LOOK_S)
        if not _is_served(run_dir):
            await asyncio.sleep(_GRACE_S)
            if _is_served(run_dir):
                continue
            if not await asyncio.to_thread(_ended_in_order, run_dir):
                return
            await asyncio.Event().wait()  # it ended in order: Flower reports it


def _is_served(run_dir: Path) -> bool:
    with contextlib.suppress(WallflowerError):
        return is_held(run_dir)
    return True  # a lock that cannot be opened shows nothing


def _ended_in_order(run_dir: Path) -> bool:
    """Check whether a server that is gone ended in order."""
    if (run_dir / FAILURE_FILE).exists() or requests_of(run_dir).is_pause_requested():
        return True
    with contextlib.suppress(WallflowerError), Journal.read(run_dir) as journal:
        last = round_after_retirement(journal)
        return last is not None and last.finished is not None
    return True  # an unreadable record is reported elsewhere


def check_simulation(config: ExperimentConfig) -> None:
    """Refuse what would fail later: transport, policy file, reward source."""
    check_known_people(config, "simulation")
    kind = config.transport.kind
    if kind not in ("auto", "flower"):
        raise InputError(
            "transport.kind", f'"{kind}"', "auto or flower on engine simulation"
        )
    window_s = hosted_window(config).seconds
    if window_s is not None:
        raise InputError(
            "rewards.window-s",
            f"{window_s:g}",
            "none on engine simulation, whose few workers would each hold one node for "
            "all of it; rehearse with engine local",
        )
    agreed_policy(config)
    check_rewards(config)
    if importlib.util.find_spec("ray") is None:
        optional_module("ray", "simulation")


async def run_simulation(job: EngineJob) -> None:
    """Drive a job to its end; see `wallflower.engines.registry.Engine`."""
    check_simulation(job.config)
    with Journal.read(job.run_dir) as journal:
        check_hosted_ledger(journal)
    options = dict(job.options)
    processors = options.get("processors", str(os.cpu_count() or 1))
    federation = {
        "num-supernodes": job.config.nodes.count,
        "client-resources-num-cpus": 1,
        "init-args-num-cpus": whole("processors", processors, at_least=1),
    }
    async with simulation_superlink(job.run_dir) as site:
        await carry(job, site, "simulation", federation)


def check_deployment(config: ExperimentConfig) -> None:
    """Refuse what would fail later: transport, the gRPC server's files."""
    check_known_people(config, "deployment")
    kind = config.transport.kind
    if kind not in ("auto", "grpc", "flower"):
        raise InputError(
            "transport.kind", f'"{kind}"', "auto, grpc or flower on engine deployment"
        )
    enrolment_key(config)
    if kind != "flower":
        grpc_certificates(config.transport)


async def run_deployment(job: EngineJob) -> None:
    """Drive a job to its end; see `wallflower.engines.registry.Engine`."""
    check_deployment(job.config)
    await carry(job, _find_site(job), "deployment")


def _find_site(job: EngineJob) -> FlowerSite:
    """Find the SuperLink: by a connection's name, or by its address."""
    options = dict(job.options)
    if "address" not in options:
        home = Path(os.environ.get("FLWR_HOME") or Path.home() / ".flwr")
        return FlowerSite(flower_environment(home, {}), options.get("connection", ""))
    if "connection" in options:
        raise InputError("options", "connection and address", "one of the two")
    home = job.run_dir / "flower"
    certificates = options.get("root-certificates")
    if certificates is None:
        lines = ["insecure = true"]
    else:
        path = Path(certificates).resolve()
        if not path.is_file():
            raise InputError("root-certificates", certificates, "a file")
        lines = [f'root-certificates = "{path}"']
    write_connection(home, options["address"], lines)
    return FlowerSite(flower_environment(home, {}), CONNECTION)


SIMULATION = EngineSpec(run_simulation, check_simulation, ("processors",))
DEPLOYMENT = EngineSpec(
    run_deployment,
    check_deployment,
    ("connection", "address", "root-certificates"),
)
