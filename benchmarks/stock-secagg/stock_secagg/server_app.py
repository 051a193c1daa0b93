"""The server of the baseline: SecAgg+ rounds, timed without Flower's start-up."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path

import numpy as np
import psutil
from flwr.app import Context
from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
from flwr.common.typing import FitRes, Parameters, Scalar
from flwr.server import LegacyContext, ServerConfig
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import FedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.serverapp import Grid, ServerApp

app = ServerApp()


class CountingAverage(FedAvg):
    """FedAvg that keeps the means it was given and says how many nodes they hold."""

    def __init__(self, nodes: int) -> None:
        super().__init__(
            fraction_fit=1.0,
            fraction_evaluate=0.0,
            min_fit_clients=nodes,
            min_available_clients=nodes,
            initial_parameters=ndarrays_to_parameters([np.zeros(1)]),
        )
        self.means: list[float] = []

    def aggregate_fit(
        self,
        server_round: int,
        results: list[tuple[ClientProxy, FitRes]],
        failures: list[tuple[ClientProxy, FitRes] | BaseException],
    ) -> tuple[Parameters | None, dict[str, Scalar]]:
        """Keep the mean over all nodes of this round."""
        parameters, metrics = super().aggregate_fit(server_round, results, failures)
        if parameters is not None:
            self.means.append(float(parameters_to_ndarrays(parameters)[0][0]))
        return parameters, metrics


class Counted:
    """A workflow whose wall time and messages are counted."""

    def __init__(self, inner: SecAggPlusWorkflow, grid: Grid) -> None:
        self.inner = inner
        self.seconds: list[float] = []
        self.cpu_seconds: list[float] = []
        self.messages = 0
        self._push = grid.push_messages
        grid.push_messages = self._counted_push  # type: ignore[method-assign]

    def _counted_push(self, messages):  # type: ignore[no-untyped-def]
        batch = list(messages)
        self.messages += len(batch)
        return self._push(batch)

    def __call__(self, grid: Grid, context: Context) -> None:
        """Run one aggregation."""
        start, cpu = time.perf_counter(), _cpu_seconds()
        self.inner(grid, context)
        self.seconds.append(time.perf_counter() - start)
        self.cpu_seconds.append(_cpu_seconds() - cpu)


def _cpu_seconds() -> float:
    """Processor time of this process and everything below it, Ray's actors too."""
    own = psutil.Process()
    total = 0.0
    for process in [own, *own.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
    return total


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds and write what they took."""
    config = context.run_config
    nodes, rounds = int(config["nodes"]), int(config["rounds"])
    while len(list(grid.get_node_ids())) < nodes:
        time.sleep(0.05)
    strategy = CountingAverage(nodes)
    fit = Counted(
        SecAggPlusWorkflow(
            num_shares=int(config["shares"]),
            reconstruction_threshold=int(config["threshold"]),
        ),
        grid,
    )
    legacy = LegacyContext(
        context=context, config=ServerConfig(num_rounds=rounds), strategy=strategy
    )
    DefaultWorkflow(fit_workflow=fit)(grid, legacy)
    Path(str(config["report"])).write_text(
        json.dumps(
            {
                "nodes": nodes,
                "seconds": fit.seconds,
                "cpu_seconds": fit.cpu_seconds,
                "messages": fit.messages,
                "means": strategy.means,
            }
        )
    )
