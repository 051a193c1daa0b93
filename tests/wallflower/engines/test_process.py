from __future__ import annotations

import asyncio
import sys
import tomllib
from pathlib import Path

import psutil
import pytest

from wallflower.engines import process as flower_process
from wallflower.engines.process import (
    FlowerRun,
    FlowerSite,
    find_program,
    flower_environment,
    flwr_run,
    run_status,
    simulation_superlink,
    stop_tree,
    write_connection,
)
from wallflower.protocol.errors import UnavailableError


def script(folder: Path, name: str, text: str) -> None:
    """Put a program of that name in place of Flower's."""
    path = folder / name
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o755)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder whose programs are found before Flower's."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setattr(flower_process, "find_program", lambda name: str(folder / name))
    return folder


def site(home: Path) -> FlowerSite:
    return FlowerSite(flower_environment(home, {}))


def test_flowers_programs_are_found_beside_this_python() -> None:
    assert Path(find_program("flwr")).parent == Path(sys.executable).parent


def test_a_missing_program_is_named_with_what_to_do() -> None:
    with pytest.raises(UnavailableError, match=r'"flwr-nonesuch" .*install Wallflower'):
        find_program("flwr-nonesuch")


def test_the_connection_file_is_what_flower_reads(tmp_path: Path) -> None:
    write_connection(tmp_path, "127.0.0.1:4711", ["insecure = true"])
    assert tomllib.loads((tmp_path / "config.toml").read_text()) == {
        "superlink": {
            "default": "wallflower",
            "wallflower": {"address": "127.0.0.1:4711", "insecure": True},
        }
    }


def test_flower_gets_its_own_home_and_stays_quiet(tmp_path: Path) -> None:
    environment = flower_environment(tmp_path, {"RAY_TMPDIR": "/tmp/r"})
    assert environment["FLWR_HOME"] == str(tmp_path)
    assert environment["RAY_TMPDIR"] == "/tmp/r"
    assert environment["FLWR_TELEMETRY_ENABLED"] == "0"
    assert environment["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] == "1"


async def test_stopping_a_child_stops_its_children_also_deaf_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flower_process, "_STOP_TIMEOUT_S", 0.5)
    deaf = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    parent = (
        "import subprocess,sys,time\n"
        f"c = subprocess.Popen([sys.executable, '-c', {deaf + 'time.sleep(600)'!r}])\n"
        "print(c.pid, flush=True); time.sleep(600)"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", parent, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    grandchild = psutil.Process(int(await process.stdout.readline()))
    await stop_tree(process)
    assert process.returncode is not None
    async with asyncio.timeout(60):  # a loaded machine takes its time over a kill
        while not ended(grandchild):  # noqa: ASYNC110 (another process, no event)
            await asyncio.sleep(0.05)


def ended(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


async def test_a_superlink_that_ends_at_once_is_reported_with_its_log(
    programs: Path, tmp_path: Path
) -> None:
    script(programs, "flower-superlink", "raise SystemExit(3)")
    with pytest.raises(UnavailableError, match=r"exit code 3; see .*superlink\.log"):
        async with simulation_superlink(tmp_path):
            pass


async def test_a_run_is_judged_by_its_status_not_by_the_exit_code(
    programs: Path, tmp_path: Path
) -> None:
    script(
        programs,
        "flwr",
        "import sys\n"
        "if sys.argv[1] == 'run': print('Successfully started run 77')\n"
        """else: print('notice', '{"runs": [{"status": "finished:failed"}]}')\n""",
    )
    lines: list[str] = []
    run = await flwr_run(
        site(tmp_path), tmp_path, tmp_path / "c.toml", on_line=lines.append
    )
    assert run == FlowerRun("77", "finished:failed")
    assert not run.completed
    assert lines == ["Successfully started run 77"]


async def test_an_app_that_flower_refuses_is_reported_by_its_last_line(
    programs: Path, tmp_path: Path
) -> None:
    script(programs, "flwr", "print('Error: pyproject.toml is bad'); exit(1)")
    with pytest.raises(UnavailableError, match=r"pyproject\.toml is bad"):
        await flwr_run(site(tmp_path), tmp_path, tmp_path / "c.toml")


async def test_a_run_that_is_not_listed_has_an_unknown_status(
    programs: Path, tmp_path: Path
) -> None:
    script(programs, "flwr", "print('no SuperLink here')")
    assert await run_status(site(tmp_path), "77") == "unknown"


async def test_cancelling_stops_the_run_at_flower(
    programs: Path, tmp_path: Path
) -> None:
    script(
        programs,
        "flwr",
        "import sys, time, pathlib\n"
        "if sys.argv[1] == 'run':\n"
        "    print('Successfully started run 77', flush=True); time.sleep(600)\n"
        f"pathlib.Path({str(tmp_path / 'said')!r}).write_text(' '.join(sys.argv[1:]))",
    )
    started = asyncio.Event()
    task = asyncio.create_task(
        flwr_run(
            site(tmp_path),
            tmp_path,
            tmp_path / "c.toml",
            on_line=lambda line: started.set(),
        )
    )
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (tmp_path / "said").read_text() == "stop 77 wallflower"
