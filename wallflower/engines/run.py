"""Start a run or go on with one: run directory, engine, view, and a clean way out."""

from __future__ import annotations

import asyncio
import datetime
import secrets
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from wallflower.engines.registry import Engine, EngineJob, engine_check, engine_named
from wallflower.protocol.errors import (
    ConfigError,
    InputError,
    JournalError,
    UnavailableError,
    WallflowerError,
)
from wallflower.protocol.rewards.seeded import TEST_MODE
from wallflower.results.live import RunView
from wallflower.results.result import RunResult, read_result
from wallflower.strategy.bandit.setup import policy_for
from wallflower.strategy.config import ExperimentConfig, load_config
from wallflower.strategy.record.journal import Journal
from wallflower.strategy.record.store import FILE_NAME

RUNS = Path("runs")
INTERRUPTED = 130


Options = tuple[tuple[str, str], ...]


def engine_options(words: Sequence[str] | None) -> Options:
    """Read ``KEY=VALUE`` words for an engine."""
    for word in words or ():
        if not word.partition("=")[0] or "=" not in word:
            raise InputError("option", f'"{word}"', "KEY=VALUE")
    pairs = [word.partition("=") for word in words or ()]
    return tuple((key, value) for key, _, value in pairs)


def start_run(
    experiment: Path, engine: str, run_dir: Path | None, options: Options = ()
) -> RunResult:
    """Begin a run; nothing is written before everything that can be checked is."""
    config = load_config(experiment)
    engine_named(engine)
    try:
        config.mechanism()
        policy = policy_for(config)
        needed = sum(wish.size for wish in policy.wishes())
        if engine != "deployment" and config.nodes.population < needed:
            raise InputError(
                "nodes",
                f"{config.nodes.population} users in all",
                f"at least {needed}, which the first batch asks",
            )
        engine_check(engine)(config)
    except ConfigError:
        raise
    except InputError as error:
        raise ConfigError(str(experiment), str(error)) from None
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%d-%H%M%S")
    new_id = f"{config.experiment.name}-{stamp}-{secrets.token_hex(2)}"
    directory = RUNS / new_id if run_dir is None else run_dir
    run_id = new_id if run_dir is None else f"{run_dir.name}-{secrets.token_hex(4)}"
    Journal.create(directory, run_id, config, engine).close()
    return _carry_out(directory, config, engine, run_id, options)


def resume_run(run: str, options: Options = ()) -> RunResult:
    """Go on with a run from its last finished round."""
    directory = find_run(run)
    with Journal.read(directory) as journal:
        result = read_result(journal)
    if result.finished is not None:
        sys.stderr.write(f"{directory} is finished already\n")
        return result
    engine_check(result.engine)(result.config)
    return _carry_out(directory, result.config, result.engine, result.run_id, options)


def find_run(run: str) -> Path:
    """Find a run by its directory, or by its id below ``runs/``."""
    for directory in (Path(run), RUNS / run):
        if (directory / FILE_NAME).is_file():
            return directory
    raise JournalError(f"no run {run}: neither {run} nor {RUNS / run} has a journal")


def _carry_out(
    directory: Path,
    config: ExperimentConfig,
    engine: str,
    run_id: str,
    options: Options,
) -> RunResult:
    if config.test_mode:
        sys.stderr.write(f"{TEST_MODE}\n")
    with RunView(config.experiment.arms) as view:
        job = EngineJob(config, directory, run_id, view.listen, options)
        try:
            asyncio.run(_until_told(engine_named(engine), job))
        except (KeyboardInterrupt, asyncio.CancelledError):
            raise InterruptedRun(directory) from None
        except WallflowerError:
            sys.stderr.write(f"to go on: wallflower resume {directory}\n")
            raise
    with Journal.read(directory) as journal:
        result = read_result(journal)
    if result.finished is None:
        raise UnavailableError(
            f"engine {engine} ended, but the journal in {directory} is not finished: "
            "its server wrote elsewhere (another host, or another mount?). Look at "
            f"`wallflower status {directory}`, then `wallflower resume {directory}`"
        )
    return result


async def _until_told(engine: Engine, job: EngineJob) -> None:
    """Run an engine; SIGTERM (systemd, Kubernetes) ends it as Ctrl-C does."""
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        await engine(job)
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


class InterruptedRun(WallflowerError):  # noqa: N818 (not a fault: the operator's wish)
    """Ctrl-C: the run waits to be resumed."""

    exit_code = INTERRUPTED

    def __init__(self, directory: Path) -> None:
        super().__init__(
            "interrupted; finished rounds are kept, the cohorts under way are void. "
            f"To go on: wallflower resume {directory}"
        )
