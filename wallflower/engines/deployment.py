"""The ``deployment`` engine: `flwr run` on your SuperLink and its SuperNodes.

Options of `wallflower run --engine deployment`:

- ``connection``: a connection of your Flower config (``$FLWR_HOME/config.toml``);
- or ``address`` with ``root-certificates`` (a file), for a SuperLink without one.

The ServerApp opens the gRPC server (``[transport]``) and must reach the run directory.
"""

from __future__ import annotations

import os
from pathlib import Path

from wallflower.engines.flower import app_folder, carry
from wallflower.engines.process import (
    CONNECTION,
    FlowerSite,
    flower_environment,
    write_connection,
)
from wallflower.engines.registry import EngineJob
from wallflower.protocol.errors import InputError
from wallflower.strategy.config import ExperimentConfig
from wallflower.strategy.transport.grpc.host import enrolment_key, grpc_certificates

ENGINE = "deployment"
OPTIONS = ("connection", "address", "root-certificates")


def check(config: ExperimentConfig) -> None:
    """Refuse what would fail later: transport, the gRPC server's files, the app."""
    kind = config.transport.kind
    if kind not in ("auto", "grpc", "flower"):
        raise InputError(
            "transport.kind", f'"{kind}"', "auto, grpc or flower on engine deployment"
        )
    enrolment_key(config)
    if kind != "flower":
        grpc_certificates(config.transport)
    app_folder()


async def run_deployment(job: EngineJob) -> None:
    """Drive a job to its end; see `wallflower.engines.Engine`."""
    check(job.config)
    await carry(job, _site(job), ENGINE)


def _site(job: EngineJob) -> FlowerSite:
    """Find the SuperLink: by a connection's name, or by its address."""
    options = dict(job.options)
    if "address" not in options:
        home = Path(os.environ.get("FLWR_HOME") or Path.home() / ".flwr")
        return FlowerSite(flower_environment(home, {}), options.get("connection", ""))
    if "connection" in options:
        raise InputError("options", "connection and address", "one of the two")
    home = job.run_dir / "flower"
    certificates = options.get("root-certificates")
    if certificates is None:
        lines = ["insecure = true"]
    else:
        path = Path(certificates).resolve()
        if not path.is_file():
            raise InputError("root-certificates", certificates, "a file")
        lines = [f'root-certificates = "{path}"']
    write_connection(home, options["address"], lines)
    return FlowerSite(flower_environment(home, {}), CONNECTION)
