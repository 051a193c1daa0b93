"""Faults on purpose, each placed in a named phase, and what came of them.

Every fault gets a run of its own on one consortium. The laboratory's rewards wait at
gates, so that a phase lasts until the fault has happened. After a fault the run must
end, by itself or after ``wallflower resume``, with the best arm; `verify` must pass; no
sum may be wrong and nobody counted twice (`deploy.harness.audit`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from deploy.harness.consortium import Consortium
from deploy.harness.experiment import LabRun, gate_of
from deploy.harness.network import stop_all_in
from deploy.harness.processes import descendants, until
from protocol.errors import UnavailableError

SERVER_APP = "flwr-serverapp"
CLIENT_APP = "flwr-clientapp"
_LET_IN = "SuperNode ID"  # what a SuperNode writes when SuperLink has accepted it


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
        self.run.until_event("CohortProgress", stage="contribute")

    def until_tallying(self) -> None:
        """Wait until a cohort waits for its tally."""
        self.run.until_event("CohortProgress", stage="tally")

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

    def restart_node(self, name: str) -> None:
        """Power comes back."""
        self.built.start_node(name)


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault in one phase.

    `prepare` is called before the run, `hurt` while it is starting; what `hurt` returns
    goes into the table.
    """

    name: str
    phase: str
    hurt: Callable[[Lab], str]
    resumed: bool = False  # the run is expected to stop and to need `resume`
    prepare: Callable[[Lab], None] | None = None


def node_killed_before_describing(lab: Lab) -> str:
    """Kill a node before it has attended; it comes back while the run goes on."""
    lab.kill_node(lab.victim)
    lab.until_batch_done()
    lab.restart_node(lab.victim)
    return "killed before it attended, started again after a batch"


def node_killed_giving_keys(lab: Lab) -> str:
    """Kill a node while the committee's keys are collected; a slow line keeps it so."""
    network = lab.built.network
    assert network is not None
    network.impair(lab.victim, loss=0.0, delay_ms=1000)
    try:
        lab.run.until_event("CohortProgress", stage="keys")
        lab.kill_node(lab.victim)
    finally:
        network.restore(lab.victim)
    lab.restart_node(lab.victim)
    return "killed while its key was on the way, started again"


def node_killed_contributing(lab: Lab) -> str:
    """Kill a node while its users' rewards are awaited."""
    lab.hold(lab.victim)
    lab.until_contributing()
    lab.kill_node(lab.victim)
    lab.release()
    lab.restart_node(lab.victim)
    return "killed while its rewards were awaited, started again"


def node_killed_tallying(lab: Lab) -> str:
    """Kill a node that has contributed and is asked for its tally."""
    first = lab.nodes[0]
    lab.hold(first)
    lab.until_contributing()
    time.sleep(1.0)  # everybody but the held node has contributed by now
    lab.pause_client(lab.victim)
    lab.release()
    lab.until_tallying()
    lab.kill_node(lab.victim)
    lab.restart_node(lab.victim)
    return "killed between its contribution and its tally, started again"


def node_killed_between_batches(lab: Lab) -> str:
    """Kill a node when a batch has just been written down."""
    lab.until_batch_done()
    lab.kill_node(lab.victim)
    lab.restart_node(lab.victim)
    return "killed after a batch was written down, started again"


def client_process_killed(lab: Lab) -> str:
    """Kill the ClientApp only; its SuperNode lives on."""
    lab.hold(lab.victim)
    lab.until_contributing()
    for process in lab.client_apps(lab.victim):
        process.kill()
    lab.release()
    return "its process killed, its SuperNode not"


def link_down_contributing(lab: Lab) -> str:
    """Pull the cable while rewards are awaited; put it back six seconds later."""
    lab.hold(lab.victim)
    lab.until_contributing()
    network = lab.built.network
    assert network is not None
    network.cut(lab.victim)
    lab.release()
    time.sleep(6)
    network.mend(lab.victim)
    return "6 s without a cable"


def link_down_tallying(lab: Lab) -> str:
    """Pull the cable between contribution and tally; put it back."""
    first = lab.nodes[0]
    lab.hold(first)
    lab.until_contributing()
    time.sleep(1.0)
    network = lab.built.network
    assert network is not None
    network.cut(lab.victim)
    lab.release()
    lab.until_tallying()
    time.sleep(3)
    network.mend(lab.victim)
    return "cable out during the tally"


def lossy_line(lab: Lab) -> str:
    """Lose and delay packets of one node for the whole run."""
    network = lab.built.network
    assert network is not None
    means = network.impair(lab.victim, loss=0.05, delay_ms=40)
    lab.repairs.append(lambda: network.restore(lab.victim))
    return f"5 % loss, 40 ms each way; {means}"


def superlink_killed(lab: Lab) -> str:
    """Kill SuperLink in the middle of a batch and start it on its database."""
    lab.hold(lab.victim)
    lab.until_contributing()
    lab.built.supervisor.processes["superlink"].kill()
    time.sleep(2)
    lab.built.operator.start_superlink()
    lab.release()
    return "killed, started on its database 2 s later"


def server_killed_contributing(lab: Lab) -> str:
    """Kill the ServerApp (and so the desk) while contributions come in."""
    lab.hold(lab.victim)
    lab.until_contributing()
    _kill_server(lab)
    lab.release()
    return "ServerApp and desk killed"


def server_killed_tallying(lab: Lab) -> str:
    """Kill the ServerApp between the last contribution and the tally."""
    lab.hold(lab.nodes[0])
    lab.until_contributing()
    time.sleep(1.0)
    for name in lab.nodes[1:]:
        lab.pause_client(name)
    lab.release()
    lab.until_tallying()
    _kill_server(lab)
    for name in lab.nodes[1:]:
        lab.go_on_client(name)
    return "ServerApp and desk killed"


def server_killed_between_batches(lab: Lab) -> str:
    """Kill the ServerApp when a batch has just been written down."""
    lab.until_batch_done()
    _kill_server(lab)
    return "ServerApp and desk killed"


def _kill_server(lab: Lab) -> None:
    found = lab.server_apps()
    if not found:
        raise UnavailableError("no ServerApp process to kill")
    for process in found:
        process.kill()


def clock_off(lab: Lab) -> str:
    """Let the node that was given a wrong clock take part, if it is let in."""
    lab.run.until_event("RunStarted")
    started = [e for e in lab.run.events() if e["event"] == "RunStarted"]
    lab.repairs.append(lambda: _right_clock(lab))
    present = started[0]["nodes"] if started else 0
    return f"{present} of {len(lab.nodes)} nodes took part"


def _right_clock(lab: Lab) -> None:
    lab.kill_node(lab.victim)
    lab.restart_node(lab.victim)


def wrong_clock(offset: str, *, let_in: bool) -> Callable[[Lab], None]:
    """Give a way to restart the victim with another clock before the run begins."""

    def prepare(lab: Lab) -> None:
        lab.kill_node(lab.victim)
        node = lab.built.start_node(lab.victim, prefix=("faketime", "-f", offset))
        if let_in:
            before = node.text().count(_LET_IN)
            until(
                "the node is let in again",
                lambda: node.text().count(_LET_IN) > before,
                180,
            )
            return
        others = len(lab.nodes) - 1
        until(
            "SuperLink notices the node's death",
            lambda: lab.built.operator.nodes_online() <= others,
            120,
            pause_s=2.0,
        )

    return prepare


@contextmanager
def small_disk(folder: Path, size: str = "2m") -> Iterator[None]:
    """Mount a tiny file system at a folder.

    Before any host is built: a host has its own view of what is mounted.
    """
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True
    )
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill_disk(lab: Lab) -> str:
    """Fill the disk of the journal in the middle of a batch; make room later."""
    lab.hold(lab.victim)
    lab.until_contributing()
    ballast = lab.run.run_dir / "ballast"
    handle = os.open(ballast, os.O_WRONLY | os.O_CREAT)
    with contextlib.suppress(OSError):
        while True:
            os.write(handle, b"\0" * 1024)
    os.close(handle)
    lab.release()
    until("the run gives up", lambda: lab.run.process.exit_code is not None, 120)
    ballast.unlink()
    return "no space left for the journal; room made, resumed"


FAULTS: tuple[Fault, ...] = (
    Fault("node killed", "attending", node_killed_before_describing),
    Fault("node killed", "committee keys", node_killed_giving_keys),
    Fault("node killed", "contribution", node_killed_contributing),
    Fault("node killed", "tally", node_killed_tallying),
    Fault("node killed", "between batches", node_killed_between_batches),
    Fault("ClientApp killed", "contribution", client_process_killed),
    Fault("cable out and back", "contribution", link_down_contributing),
    Fault("cable out and back", "tally", link_down_tallying),
    Fault("loss and delay", "whole run", lossy_line),
    Fault("SuperLink killed, restarted", "contribution", superlink_killed),
    Fault(
        "ServerApp and desk killed", "contribution", server_killed_contributing, True
    ),
    Fault("ServerApp and desk killed", "tally", server_killed_tallying, True),
    Fault(
        "ServerApp and desk killed",
        "between batches",
        server_killed_between_batches,
        True,
    ),
    Fault(
        "node's clock 4 min behind",
        "whole run",
        clock_off,
        prepare=wrong_clock("-4m", let_in=True),
    ),
    Fault(
        "node's clock 2 h ahead",
        "whole run",
        clock_off,
        prepare=wrong_clock("+2h", let_in=False),
    ),
    Fault(
        "node's clock 1 h behind",
        "whole run",
        clock_off,
        prepare=wrong_clock("-1h", let_in=False),
    ),
    Fault("disk full for the journal", "contribution", fill_disk, True),
)
