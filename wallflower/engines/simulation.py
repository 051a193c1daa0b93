"""The ``simulation`` engine: Flower's own, through `flwr run`, on a SuperLink of ours.

One SuperLink per run, on a free port of loopback, with its own FLWR_HOME in the run
directory; Ray starts as many actors as there are processors (option ``processors``).
`flwr run .` against anyone's SuperLink runs the same app.
"""

from __future__ import annotations

import importlib.util
import os

from wallflower.engines.flower import app_folder, carry
from wallflower.engines.population import agreed_policy, check_rewards, hosted_window
from wallflower.engines.process import simulation_superlink
from wallflower.engines.registry import EngineJob
from wallflower.protocol.errors import InputError, optional_module
from wallflower.protocol.numbers import whole
from wallflower.results.hosted_ledger import check_hosted_ledger
from wallflower.strategy.config import ExperimentConfig
from wallflower.strategy.store.journal import Journal

ENGINE = "simulation"


OPTIONS = ("processors",)


def check(config: ExperimentConfig) -> None:
    """Refuse what would fail later: transport, policy file, reward source, app."""
    kind = config.transport.kind
    if kind not in ("auto", "flower"):
        raise InputError(
            "transport.kind", f'"{kind}"', "auto or flower on engine simulation"
        )
    window_s = hosted_window(config).seconds
    if window_s is not None:
        raise InputError(
            "rewards.window-s",
            f"{window_s:g}",
            "none on engine simulation, whose few workers would each hold one node for "
            "all of it; rehearse with engine local",
        )
    agreed_policy(config)
    check_rewards(config)
    app_folder()
    if importlib.util.find_spec("ray") is None:
        optional_module("ray", "simulation")


async def run_simulation(job: EngineJob) -> None:
    """Drive a job to its end; see `wallflower.engines.Engine`."""
    check(job.config)
    with Journal.read(job.run_dir) as journal:
        check_hosted_ledger(journal)
    options = dict(job.options)
    processors = options.get("processors", str(os.cpu_count() or 1))
    federation = {
        "num-supernodes": job.config.nodes.count,
        "client-resources-num-cpus": 1,
        "init-args-num-cpus": whole("processors", processors, at_least=1),
    }
    async with simulation_superlink(job.run_dir) as site:
        await carry(job, site, ENGINE, federation)
