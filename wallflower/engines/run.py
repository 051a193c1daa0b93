"""Start a run or resume one: run directory, engine, view, and a clean way out."""

from __future__ import annotations

import asyncio
import datetime
import secrets
import subprocess
import sys
import time
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from wallflower.engines.preflight import WARN, Preflight, preflight
from wallflower.engines.registry import EngineJob, check_options, find_engine
from wallflower.engines.stopping import (
    StopRequests,
    run_until_stopped,
    seconds_until,
)
from wallflower.protocol.errors import (
    ConfigError,
    InputError,
    LedgerMismatchError,
    UnavailableError,
    WallflowerError,
    command_on,
)
from wallflower.protocol.files.sections import one_of
from wallflower.protocol.rewards.seeded import TEST_MODE
from wallflower.results.live import RunView
from wallflower.results.result import read_result
from wallflower.results.run_folder import RUNS, advise, check_resumable, find_run
from wallflower.stated_experiment import Source, experiment_of
from wallflower.strategy.config import ExperimentConfig
from wallflower.strategy.own_loop import run_to_end
from wallflower.strategy.run.arriving.deck import end_seats
from wallflower.strategy.run.run_state import next_round
from wallflower.strategy.store.entries import Retirement
from wallflower.strategy.store.events import ignore
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.store.run_store import is_held, requests_of

_LAST_WORDS_S = 30.0


@contextmanager
def _page_beside(run_dir: Path) -> Iterator[str]:
    """Serve the page of a run while inside; gives its address.

    On leaving, whoever looks gets the last state before the page goes.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "wallflower", "watch", "--as-child", str(run_dir)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is the run's to handle
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        address = process.stdout.readline().strip()
        if not address:
            error = process.stderr.read().strip()
            raise UnavailableError(f"the page could not be opened: {error}")
        yield address
    finally:
        process.stdin.close()
        try:
            process.wait(_LAST_WORDS_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        process.stderr.close()


_LONGEST_REASON = 500
_LOOK_S = 0.25  # of a standby
Options = tuple[tuple[str, str], ...]


def engine_options(words: Sequence[str] | None) -> Options:
    """Read ``KEY=VALUE`` words for an engine."""
    for word in words or ():
        if not word.partition("=")[0] or "=" not in word:
            raise InputError("option", f'"{word}"', "KEY=VALUE")
    pairs = [word.partition("=") for word in words or ()]
    return tuple((key, value) for key, _, value in pairs)


def start_run(
    experiment: Source,
    engine: str,
    run_dir: Path | None,
    options: Options = (),
    until: str | None = None,
    *,
    page: bool = False,
) -> Path:
    """Begin a run and return its directory when it is over."""
    until_s = _seconds(until)
    job = found_run(experiment, engine, run_dir, options)
    return _carry_out(
        job.run_dir,
        job.config,
        engine,
        run_id=job.run_id,
        options=options,
        until_s=until_s,
        page=page,
    )


def found_run(
    experiment: Source, engine: str, run_dir: Path | None, options: Options = ()
) -> EngineJob:
    """Make the record of a new run; nobody is asked yet.

    Nothing is written before everything that can be checked is.
    """
    config = experiment_of(experiment)
    find_engine(engine)
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%d-%H%M%S")
    new_id = f"{config.experiment.name}-{stamp}-{secrets.token_hex(2)}"
    directory = RUNS / new_id if run_dir is None else run_dir
    run_id = (
        new_id
        if run_dir is None
        else f"{directory.resolve().name}-{secrets.token_hex(4)}"
    )
    check_options(engine, options)
    try:
        _preflight(Preflight(config, engine, directory, options))
    except ConfigError:
        raise
    except InputError as error:
        if isinstance(experiment, ExperimentConfig):
            raise
        raise ConfigError(str(experiment), str(error)) from None
    except KeyboardInterrupt:
        raise _StoppedRun(
            "interrupted; nobody was asked and nothing was written"
        ) from None
    Journal.create(directory, run_id, config, engine).close()
    return EngineJob(config, directory, run_id, ignore, options)


def resume_run(
    run: str,
    options: Options = (),
    until: str | None = None,
    *,
    page: bool = False,
    standby: bool = False,
) -> Path:
    """Go on with a run from its last finished round; return its directory.

    A `standby` makes ready and then waits until no other server works on the run.
    """
    directory, until_s = find_run(run), _seconds(until)
    with Journal.read(directory) as journal:
        check_resumable(journal)
        result = read_result(journal)
    if result.finished is not None:
        sys.stderr.write(f"{directory} is finished already\n")
        return directory
    _preflight(Preflight(result.config, result.engine, directory, options))
    while standby and is_held(directory):
        time.sleep(_LOOK_S)
    return _carry_out(
        directory,
        result.config,
        result.engine,
        run_id=result.run_id,
        options=options,
        until_s=until_s,
        page=page,
    )


def _preflight(asked: Preflight) -> None:
    """Find out what can be known to be wrong before anybody is invited."""
    lines = preflight(asked)
    for line in lines:
        if line.level == WARN:
            sys.stderr.write(f"{line.name}: {line.text}\n")
    for line in lines:
        if line.error is not None:
            raise line.error


def _carry_out(
    directory: Path,
    config: ExperimentConfig,
    engine: str,
    run_id: str,
    options: Options,
    until_s: float | None,
    page: bool,
) -> Path:
    if config.test_mode:
        sys.stderr.write(f"{TEST_MODE}\n")
    requests_of(directory).withdraw_pause()
    with ExitStack() as stack:
        if page:
            address = stack.enter_context(_page_beside(directory))
            sys.stderr.write(f"The page of this run: {address}\n")
        shown = RunView(config.experiment.arms, config.reward_range)
        view = stack.enter_context(shown)
        job = EngineJob(config, directory, run_id, view.listen, options)
        try:
            requests = StopRequests(job, view.say)
            work = run_until_stopped(find_engine(engine).run, job, requests, until_s)
            run_to_end(_say_waits(work, view), requests.stop_after_round)
        except (KeyboardInterrupt, asyncio.CancelledError):
            kept = "finished rounds are kept, the cohorts under way are void"
            if config.visitors is not None:
                kept = "rounds, seats and answers are kept"
            raise _StoppedRun(
                f"interrupted; {kept}. To go on: {command_on('resume', directory)}"
            ) from None
        except UnavailableError as error:
            if not isinstance(error, LedgerMismatchError):
                sys.stderr.write(f"{advise(directory)}\n")
            raise
    with Journal.read(directory) as journal:
        result = read_result(journal)
    if result.finished is None and requests_of(directory).is_pause_requested():
        raise _StoppedRun(
            f"paused after round {result.rounds}; nobody who was asked is lost. "
            f"To go on: {command_on('resume', directory)}"
        )
    if result.finished is None:
        first, then = command_on("status", directory), command_on("resume", directory)
        raise UnavailableError(
            f"engine {engine} ended, but the journal in {directory} is not finished: "
            "its server wrote elsewhere (another host, or another mount?). Look at "
            f"`{first}`, then `{then}`"
        )
    return directory


async def _say_waits(work: Coroutine[None, None, None], view: RunView) -> None:
    """Do the work; say what it waits for where nothing else is said for long."""
    signs = asyncio.create_task(view.break_silence())
    try:
        await work
    finally:
        signs.cancel()


def pause_run(run: str) -> Path:
    """Ask the server that works on a run to stop after the round under way."""
    directory = find_run(run)
    if not is_held(directory):
        raise UnavailableError(
            f"no server works on {directory}: there is nothing to pause"
        )
    requests_of(directory).request_pause()
    return directory


def retire_arm(run: str, name: str, reason: str) -> str:
    """Take an arm out of a run by hand, at once or when its round is over; say which.

    Nothing is written where it cannot be done.
    """
    directory, words = find_run(run), " ".join(reason.split())
    if not words or not words.isprintable() or len(words) > _LONGEST_REASON:
        allowed = (
            f"1 to {_LONGEST_REASON} printable characters: they stay in the record"
        )
        raise InputError("reason", f'"{words[:40]}"', allowed)
    with Journal.read(directory) as journal:
        journal.check_whole()
        arm = _in_the_race(journal, name)
    if is_held(directory):  # whoever works on it is asked
        requests_of(directory).request_retirement(arm, words)
        return f'"{name}" is retired when the round under way is over'
    with Journal.resume(directory) as journal:
        number, policy = next_round(journal)
        policy.retire(arm, words)
        journal.retire(Retirement(arm, number, words))
        if policy.finished is not None:
            end_seats(journal, policy)
            journal.void_open("server-stopped")
    if policy.finished is not None:
        return f'"{name}" is retired; one arm is left and the run is over'
    return f'"{name}" is retired, from round {number} on; {advise(directory)}'


def _in_the_race(journal: Journal, name: str) -> int:
    """Find an arm by its name; one that cannot be retired is refused."""
    arms = journal.config.experiment.arms
    one_of("arm", name, arms)
    _, policy = next_round(journal)
    view = policy.arms()[arms.index(name)]
    if view.retired:
        raise InputError("arm", f'"{name}"', f"another: retired already ({view.note})")
    if policy.finished is not None:
        raise _RunOverError(
            f"{journal.run_dir} is over: no arm can be retired any more"
        )
    if not view.active:
        allowed = f"one in the race: it is out since round {view.eliminated_in}"
        raise InputError("arm", f'"{name}"', allowed)
    return view.arm


def _seconds(until: str | None) -> float | None:
    """Return the seconds until then, and say which day is meant."""
    if until is None:
        return None
    now = _read_clock()
    wait_s = seconds_until(until, now)
    then = now + datetime.timedelta(seconds=wait_s)
    day = "" if then.date() == now.date() else " tomorrow"
    sys.stderr.write(f"No round begins after {until}{day}.\n")
    return wait_s


def _read_clock() -> datetime.datetime:
    return datetime.datetime.now().astimezone()


class _RunOverError(WallflowerError):
    """What is asked for can only be done while arms are in the race."""

    exit_code = 2


class _StoppedRun(WallflowerError):  # noqa: N818 (not a fault: the operator's request)
    """Ctrl-C, or a pause: whatever was finished is kept."""

    exit_code = 130
