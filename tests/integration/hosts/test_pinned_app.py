"""A node that pins its app runs no other code, whatever bundle a run brings.

docs/threat-model.md, "Whose code runs on a node": the bundle is installed by the node
itself and the folder of apps is read-only, as the systemd unit makes it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.harness.flower import ROOT

pytestmark = [pytest.mark.hosts, pytest.mark.timeout(180)]

# What Flower does with the bundle of a run before it starts a ClientApp.
_UNPACK = """
import pathlib, sys
from flwr.cli.install import install_from_fab
try:
    print(install_from_fab(pathlib.Path(sys.argv[1]).read_bytes(), skip_prompt=True))
except OSError as error:
    print("refused:", error.strerror)
"""


def build(source: Path, folder: Path, home: Path) -> Path:
    """Build an app bundle with Flower's own command."""
    folder.mkdir()
    subprocess.run(
        [Path(sys.executable).with_name("flwr"), "build", "--app", str(source)],
        cwd=folder,
        env=environment(home),
        capture_output=True,
        check=True,
    )
    [bundle] = folder.glob("*.fab")
    return bundle


def environment(home: Path) -> dict[str, str]:
    return {**os.environ, "FLWR_HOME": str(home), "FLWR_TELEMETRY_ENABLED": "0"}


def unpack_read_only(bundle: Path, home: Path) -> str:
    """Unpack as a SuperNode would, with the apps folder mounted read-only."""
    apps = home / "apps"
    script = (
        f"mount --bind {apps} {apps} && mount -o remount,bind,ro {apps} && "
        f'exec "$0" -c "$1" "$2"'
    )
    done = subprocess.run(
        ["unshare", "-m", "bash", "-c", script, sys.executable, _UNPACK, str(bundle)],
        env=environment(home),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip().splitlines()[-1]


def test_a_pinned_node_unpacks_only_what_it_installed_itself(tmp_path: Path) -> None:
    home = tmp_path / "flower"
    home.mkdir()
    reviewed = tmp_path / "stock-secagg"
    shutil.copytree(ROOT / "benchmarks" / "stock-secagg", reviewed)
    good = build(reviewed, tmp_path / "good", home)
    subprocess.run(
        [Path(sys.executable).with_name("flwr"), "install", str(good)],
        env=environment(home),
        capture_output=True,
        check=True,
    )
    client = reviewed / "stock_secagg" / "client_app.py"
    client.write_text(client.read_text() + "\nSTOLEN = open('/etc/hostname').read()\n")
    evil = build(reviewed, tmp_path / "evil", home)
    installed = unpack_read_only(good, home)
    assert installed.startswith(str(home / "apps"))
    assert "STOLEN" not in "".join(p.read_text() for p in Path(installed).rglob("*.py"))
    assert unpack_read_only(evil, home) == "refused: Read-only file system"
