"""Hosts made of network namespaces, joined by a switch that is a namespace too.

Nothing is added to the machine's own network: the bridge lives in a namespace of its
own, and every address belongs to a namespace made here. A host can be cut off
(``ip link set down``) and its line made lossy and slow.

Deviation: where the kernel has no ``tc netem`` the same impairment is done packet by
packet in user space (`deploy.harness.lossy`), since a fault that is not tried is not
survived.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from wallflower.protocol.errors import UnavailableError


class Host(Protocol):
    """Where a process runs and how others reach it."""

    @property
    def name(self) -> str:
        """What people call it."""
        ...

    @property
    def address(self) -> str:
        """The address that other hosts dial."""
        ...

    def command(self, arguments: Sequence[str]) -> list[str]:
        """Wrap a command so that it runs on this host."""
        ...


@dataclass(frozen=True, slots=True)
class LoopbackHost:
    """A host in name only, for machines without namespaces."""

    name: str
    address: str = "127.0.0.1"

    def command(self, arguments: Sequence[str]) -> list[str]:
        """Return the command unchanged."""
        return list(arguments)


@dataclass(frozen=True, slots=True)
class NamespaceHost:
    """A network namespace with one line to the switch."""

    name: str
    address: str
    namespace: str
    line: str  # the interface inside the namespace
    port: str  # its other end, inside the switch

    def command(self, arguments: Sequence[str]) -> list[str]:
        """Run in the namespace; ``ip netns exec`` keeps the process id."""
        return ["ip", "netns", "exec", self.namespace, *arguments]


def _run(*arguments: str) -> str:
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise UnavailableError(
            f"`{' '.join(arguments)}` failed: {done.stderr.strip()}; network "
            "namespaces need root and iproute2"
        )
    return done.stdout


def namespaces_available() -> bool:
    """Return whether this machine lets us make a namespace."""
    name = f"wf{os.getpid()}-probe"
    try:
        _run("ip", "netns", "add", name)
        _run("ip", "netns", "del", name)
    except (UnavailableError, FileNotFoundError):
        return False
    return True


class Network:
    """A switch and its hosts; leaving the context removes all of it."""

    def __init__(self, names: Sequence[str], *, subnet: str = "10.77.0") -> None:
        # Two networks of one process must not meet, nor two processes.
        self._prefix = f"wf{os.getpid()}{secrets.token_hex(2)}"
        self._switch = f"{self._prefix}-switch"
        self._subnet = subnet
        self._relays: dict[str, subprocess.Popen[bytes]] = {}
        self.hosts: dict[str, NamespaceHost] = {}
        self._names = list(names)

    def __enter__(self) -> Self:
        """Build switch and hosts."""
        try:
            _run("ip", "netns", "add", self._switch)
            self._in_switch("link", "add", "lan", "type", "bridge")
            self._in_switch("link", "set", "lan", "up")
            for index, name in enumerate(self._names, start=1):
                self._add(name, index)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Remove every namespace made here, whatever happened."""
        self.close()

    def _in_switch(self, *arguments: str) -> str:
        return _run("ip", "-n", self._switch, *arguments)

    def _add(self, name: str, index: int) -> None:
        namespace, port = f"{self._prefix}-{name}", f"p{index}"
        _run("ip", "netns", "add", namespace)
        host = NamespaceHost(name, f"{self._subnet}.{index}", namespace, "eth0", port)
        self.hosts[name] = host
        add = ("link", "add", port, "type", "veth", "peer", "name", "eth0")
        self._in_switch(*add, "netns", namespace)
        self._in_switch("link", "set", port, "master", "lan", "up")
        _run("ip", "-n", namespace, "addr", "add", f"{host.address}/24", "dev", "eth0")
        _run("ip", "-n", namespace, "link", "set", "eth0", "up")
        _run("ip", "-n", namespace, "link", "set", "lo", "up")

    def add_address(self, name: str, last: int) -> str:
        """Add a second address to a host, e.g. one of the gRPC server's own."""
        address = f"{self._subnet}.{last}"
        namespace = self.hosts[name].namespace
        _run("ip", "-n", namespace, "addr", "add", f"{address}/24", "dev", "eth0")
        return address

    def cut(self, name: str) -> None:
        """Pull the host's cable; its own addresses and processes stay."""
        self._in_switch("link", "set", self.hosts[name].port, "down")

    def mend(self, name: str) -> None:
        """Put the cable back."""
        self._in_switch("link", "set", self.hosts[name].port, "up")

    def impair(self, name: str, *, loss: float, delay_ms: int) -> str:
        """Lose and delay the packets of one host; gives the means that was used."""
        host = self.hosts[name]
        quality = ("delay", f"{delay_ms}ms", "loss", f"{loss:.2%}")
        try:
            _run(
                *("tc", "-n", self._switch, "qdisc", "add", "dev", host.port),
                *("root", "netem", *quality),
            )
        except UnavailableError:
            self._relay(host, loss, delay_ms)
            return "user-space relay (this kernel has no netem)"
        return "tc netem"

    def _relay(self, host: NamespaceHost, loss: float, delay_ms: int) -> None:
        """Put a lossy relay between the host's port and the bridge."""
        inner, outer = f"{host.port}i", f"{host.port}o"
        self._in_switch("link", "add", inner, "type", "veth", "peer", "name", outer)
        self._in_switch("link", "set", host.port, "nomaster")
        self._in_switch("link", "set", outer, "master", "lan", "up")
        self._in_switch("link", "set", inner, "up")
        program = Path(__file__).with_name("lossy.py")
        enter = ["ip", "netns", "exec", self._switch]
        arguments = [host.port, inner, str(loss), str(delay_ms)]
        self._relays[host.name] = subprocess.Popen(
            [*enter, sys.executable, str(program), *arguments]
        )

    def restore(self, name: str) -> None:
        """Take the impairment away."""
        host = self.hosts[name]
        relay = self._relays.pop(name, None)
        if relay is None:
            _run("tc", "-n", self._switch, "qdisc", "del", "dev", host.port, "root")
            return
        relay.terminate()
        relay.wait(timeout=10)
        self._in_switch("link", "del", f"{host.port}i")
        self._in_switch("link", "set", host.port, "master", "lan")

    def close(self) -> None:
        """Stop what still runs in the namespaces, by process id, and delete them."""
        for relay in self._relays.values():
            relay.terminate()
            relay.wait(timeout=10)
        self._relays.clear()
        namespaces = [host.namespace for host in self.hosts.values()]
        for namespace in [*namespaces, self._switch]:
            stop_all_in(namespace)
            subprocess.run(
                ["ip", "netns", "del", namespace], capture_output=True, check=False
            )
        self.hosts.clear()


def stop_all_in(namespace: str) -> list[int]:
    """Kill the processes that `ip netns pids` still names; gives their ids."""
    listed = subprocess.run(
        ["ip", "netns", "pids", namespace], capture_output=True, text=True, check=False
    )
    stopped = [int(word) for word in listed.stdout.split()]
    for pid in stopped:
        try:
            os.kill(pid, 9)
        except ProcessLookupError:
            continue
    return stopped
