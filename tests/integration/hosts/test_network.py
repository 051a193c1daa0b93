"""The laboratory itself: hosts reach each other, can be cut off, and leave no trace."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from deploy.harness.network import NamespaceHost, Network
from deploy.harness.processes import until

pytestmark = [pytest.mark.hosts, pytest.mark.timeout(120)]


def running_in(namespace: str) -> bool:
    listed = subprocess.run(
        ["ip", "netns", "pids", namespace], capture_output=True, check=False
    )
    return bool(listed.stdout.split())


_DIAL = """
import socket, sys, time
started = time.monotonic()
try:
    socket.create_connection((sys.argv[1], 9), timeout=float(sys.argv[2]))
except ConnectionRefusedError:
    print(f"{time.monotonic() - started:.4f}")
except OSError:
    print("unreachable")
"""


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with Network(["operator", "clinic-a", "clinic-b"], subnet="10.78.0") as built:
        yield built


def dial(source: NamespaceHost, target: NamespaceHost, patience_s: float = 5) -> str:
    """Knock on a closed port: the time until the refusal is one round trip."""
    command = ["python3", "-c", _DIAL, target.address, str(patience_s)]
    done = subprocess.run(
        source.command(command), capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_every_host_reaches_every_other(network: Network) -> None:
    hosts = list(network.hosts.values())
    for source in hosts:
        for target in hosts:
            assert dial(source, target) != "unreachable"


def test_a_cut_host_is_unreachable_until_it_is_mended(network: Network) -> None:
    a, operator = network.hosts["clinic-a"], network.hosts["operator"]
    network.cut("clinic-a")
    assert dial(a, operator, 0.5) == "unreachable"
    assert dial(network.hosts["clinic-b"], operator) != "unreachable"
    network.mend("clinic-a")
    assert dial(a, operator) != "unreachable"


def test_delay_is_felt_and_goes_away(network: Network) -> None:
    a, operator = network.hosts["clinic-a"], network.hosts["operator"]
    network.impair("clinic-a", loss=0.0, delay_ms=100)
    dial(a, operator)  # the relay may still be starting
    assert float(dial(a, operator)) >= 0.2
    network.restore("clinic-a")
    assert float(dial(a, operator)) < 0.2


def test_total_loss_is_unreachable(network: Network) -> None:
    a, operator = network.hosts["clinic-a"], network.hosts["operator"]
    network.impair("clinic-a", loss=1.0, delay_ms=0)
    assert dial(a, operator, 1.0) == "unreachable"
    network.restore("clinic-a")
    assert dial(a, operator) != "unreachable"


def test_nothing_is_left_behind() -> None:
    before = subprocess.run(["ip", "netns"], capture_output=True, check=True).stdout
    with Network(["x", "y"], subnet="10.79.0") as built:
        namespaces = [host.namespace for host in built.hosts.values()]
        # Something is still running inside when the network goes.
        sleeper = subprocess.Popen(built.hosts["x"].command(["sleep", "1000"]))
        until("the sleeper", lambda: running_in(namespaces[0]), 10)
    assert sleeper.wait(timeout=10) == -9
    after = subprocess.run(["ip", "netns"], capture_output=True, check=True).stdout
    assert before == after
    for namespace in namespaces:
        assert namespace.encode() not in after
