"""The app bundle that `flwr run` sends: two names and a version, no logic."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tomllib
import warnings
import zipfile
from pathlib import Path

import click
import pytest
from flwr.cli.build import build_fab_from_disk

import wallflower
from deploy import hub
from wallflower.engines.flower import app_folder
from wallflower.strategy.flower_config import experiment


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpack the bundle of this very tree."""
    folder = tmp_path_factory.mktemp("bundle")
    with warnings.catch_warnings():
        # flwr's own use of pathspec
        warnings.simplefilter("ignore", DeprecationWarning)
        content = build_fab_from_disk(app_folder())
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        archive.extractall(folder)
    return folder


def load_both_apps(bundle: Path) -> subprocess.CompletedProcess[str]:
    script = (
        "import sys; sys.path.insert(0, '.')\n"
        "import wallflower_app.server as s, wallflower_app.client as c\n"
        "from flwr.serverapp import ServerApp\n"
        "from flwr.clientapp import ClientApp\n"
        "assert isinstance(s.app, ServerApp) and isinstance(c.app, ClientApp)\n"
        "import wallflower; print(wallflower.__file__)\n"
    )
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        cwd=bundle,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_both_apps_are_those_that_the_node_installed(bundle: Path) -> None:
    done = load_both_apps(bundle)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == wallflower.__file__


def test_an_app_made_for_another_version_is_refused_by_name(bundle: Path) -> None:
    package = bundle / "wallflower_app" / "__init__.py"
    ours = package.read_text("utf-8")
    package.write_text(ours.replace(wallflower.__version__, "9.8.7"), "utf-8")
    done = load_both_apps(bundle)
    package.write_text(ours, "utf-8")
    assert done.returncode != 0
    assert "made for wallflower 9.8.7" in done.stderr


def test_the_app_carries_the_version_of_the_package() -> None:
    app = tomllib.loads((app_folder() / "pyproject.toml").read_text("utf-8"))
    assert app["project"]["version"] == wallflower.__version__
    package = (app_folder() / "wallflower_app" / "__init__.py").read_text("utf-8")
    assert f'require_version("{wallflower.__version__}")' in package


def test_the_default_experiment_is_installed_with_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    app = tomllib.loads((app_folder() / "pyproject.toml").read_text("utf-8"))
    assert experiment(app["tool"]["flwr"]["app"]["config"]).experiment.arms


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # flwr's use of pathspec
def test_flowers_own_publish_checks_pass(tmp_path: Path) -> None:
    assert len(hub.check(app_folder())) == 5
    assert hub.build(app_folder(), tmp_path).suffix == ".fab"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("ours", "theirs", "why"),
    [
        ('license = { file = "LICENSE" }', 'license = { file = "COPY" }', "license"),
        ('description = "Private', 'description = ""\nx = "', "description"),
    ],
)
def test_flowers_own_publish_checks_refuse(
    ours: str, theirs: str, why: str, tmp_path: Path
) -> None:
    app = shutil.copytree(app_folder(), tmp_path / "app")
    text = (app / "pyproject.toml").read_text("utf-8")
    assert ours in text
    (app / "pyproject.toml").write_text(text.replace(ours, theirs), "utf-8")
    with pytest.raises((click.ClickException, ValueError), match=why):
        hub.check(app)


def test_nothing_but_the_thin_app_travels(bundle: Path) -> None:
    files = {str(path.relative_to(bundle)) for path in bundle.rglob("*.py")}
    assert files == {
        "wallflower_app/__init__.py",
        "wallflower_app/server.py",
        "wallflower_app/client.py",
    }
