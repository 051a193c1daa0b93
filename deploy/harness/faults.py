"""Faults on purpose, each placed in a named phase, and what came of them.

Every fault gets a run of its own on one consortium. The laboratory's rewards wait at
gates, so that a phase lasts until the fault has happened. After a fault the run must
end, by itself or after ``wallflower resume``, with the best arm; `verify` must pass; no
sum may be wrong and nobody counted twice (`deploy.harness.audit`).
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.harness.audit import Audit
from deploy.harness.lab import Fault, Lab
from deploy.harness.processes import until
from wallflower.protocol.errors import UnavailableError

_LET_IN = "SuperNode ID"  # what a SuperNode writes when SuperLink has accepted it


def node_killed_before_describing(lab: Lab) -> str:
    """Kill a node before it has connected; it comes back while the run goes on."""
    lab.kill_node(lab.victim)
    lab.until_batch_done()
    lab.restart_node(lab.victim)
    return "restarted after a round"


def node_killed_holding_share(lab: Lab) -> str:
    """Kill a node that has just been dealt its share of the run's key."""
    lab.hold(lab.victim)
    lab.run.until_event("KeyGenerated")
    lab.kill_node(lab.victim)
    lab.release()
    lab.restart_node(lab.victim)
    return "restarted"


def node_killed_contributing(lab: Lab) -> str:
    """Kill a node while its users' rewards are awaited."""
    lab.hold(lab.victim)
    lab.until_contributing()
    lab.kill_node(lab.victim)
    lab.release()
    lab.restart_node(lab.victim)
    return "restarted"


def node_killed_opening(lab: Lab) -> str:
    """Kill a node that has contributed and is asked to open."""
    with _opening(lab):
        lab.kill_node(lab.victim)
    lab.restart_node(lab.victim)
    return "restarted"


def node_killed_and_back(lab: Lab) -> str:
    """Kill a node in the first batch; it is back for a later batch of the same run.

    The second batch's rewards wait until the node connects again, for a minute at most:
    after that they count as not known, and later batches wait in turn.
    """
    with _opening(lab):
        lab.hold(*lab.nodes)
        lab.kill_node(lab.victim)
    lab.until_batch_done()
    lab.restart_node(lab.victim)
    back_s = until("the node connects again", lambda: lab.is_connected(lab.victim), 240)
    time.sleep(1.0)  # the handshake
    lab.release()
    return f"connected again {back_s:.0f} s after its restart"


@contextmanager
def _opening(lab: Lab) -> Iterator[None]:
    """Keep a batch between its last contribution and its opening.

    All members but one are stopped in their tracks, so that too few answer; they go on
    afterwards.
    """
    first, *others = lab.nodes
    lab.hold(first)
    lab.until_contributing()
    time.sleep(1.0)  # everybody but the held node has contributed by now
    for name in others:
        lab.pause_client(name)
    lab.release()
    lab.until_opening()
    yield
    for name in others:
        lab.go_on_client(name)


def _missing_then_back(found: Audit) -> bool:
    """Return whether a batch was without the node and a later one with all four."""
    fewest = found.nodes_by_round
    return any(n < 4 for n in fewest) and fewest[-1] == 4


def node_killed_between_batches(lab: Lab) -> str:
    """Kill a node when a batch has just been written down."""
    lab.until_batch_done()
    lab.kill_node(lab.victim)
    lab.restart_node(lab.victim)
    return "restarted"


def client_process_killed(lab: Lab) -> str:
    """Kill the ClientApp only; its SuperNode lives on."""
    lab.hold(lab.victim)
    lab.until_contributing()
    for process in lab.client_apps(lab.victim):
        process.kill()
    lab.release()
    return "its SuperNode lives on"


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
    return "back after 6 s"


def link_down_opening(lab: Lab) -> str:
    """Pull the cable between contribution and opening; put it back."""
    network = lab.built.network
    assert network is not None
    with _opening(lab):
        network.cut(lab.victim)
    time.sleep(3)
    network.mend(lab.victim)
    return "back after 3 s"


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
    return "restarted on its database after 2 s"


def server_killed_contributing(lab: Lab) -> str:
    """Kill the ServerApp (and with it the gRPC server) while contributions come in."""
    lab.hold(lab.victim)
    lab.until_contributing()
    _kill_server(lab)
    lab.release()
    return "resumed"


def server_killed_opening(lab: Lab) -> str:
    """Kill the ServerApp between the last contribution and the opening."""
    with _opening(lab):
        _kill_server(lab)
    return "resumed"


def server_killed_between_batches(lab: Lab) -> str:
    """Kill the ServerApp when a batch has just been written down."""
    lab.until_batch_done()
    _kill_server(lab)
    return "resumed"


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
    """Return a way to restart the victim with another clock before the run begins."""

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
def small_disk(folder: Path, size: str = "64m") -> Iterator[None]:
    """Mount a tiny file system at a folder; what a run asks for at its start fits.

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
            os.write(handle, b"\0" * 4096)
    os.close(handle)
    lab.release()
    until("the run gives up", lambda: lab.run.process.exit_code is not None, 120)
    ballast.unlink()
    return "resumed with free space"


FAULTS: tuple[Fault, ...] = (
    Fault("node killed", "joining", node_killed_before_describing),
    Fault("node killed", "key generation", node_killed_holding_share),
    Fault("node killed", "contribution", node_killed_contributing),
    Fault("node killed", "open", node_killed_opening),
    Fault("node killed", "between rounds", node_killed_between_batches),
    Fault(
        "node killed, back for a later round",
        "open",
        node_killed_and_back,
        shown=_missing_then_back,
    ),
    Fault("ClientApp killed", "contribution", client_process_killed),
    Fault("cable out", "contribution", link_down_contributing),
    Fault("cable out", "open", link_down_opening),
    Fault("loss and delay", "whole run", lossy_line),
    Fault("SuperLink killed", "contribution", superlink_killed),
    Fault("ServerApp killed", "contribution", server_killed_contributing, True),
    Fault("ServerApp killed", "open", server_killed_opening, True),
    Fault(
        "ServerApp killed",
        "between rounds",
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
