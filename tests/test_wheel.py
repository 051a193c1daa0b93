"""The wheel alone, in a fresh environment, beside a user's files of the same names.

The environment is new and holds the wheel; all that Wallflower depends on is seen
through a path file, as pinned, instead of being installed again. Flower's programs are
made for it, so that whatever they start runs the wheel and not this repository.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from deploy.harness.installed import run_installed
from deploy.harness.processes import free_port
from tests.support.flower_processes import end_processes_of, write_patient_flwr
from tests.support.run_fixtures import SMALL
from wallflower.version import __version__

ROOT = Path(__file__).parents[1]
CLASHES = ("strategy.py", "protocol.py", "clients/__init__.py", "examples/__init__.py")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps"]
    command += ["--no-build-isolation", "--no-index", "-w", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def fresh(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the programs' folder of an environment that holds the wheel."""
    home = tmp_path_factory.mktemp("fresh") / "environment"
    venv.create(home, symlinks=True)
    python = home / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q"]
    subprocess.run(
        [*command, "--no-deps", "--no-index", str(wheel)],
        check=True,
        capture_output=True,
    )
    (site,) = home.glob("lib/python*/site-packages")
    (site / "pinned.pth").write_text(sysconfig.get_path("purelib") + "\n")
    for entry in importlib.metadata.distribution("flwr").entry_points:
        if entry.group == "console_scripts":
            script = home / "bin" / entry.name
            script.write_text(
                f"#!{python}\nimport sys\nfrom {entry.module} import {entry.attr}\n"
                f"sys.exit({entry.attr}())\n"
            )
            script.chmod(0o755)
    write_patient_flwr(home / "bin", python)
    return home / "bin"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with an experiment, and files that fail when they are imported."""
    for name in CLASHES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('raise SystemExit("a user\'s own file")\n')
    (tmp_path / "experiment.toml").write_text(SMALL)
    return tmp_path


def run(fresh: Path, folder: Path, *words: str) -> str:
    """Run the wheel's command, or ``python``; return its output."""
    unset = ("PYTHONPATH", "VIRTUAL_ENV")
    done = subprocess.run(
        [str(fresh / words[0]), *words[1:]],
        cwd=folder,
        env={
            **{key: value for key, value in os.environ.items() if key not in unset},
            "PATH": f"{fresh}:/usr/bin:/bin",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


@pytest.mark.slow  # builds a wheel
def test_it_holds_one_package_with_the_app_and_the_examples_and_no_tests(
    wheel: Path,
) -> None:
    names = [Path(name) for name in zipfile.ZipFile(wheel).namelist()]
    tops = {name.parts[0] for name in names}
    assert tops == {"wallflower", f"wallflower-{__version__}.dist-info"}
    inside = {str(Path(*name.parts[1:])) for name in names}
    assert inside >= {
        "py.typed",
        "app/pyproject.toml",
        "app/LICENSE",
        "app/wallflower_app/server.py",
        "examples/headline.toml",
        "examples/revenue.csv",
        "starter/flower/client_app.py",
        "strategy/server_app.py",
        "clients/client_app.py",
        "protocol/wire/node_pb2.pyi",
    }
    assert not any(name.name.startswith("test_") for name in names)
    assert not any("tests" in name.parts for name in names)
    assert not any(name.suffix in (".pyc", ".proto") for name in names)


@pytest.mark.slow  # builds and installs a wheel
def test_it_is_the_wheel_that_answers(fresh: Path, folder: Path) -> None:
    output = run(fresh, folder, "python", "-c", "import wallflower; print(wallflower)")
    assert str(fresh.parent) in output
    assert (
        run(fresh, folder, "wallflower", "--version") == f"wallflower {__version__}\n"
    )


@pytest.mark.slow  # five processes, one or two seconds each
@pytest.mark.parametrize(
    "words",
    [
        "plan --arms 3 --epsilon 1",
        "simulate --arms 3 --horizon 1e6 --instances 20",
        "figures --only paper-easy --instances 1 --output pictures",
        "run experiment.toml --engine local",
        "run experiment.toml --engine fast",
    ],
)
def test_every_command_works_beside_files_of_the_same_names(
    words: str, fresh: Path, folder: Path
) -> None:
    assert run(fresh, folder, "wallflower", *words.split())


@pytest.mark.usefixtures("one_ray_at_a_time")
@pytest.mark.slow  # SuperLink and Ray: half a minute
def test_flowers_simulation_runs_the_wheel_beside_files_of_the_same_names(
    fresh: Path, folder: Path
) -> None:
    output = run(
        fresh,
        folder,
        *["wallflower", "run", "experiment.toml", "--engine", "simulation"],
    )
    assert '"b" is the best' in output


@pytest.mark.usefixtures("one_ray_at_a_time")
@pytest.mark.slow  # SuperLink and Ray: half a minute
def test_a_new_flower_app_runs_from_an_empty_folder_as_its_readme_says(
    fresh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "flower"
    monkeypatch.setenv("FLWR_HOME", str(home))
    # Otherwise it would use a SuperLink that this machine already runs.
    for use in ("SUPERLINK_HTTP", "CONTROL"):
        monkeypatch.setenv(f"FLWR_LOCAL_{use}_API_PORT", str(free_port()))
    run(fresh, tmp_path, "wallflower", "new", "sign-up", "--flower")
    readme = (tmp_path / "sign-up" / "README.md").read_text(encoding="utf-8")
    commands = readme.partition("```bash\n")[2].partition("```")[0]
    (fresh / "bash").symlink_to(shutil.which("bash") or "")
    try:
        output = run(fresh, tmp_path / "sign-up", "bash", "-c", commands)
    finally:
        end_processes_of(home)
    # The best page is dropped with probability at most 1/20 by the app's own promise.
    assert "Final results (winner):" in output
    assert "['with-photo']" in output
    (record,) = (home / "wallflower").iterdir()
    assert "The record holds." in run(
        fresh, tmp_path, "wallflower", "verify", str(record)
    )


@pytest.mark.slow  # SuperLink, SuperExec and three SuperNodes: half a minute
def test_a_deployment_runs_the_wheel_beside_files_of_the_same_names(
    fresh: Path, folder: Path
) -> None:
    path = f"{fresh}:/usr/bin:/bin"
    output = run_installed(folder / "site", path, path, namespaces=False, cwd=folder)
    assert '"number" is the best' in output
