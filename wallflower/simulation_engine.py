"""The ``simulation`` engine: Flower's own, through `flwr run`, on a SuperLink of ours.

One SuperLink per run, on a free port of loopback, with its own FLWR_HOME in the run
directory; Ray starts as many actors as there are processors. `flwr run .` against
anyone's SuperLink runs the same app.
"""

from __future__ import annotations

import os

from protocol.errors import InputError
from wallflower.engines import EngineJob
from wallflower.flower_launch import carry
from wallflower.flower_process import simulation_superlink

ENGINE = "simulation"


async def run_simulation(job: EngineJob) -> None:
    """Drive a job to its end; see `wallflower.engines.Engine`."""
    kind = job.config.transport.kind
    if kind not in ("auto", "flower"):
        raise InputError("transport.kind", kind, "auto or flower on engine simulation")
    options = dict(job.options)
    processors = int(options.get("processors", os.cpu_count() or 1))
    federation = {
        "num-supernodes": job.config.nodes.count,
        "client-resources-num-cpus": 1,
        "init-args-num-cpus": processors,
    }
    async with simulation_superlink(job.run_dir) as site:
        await carry(job, site, ENGINE, federation)
