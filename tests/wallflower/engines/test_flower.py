from __future__ import annotations

import dataclasses
import json
import sys
import tomllib
from pathlib import Path

import pytest

from wallflower.engines import flower as flower_engines
from wallflower.engines import process as flower_process
from wallflower.engines.flower import app_folder, carry
from wallflower.engines.process import FlowerSite, flower_environment
from wallflower.engines.registry import EngineJob, check_options, find_engine
from wallflower.protocol.errors import (
    ConfigError,
    InputError,
    JournalError,
    UnavailableError,
    WallflowerError,
)
from wallflower.protocol.files.sections import NodeSettings, RewardSettings
from wallflower.strategy.config import ExperimentConfig, ExperimentSettings
from wallflower.strategy.run.meeting import TermsRefusedError
from wallflower.strategy.run.recruiting import NodesMissingError
from wallflower.strategy.sections import TransportSettings
from wallflower.strategy.store import events
from wallflower.strategy.store.event_log import encode
from wallflower.strategy.store.journal import Journal

STARTED = events.RunStarted("r", ("a", "b"), 3, 30, 30, 0)
EXPERIMENT = ExperimentConfig(
    experiment=ExperimentSettings("test", ("a", "b")),
    nodes=NodeSettings(3, 10),
    rewards=RewardSettings(means=(0.1, 0.9)),
)


class Launch:
    """A job whose `flwr` is a script: what the launcher makes of what Flower does."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.run_dir = folder / "run"
        self.run_dir.mkdir()
        self.heard: list[events.Event] = []
        self._folder = folder
        monkeypatch.setattr(
            flower_process, "find_program", lambda name: str(folder / name)
        )

    def flower_does(self, during_run: str, status: str) -> None:
        path = self._folder / "flwr"
        path.write_text(
            f"#!{sys.executable}\nimport pathlib, sys\n"
            f"run = pathlib.Path({str(self.run_dir)!r})\n"
            "if sys.argv[1] == 'run':\n"
            "    print('Successfully started run 77', flush=True)\n"
            f"    {during_run}\n"
            "elif sys.argv[1] == 'ls':\n"
            f"    print({json.dumps({'runs': [{'status': status}]})!r})\n"
        )
        path.chmod(0o755)

    async def carry(self, engine: str = "simulation") -> None:
        async def listen(event: events.Event) -> None:
            self.heard.append(event)

        job = EngineJob(EXPERIMENT, self.run_dir, "r", listen)
        site = FlowerSite(flower_environment(self.run_dir / "flower", {}))
        await carry(job, site, engine, {"num-supernodes": 3})


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Launch:
    return Launch(tmp_path, monkeypatch)


async def test_events_of_the_server_app_reach_the_listener(launch: Launch) -> None:
    line = encode(STARTED) + "\n"
    launch.flower_does(
        f"(run / 'events.jsonl').write_text({line!r})", "finished:completed"
    )
    await launch.carry()
    assert launch.heard == [STARTED]


async def test_a_simulation_whose_ray_cannot_start_ends_with_one_sentence(
    launch: Launch,
) -> None:
    Journal.create(launch.run_dir, "r", EXPERIMENT, "simulation").close()
    launch.flower_does("print('ERROR: Exit Code: 700')", "finished:failed")
    with pytest.raises(UnavailableError, match="Ray did not start") as caught:
        await launch.carry()
    assert "nobody was asked" in str(caught.value)
    assert "--engine local" in str(caught.value)
    assert "700" not in str(caught.value)


async def test_a_simulation_that_fails_later_says_that_rounds_are_kept(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flower_engines, "_has_asked", lambda _: True)
    launch.flower_does("print('ERROR: Exit Code: 700')", "finished:failed")
    with pytest.raises(UnavailableError, match="finished rounds are kept") as caught:
        await launch.carry()
    assert "700" not in str(caught.value)


async def test_the_app_gets_experiment_run_directory_and_engine(
    launch: Launch,
) -> None:
    launch.flower_does("pass", "finished:completed")
    await launch.carry()
    path = launch.run_dir / "flower" / "run-config.toml"
    assert tomllib.loads(path.read_text()) == {
        "config": EXPERIMENT.canonical(),
        "run-dir": str(launch.run_dir),
        "engine": "simulation",
    }
    known = tomllib.loads((app_folder() / "pyproject.toml").read_text())
    assert (
        tomllib.loads(path.read_text()).keys()
        <= known["tool"]["flwr"]["app"]["config"].keys()
    )


async def test_a_run_that_failed_at_flower_is_an_error_although_flwr_exits_0(
    launch: Launch,
) -> None:
    launch.flower_does("print('\\x1b[91mERROR\\x1b[0m: it broke')", "finished:failed")
    with pytest.raises(UnavailableError, match=r"finished:failed.*it broke"):
        await launch.carry()
    assert "ERROR: it broke" in (launch.run_dir / "flower.log").read_text()


@pytest.mark.parametrize(
    ("name", "kind"),
    [("ConfigError", ConfigError), ("JournalError", JournalError)],
)
async def test_what_the_server_app_noted_is_raised_again(
    name: str, kind: type[Exception], launch: Launch
) -> None:
    note = json.dumps({"error": name, "text": "nodes: too few", "exit": 2})
    launch.flower_does(
        f"(run / 'failure.json').write_text({note!r})", "finished:failed"
    )
    with pytest.raises(kind, match="nodes: too few"):
        await launch.carry()


@pytest.mark.parametrize("kind", [TermsRefusedError, NodesMissingError])
async def test_an_error_of_the_server_app_alone_keeps_its_exit_code(
    kind: type[WallflowerError], launch: Launch
) -> None:
    note = json.dumps({"error": kind.__name__, "text": "no", "exit": kind.exit_code})
    launch.flower_does(
        f"(run / 'failure.json').write_text({note!r})", "finished:failed"
    )
    with pytest.raises(WallflowerError, match="no") as error:
        await launch.carry()
    assert error.value.exit_code == 4


async def test_the_note_of_an_earlier_attempt_is_forgotten(launch: Launch) -> None:
    note = {"error": "InputError", "text": "old", "exit": 2}
    (launch.run_dir / "failure.json").write_text(json.dumps(note))
    launch.flower_does("pass", "finished:completed")
    await launch.carry()
    assert not (launch.run_dir / "failure.json").exists()


def test_the_app_is_found_in_the_installed_package() -> None:
    assert (app_folder() / "wallflower_app" / "server.py").is_file()


@pytest.mark.parametrize(
    ("engine", "kind"), [("simulation", "grpc"), ("deployment", "memory")]
)
def test_a_transport_that_an_engine_cannot_carry_is_refused(
    engine: str, kind: str
) -> None:
    config = dataclasses.replace(EXPERIMENT, transport=TransportSettings(kind=kind))
    spec = find_engine(engine)
    with pytest.raises(InputError, match=rf'transport.kind is "{kind}"'):
        spec.check(config)


def test_a_server_beyond_loopback_needs_a_certificate() -> None:
    config = dataclasses.replace(EXPERIMENT, transport=TransportSettings(host="::"))
    with pytest.raises(InputError, match="loopback, unless certificate"):
        flower_engines.check_deployment(config)


def test_an_unknown_option_is_refused_with_the_near_miss() -> None:
    with pytest.raises(InputError, match='did you mean "connection"'):
        check_options("deployment", (("conection", "lab"),))


async def test_a_superlink_is_named_or_addressed_not_both(tmp_path: Path) -> None:
    options = (("connection", "lab"), ("address", "127.0.0.1:1"))
    job = EngineJob(EXPERIMENT, tmp_path, "r", events.ignore, options)
    with pytest.raises(InputError, match="one of the two"):
        await flower_engines.run_deployment(job)


SERVER = """
import pathlib, os, signal, sys, time
from wallflower.strategy.store.journal import Journal
with Journal.resume(pathlib.Path({run_dir!r})):
    {end}
"""


def server_does(end: str, run_dir: Path) -> str:
    """Return code by which Flower starts a server in a process of its own."""
    code = SERVER.format(run_dir=str(run_dir), end=end)
    return (
        f"import subprocess, time; subprocess.Popen([sys.executable, '-c', {code!r}]); "
    )


async def test_a_server_that_is_killed_is_noticed_before_flower_says_so(
    launch: Launch,
) -> None:
    """Flower itself goes on for longer than the test may take."""
    Journal.create(launch.run_dir, "r", EXPERIMENT, "deployment").close()
    killed = "time.sleep(1); os.kill(os.getpid(), signal.SIGKILL)"
    launch.flower_does(
        server_does(killed, launch.run_dir) + "time.sleep(1000)", "running"
    )
    with pytest.raises(UnavailableError, match="died without a message"):
        await launch.carry("deployment")


async def test_a_simulation_whose_process_vanishes_before_it_asks_names_ray(
    launch: Launch,
) -> None:
    """Ray's driver ends the process, ServerApp included, when it does not reach Ray."""
    Journal.create(launch.run_dir, "r", EXPERIMENT, "simulation").close()
    vanishes = "time.sleep(1); os._exit(1)"
    launch.flower_does(
        server_does(vanishes, launch.run_dir) + "time.sleep(1000)", "running"
    )
    with pytest.raises(UnavailableError, match=r"Ray did not start or was killed"):
        await launch.carry()


@pytest.mark.parametrize(
    "word",
    [
        "(run / 'pause').touch()",
        '(run / \'failure.json\').write_text(\'{"error": "InputError", "text": "no", '
        '"exit": 2}\')',
    ],
    ids=["paused", "failed"],
)
async def test_a_server_that_ends_in_order_is_left_to_flower(
    word: str, launch: Launch
) -> None:
    Journal.create(launch.run_dir, "r", EXPERIMENT, "deployment").close()
    launch.flower_does(
        server_does("time.sleep(1)", launch.run_dir) + f"{word}; time.sleep(9)",
        "finished:completed",
    )
    if "failure" in word:
        with pytest.raises(WallflowerError, match="no"):
            await launch.carry()
    else:
        await launch.carry()
