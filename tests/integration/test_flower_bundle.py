"""The app bundle that `flwr run` sends: complete, and nothing of it from elsewhere."""

from __future__ import annotations

import io
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path

import pytest
from flwr.cli.build import build_fab_from_disk
from flwr.common.config import get_project_config

from strategy.config import load_config
from wallflower.flower_launch import app_folder


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpack the bundle of this very tree."""
    folder = tmp_path_factory.mktemp("bundle")
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # flwr's own use of pathspec
        content = build_fab_from_disk(app_folder())
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        archive.extractall(folder)
    return folder


def test_both_apps_load_from_the_bundle_alone(bundle: Path) -> None:
    script = (
        "import sys; sys.path.insert(0, '.')\n"
        "import strategy.server_app as s, clients.client_app as c\n"
        "import wallflower.simulated_nodes as w, clients.node_home as h\n"
        "from flwr.serverapp import ServerApp\n"
        "from flwr.clientapp import ClientApp\n"
        "assert isinstance(s.app, ServerApp) and isinstance(c.app, ClientApp)\n"
        "print([m.__file__ for m in (s, c, w, h)])\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        cwd=bundle,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.count(str(bundle)) == 4


def test_the_bundle_holds_the_default_experiment(bundle: Path) -> None:
    settings = get_project_config(bundle)["tool"]["flwr"]["app"]["config"]
    assert load_config(bundle / settings["experiment"]).experiment.arms


def test_no_tests_and_no_schema_travel(bundle: Path) -> None:
    files = [path.relative_to(bundle) for path in bundle.rglob("*") if path.is_file()]
    assert {path.parts[0] for path in files} <= {
        *("clients", "strategy", "protocol", "wallflower", "examples"),
        *("pyproject.toml", ".info"),
    }
    assert not [path for path in files if path.suffix == ".proto"]
