"""Every command and snippet of README and docs is run as it stands there.

Fenced blocks are collected from all pages; a command that is new on a page and neither
runs here nor stands in `ELSEWHERE` with a reason fails the first test.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from deploy.harness.processes import free_port, until
from tests.integration import test_flower_homes
from tests.integration.test_flower_app import best
from tests.support.flower_processes import end_processes_of, write_patient_flwr
from tests.support.run_fixtures import SMALL
from wallflower.clients.host.home import NodeFile
from wallflower.keys.store import KeyStore
from wallflower.protocol.files.settings import settings_from
from wallflower.strategy.config import ExperimentConfig
from wallflower.strategy.store.journal import Journal

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
_FENCE = re.compile(r"^```(\S*)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

# Commands that cannot run here: why, and what runs them instead.
ELSEWHERE = {
    "wallflower watch RUN": "serves until Ctrl-C: test_watch_command.py",
    "wallflower serve RUN --workers 4 --origin https://shop.example": (
        "serves until SIGTERM: tests/wallflower/serve/test_processes.py"
    ),
    "make demo": "creates an environment; its commands run here, see make_demo",
    "make test": "is what runs this",
    "pip install .": "no network here: tests/integration installs the wheel",
    "wallflower run experiment.toml --engine deployment -o connection=lab": (
        "needs a SuperLink and SuperNodes: make test-hosts"
    ),
}
keys = test_flower_homes.keys  # the fixture
TUTORIAL = "docs/tutorial.md"  # in an empty folder, from the wheel: test_tutorial.py
GUIDE = "docs/deployment.md"  # two hosts, root: `make guide` runs it word by word


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page."""

    page: str
    language: str
    text: str


def blocks(language: str) -> list[Block]:
    return [
        Block(str(page.relative_to(ROOT)), found[1], found[3])
        for page in PAGES
        for found in _FENCE.finditer(page.read_text(encoding="utf-8"))
        if found[1] == language
    ]


def commands() -> list[str]:
    """Return every shell command once, without its comment."""
    found: dict[str, None] = {}
    for block in blocks("bash"):
        if block.page in (GUIDE, TUTORIAL):
            continue
        for line in block.text.replace("\\\n", " ").splitlines():
            words = re.sub(r"\s#.*$", "", line).split()
            found[" ".join(words)] = None
    return list(found)


SIMULATION = "wallflower run experiment.toml --engine simulation"
SERVER = "python examples/reward_server.py --port 7070 --delay 5"
SHELL = (
    ". .venv/bin/activate",
    "export FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1",
)
FLWR = (
    "flwr run wallflower/app local --stream --federation-config "
    '"num-supernodes=100 client-resources-num-cpus=1 init-args-num-cpus=2" '
    "-c 'experiment=\"examples/headline.toml\"'"
)
QUICK = (
    "wallflower invite 3 --keys inviter --days 30",
    "wallflower plan --arms 3 --epsilon 1",
    "wallflower simulate --arms 3 --horizon 1e9",
    "wallflower check experiment.toml",
    "wallflower run experiment.toml",
    "wallflower verify runs/…",
    "wallflower report runs/…",
    "wallflower status RUN",
    "wallflower resume RUN",
    "wallflower verify RUN",
    "wallflower verify RUN --head HASH",
)
REVENUE = (
    "wallflower check examples/revenue.toml",
    "wallflower plan examples/revenue.toml --gap 8",
    "wallflower run examples/revenue.toml",
)
AGAIN = (
    "wallflower run again.toml --run-dir first",
    "wallflower run again.toml --run-dir second",
    "wallflower plan again.toml",
    "wallflower run again.toml --run-dir third",
    "wallflower status third",
)
HEADLINE = "wallflower run examples/headline.toml --engine simulation"


def test_every_command_is_run_here_or_has_a_reason() -> None:
    here = {*QUICK, *REVENUE, *AGAIN, *SHELL, SIMULATION, HEADLINE, FLWR, SERVER}
    assert set(commands()) == here | ELSEWHERE.keys()


def test_the_guide_names_a_host_with_every_block_so_that_make_guide_runs_it() -> None:
    text = (ROOT / GUIDE).read_text(encoding="utf-8")
    fences = [found for found in _FENCE.finditer(text) if found[1]]
    assert fences
    for found in fences:
        assert (found[1], bool(found[2].strip())) == ("bash", True)


def test_no_block_is_of_a_language_that_nothing_here_runs() -> None:
    languages = {
        found[1]
        for page in PAGES
        for found in _FENCE.finditer(page.read_text(encoding="utf-8"))
    }
    # html: tests/browser/web/test_site.py opens it in Chromium.
    assert languages <= {"", "bash", "console", "html", "python", "toml"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like a reader's: the README's experiment, the examples, a .venv."""
    folder = tmp_path_factory.mktemp("reader")
    (experiment,) = (b.text for b in blocks("toml") if b.page == "README.md")
    (folder / "experiment.toml").write_text(experiment, encoding="utf-8")
    (folder / "examples").symlink_to(ROOT / "examples")
    (folder / ".venv").symlink_to(sys.prefix)
    return folder


@functools.cache
def own_port(folder: Path, use: str) -> int:
    """Return the port of a folder's own SuperLink: the same each time."""
    return free_port()


def environment(folder: Path) -> dict[str, str]:
    return {
        **os.environ,
        "PATH": f"{folder / 'programs'}:{sys.prefix}/bin:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "FLWR_HOME": str(folder / "flower"),
        # Otherwise it would use a SuperLink that this machine already runs.
        "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(own_port(folder, "http")),
        "FLWR_LOCAL_CONTROL_API_PORT": str(own_port(folder, "control")),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
    }


def run(command: str, folder: Path, cwd: Path | None = None) -> str:
    """Run a command as a reader would; give all it said."""
    done = subprocess.run(
        ["bash", "-c", "; ".join((*SHELL[1:], command))],
        cwd=cwd or folder,
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}"
    return done.stdout


def only_run(folder: Path) -> Path:
    (found,) = sorted((folder / "runs").glob("onboarding-*"))[:1]
    return found


def head(run_dir: Path) -> str:
    with Journal.read(run_dir) as journal:
        return journal.head


@pytest.mark.slow  # a dozen processes, a second or two each
def test_the_commands_of_a_first_hour_run_in_the_order_of_the_readme(
    folder: Path,
) -> None:
    run(SHELL[0], folder)
    for command in QUICK:
        words = command
        if "RUN" in command or "runs/…" in command:
            name = str(only_run(folder))
            words = command.replace("RUN", name).replace("runs/…", name)
            words = words.replace("HASH", head(only_run(folder)))
        output = run(words, folder)
        assert "Traceback" not in output
    assert output.rstrip().endswith("The record holds.")


@pytest.mark.slow  # three processes
def test_the_commands_of_the_example_in_euros_run(folder: Path) -> None:
    # Of 2,000 simulated runs (`wallflower simulate`) all find the season ticket.
    output = [run(command, folder) for command in REVENUE]
    assert "all from 0 to 200 €" in output[0]
    assert " 8 € " in output[1]
    assert '"season ticket" is the best of 2 arms' in output[2]


@pytest.mark.slow  # five processes
def test_three_experiments_with_the_same_people_run(tmp_path: Path) -> None:
    (text,) = (b.text for b in blocks("toml") if 'name = "again"' in b.text)
    (tmp_path / "again.toml").write_text(text, encoding="utf-8")
    output = [" ".join(run(command, tmp_path).split()) for command in AGAIN]
    left_out = "are left out by their nodes: their budget does not allow it."
    left = "120 of 720 people can still be asked under these terms; 600"
    assert f"{left} {left_out}" in output[2]
    assert "users invited 80, answered 80, lost 0" in output[3]
    left = "40 of 720 people can still be asked under these terms; 600"
    assert f"{left} {left_out}" in output[4]
    with pytest.raises(AssertionError, match="40 of 720 people can still be asked"):
        run(AGAIN[3].replace("third", "fourth"), tmp_path)


@pytest.mark.slow  # the two experiments of the demo, some ten seconds each
@pytest.mark.parametrize("line", [0, 1])
def test_the_commands_of_make_demo_run(line: int, folder: Path) -> None:
    recipe = re.search(
        r"^demo: .*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE
    )
    assert recipe is not None
    command = recipe[1].splitlines()[line].strip().replace("$(BIN)/", "")
    assert '" is the best of' in run(f"{command} --run-dir demo-{line}", folder)


@pytest.mark.soak  # a minute each; `make soak-docs`
@pytest.mark.parametrize("command", [SIMULATION, HEADLINE])
def test_the_experiments_run_on_flowers_simulation(command: str, folder: Path) -> None:
    assert "Head of the record" in run(command, folder)


@pytest.fixture
def flower(folder: Path) -> Iterator[Path]:
    """The reader's folder; what `flwr` left running there is ended."""
    write_patient_flwr(folder / "programs", sys.executable)
    yield folder
    end_processes_of(folder / "flower")


def finished_below(folder: Path, output: str) -> str | None:
    runs = folder / "flower" / "wallflower"
    assert runs.is_dir(), output
    (run_dir,) = runs.iterdir()
    with Journal.read(run_dir) as journal:
        last = journal.last_round()
    shutil.rmtree(folder / "flower" / "wallflower")
    return None if last is None else last.finished


@pytest.mark.usefixtures("one_ray_at_a_time")
@pytest.mark.slow  # `flwr run` with a SuperLink of its own: half a minute
def test_flowers_own_command_line_runs_the_app_and_says_little(flower: Path) -> None:
    output = run(FLWR, flower, cwd=ROOT)
    assert finished_below(flower, output) == "winner"
    assert len(output.splitlines()) < 100


OWN_APP = """
[project]
name = "docs-app"
version = "1.0.0"
[tool.flwr.app]
publisher = "reader"
[tool.flwr.app.components]
serverapp = "docs_server:app"
clientapp = "docs_client:app"
[tool.flwr.app.config]
experiment = "{experiment}"
"""


def snippet(mark: str, page: str = "docs/") -> str:
    """Return the only Python block of these pages that holds a mark."""
    (text,) = (
        block.text
        for block in blocks("python")
        if mark in block.text and block.page.startswith(page)
    )
    return text


@pytest.mark.usefixtures("one_ray_at_a_time")
@pytest.mark.slow  # `flwr run` with a SuperLink of its own: half a minute
@pytest.mark.parametrize("page", ["README.md", "docs/"])
def test_the_documented_apps_run_in_flowers_simulation(page: str, flower: Path) -> None:
    app = flower / f"app-of-{page.strip('/')}"
    app.mkdir()
    (app / "docs_server.py").write_text(snippet("ServerApp()", page), encoding="utf-8")
    (app / "docs_client.py").write_text(snippet("class Clicks", page), encoding="utf-8")
    # No [rewards]: where they come from, only the ClientApp says.
    text = SMALL.partition("[rewards]")[0]
    (app / "small.toml").write_text(text, encoding="utf-8")
    (app / "pyproject.toml").write_text(
        OWN_APP.format(experiment=app / "small.toml"), encoding="utf-8"
    )
    # Two nodes more than the experiment describes: said once, not traced.
    output = run(
        "flwr run . local --stream --federation-config "
        '"num-supernodes=14 client-resources-num-cpus=1 init-args-num-cpus=2"',
        flower,
        cwd=app,
    )
    assert finished_below(flower, output) == "winner"
    assert "winner (NamedArm(" in output
    assert len(output.splitlines()) < 100


@pytest.mark.parametrize("kind", ["grpc", "flower"])
def test_the_documented_client_app_serves_nodes_with_homes(
    kind: str, keys: KeyStore, tmp_path: Path
) -> None:
    names: dict[str, Any] = {}
    exec(snippet("class Clicks"), names)
    nodes = test_flower_homes.homes(keys, tmp_path / "homes")
    for home in (tmp_path / "homes").iterdir():
        text = (home / "node.toml").read_text()
        (home / "node.toml").write_text(text.partition("[rewards]")[0])
    test_flower_homes.run(
        test_flower_homes.experiment(keys, kind),
        nodes,
        tmp_path / "run",
        client_app=names["app"],
    )
    assert best(tmp_path / "run") == [False, True, False]


@pytest.mark.slow  # a whole run
def test_the_notebook_snippet_runs(folder: Path) -> None:
    script = folder / "notebook.py"
    script.write_text(snippet("InProcessGrid("), encoding="utf-8")
    assert run(f"python {script}", folder).rstrip().endswith("winner")


@pytest.mark.slow  # whole experiments
def test_the_functions_for_python_run_in_a_notebooks_loop(folder: Path) -> None:
    lines = snippet("wallflower.plan(").splitlines()
    cell = "".join(f"    {line}\n" for line in lines)
    script = folder / "cell.py"
    script.write_text(
        f"import asyncio\nasync def cell():\n{cell}    print(run.result.finished)\n"
        "asyncio.run(cell())\n",
        encoding="utf-8",
    )
    assert run(f"python {script}", folder).rstrip().endswith("winner")


def test_every_python_snippet_is_run_by_one_of_these() -> None:
    for block in blocks("python"):
        marks = ("ServerApp()", "class Clicks", "InProcessGrid(", "wallflower.plan(")
        assert sum(mark in block.text for mark in marks) == 1


def test_the_reward_server_listens(folder: Path) -> None:
    port = free_port()
    process = subprocess.Popen(
        SERVER.replace("7070", str(port)).split(),
        cwd=folder,
        env=environment(folder),
    )

    def listens() -> bool:
        assert process.poll() is None
        with socket.socket() as caller:
            return caller.connect_ex(("127.0.0.1", port)) == 0

    try:
        until("the reward server listens", listens, 300)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


KINDS: Mapping[str, type] = {"experiment": ExperimentConfig, "node": NodeFile}


@pytest.mark.parametrize("block", blocks("toml"), ids=lambda block: block.page)
def test_every_toml_block_is_a_valid_file_of_its_kind(block: Block) -> None:
    table = tomllib.loads(block.text, parse_float=Decimal)
    kind = KINDS[next(iter(table))]
    assert isinstance(settings_from(kind, table, block.page), kind)
