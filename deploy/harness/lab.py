"""Where a fault happens: one consortium, one run, its gates and processes."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import psutil

from deploy.harness.audit import Audit
from deploy.harness.consortium import Consortium
from deploy.harness.experiment import LabRun, gate_of
from deploy.harness.network import stop_all_in
from deploy.harness.processes import descendants

SERVER_APP = "flwr-serverapp"
CLIENT_APP = "flwr-clientapp"


@dataclass(slots=True)
class Lab:
    """One fault's view of the consortium and of its run."""

    built: Consortium
    nodes: Sequence[str]
    started: LabRun | None = None
    notes: list[str] = field(default_factory=list)
    repairs: list[Callable[[], None]] = field(default_factory=list)

    @property
    def run(self) -> LabRun:
        """The run, once it is started."""
        assert self.started is not None
        return self.started

    @property
    def victim(self) -> str:
        """The node that faults hit; the last one, so that the first stays well."""
        return self.nodes[-1]

    def hold(self, *names: str) -> None:
        """Shut the gates of these nodes: their rewards are not there yet."""
        for name in names:
            gate_of(self.built, name).touch()

    def release(self, *names: str) -> None:
        """Open the gates."""
        for name in names or self.nodes:
            gate_of(self.built, name).unlink(missing_ok=True)

    def until_contributing(self) -> None:
        """Wait until a cohort is in its contribution stage."""
        self.run.until_event("CohortProgress", stage="seal")

    def until_opening(self) -> None:
        """Wait until a cohort waits for its members to open the sum."""
        self.run.until_event("CohortProgress", stage="open")

    def until_batch_done(self) -> None:
        """Wait until one batch is in the journal."""
        self.run.until_event("RoundFinished")

    def pause_client(self, name: str) -> None:
        """Stop a node's ClientApp in its tracks (SIGSTOP)."""
        for process in self.client_apps(name):
            os.kill(process.pid, signal.SIGSTOP)

    def go_on_client(self, name: str) -> None:
        """Let a stopped ClientApp go on."""
        for process in self.client_apps(name):
            os.kill(process.pid, signal.SIGCONT)

    def client_apps(self, name: str) -> list[psutil.Process]:
        """Find a node's ClientApp processes among the descendants of its SuperNode."""
        return descendants(self.built.node_processes[name].pid, CLIENT_APP)

    def server_apps(self) -> list[psutil.Process]:
        """Find the ServerApp among the descendants of SuperExec."""
        pid = self.built.supervisor.processes["superexec"].pid
        return descendants(pid, SERVER_APP)

    def kill_node(self, name: str) -> None:
        """SuperNode and everything below it lose power."""
        self.built.node_processes[name].kill()
        network = self.built.network
        assert network is not None
        stop_all_in(network.hosts[name].namespace)

    def is_connected(self, name: str) -> bool:
        """Return whether a node has a connection to the gRPC server."""
        listed = subprocess.run(
            self.built.hosts[name].command(["ss", "-Htn", "state", "established"]),
            capture_output=True,
            text=True,
            check=False,
        )
        plain = listed.stdout.replace("[::ffff:", "").replace("]", "")
        return f"{self.built.grpc_host}:{self.built.grpc_port}" in plain

    def restart_node(self, name: str) -> None:
        """Power comes back."""
        self.built.start_node(name)


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault in one phase.

    `prepare` is called before the run, `hurt` while it is starting; what `hurt` returns
    goes into the table. `shown` says whether the sums bear the fault's traces.
    """

    name: str
    phase: str
    hurt: Callable[[Lab], str]
    resumed: bool = False  # the run is expected to stop and to need `resume`
    prepare: Callable[[Lab], None] | None = None
    shown: Callable[[Audit], bool] = lambda found: True  # what the sums must show
