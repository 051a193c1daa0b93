"""What Flower's run config says: which experiment, and where its run lies.

``[tool.flwr.app.config]`` in pyproject.toml has the keys, ``flwr run -c`` their values:
`config` holds a whole experiment as canonical JSON (`wallflower run` does that), else
`experiment` names a TOML file, sought in the app's own folder, in the working directory
and among the installed examples. Nodes of a simulation read the same run config: both
sides find the same experiment.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from wallflower.protocol.errors import ConfigError
from wallflower.protocol.identity.enrolment import SEED_FILE, EnrolmentKey
from wallflower.strategy.config import (
    ExperimentConfig,
    config_from_canonical,
    load_config,
)

FAILURE_FILE: Final = "failure.json"  # what ended the run early: class, text, exit code


def experiment(run_config: Mapping[str, object]) -> ExperimentConfig:
    """Read the experiment that a run config names.

    Parameters
    ----------
    run_config : Mapping[str, object]
        Flower's; ``config`` is a whole experiment as canonical JSON, ``experiment`` the
        name of a file.
    """
    if run_config.get("config"):
        return config_from_canonical(str(run_config["config"]))
    name = str(run_config.get("experiment", ""))
    if not name:
        raise ConfigError("run config", '"experiment" names no file')
    installed = Path(__file__).resolve().parent.parent
    for folder in (*_app_folders(), Path.cwd(), installed):
        if (folder / name).is_file():
            return load_config(folder / name)
    return load_config(Path(name))


def _app_folders() -> Iterator[Path]:
    """Name the folders of apps: Flower puts the one it runs on the modules' path.

    The working directory is the SuperLink's, which may hold another experiment.
    """
    for folder in map(Path, sys.path):
        if (folder / "pyproject.toml").is_file():
            yield folder


def run_directory(
    run_config: Mapping[str, object], config: ExperimentConfig, flower_run_id: int
) -> Path:
    """Return the run directory: as told, else below Flower's home, named by its run.

    Parameters
    ----------
    run_config : Mapping[str, object]
        Flower's; ``run-dir`` is the directory, if it is said.
    config : ExperimentConfig
        Gives the name.
    flower_run_id : int
        Flower's number of the run.
    """
    if run_config.get("run-dir"):
        return Path(str(run_config["run-dir"]))
    home = Path(os.environ.get("FLWR_HOME") or Path.home() / ".flwr")
    return home / "wallflower" / f"{config.experiment.name}-{flower_run_id}"


# An enrolment key for simulated nodes, which live in many processes.
#
# In a simulation all is in one hand, so the key that admits nodes lies in the run
# directory and every process derives the nodes' identities from it. That makes sums
# sized for a malicious server run as they would in a deployment; it protects nobody.


def simulated_enrolment_key(config: ExperimentConfig, run_dir: Path) -> bytes | None:
    """Return the public key where the threat needs one; make the key for a new run."""
    if config.secure_sum.server != "malicious":
        return None
    path = run_dir / SEED_FILE
    if not path.exists():
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(file, "wb") as handle:
            handle.write(EnrolmentKey.generate().private_bytes())
    return EnrolmentKey.from_private_bytes(path.read_bytes()).public_key
