"""A whole consortium: operator, proxy, nodes, keys — on namespaces or on loopback.

The operator's host runs SuperLink (TLS, node authentication, ``--isolation process``,
on its database), SuperExec and the proxy; SuperLink itself listens on that host's
loopback only. Nodes sit on hosts of their own and dial out. The gRPC server gets an
address of its own.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deploy.harness.flower import Operator, start_supernode
from deploy.harness.network import Host, LoopbackHost, Network
from deploy.harness.processes import Process, Supervisor, free_port, until
from deploy.harness.proxy import start_proxy
from wallflower.keys.store import KeyStore

FLEET_PORT = 443
GRPC_PORT = 8443
_SUPERLINK_PORT = 8143
_NODE_API_PORT = 9094


@dataclass(slots=True)
class Consortium:
    """What the tests, the faults and the benchmark work with."""

    folder: Path
    supervisor: Supervisor
    operator: Operator
    store: KeyStore
    hosts: Mapping[str, Host]
    fleet: str  # where nodes dial Flower
    grpc_host: str
    grpc_port: int
    network: Network | None
    node_environment: Callable[[Consortium, str], Mapping[str, str]]
    kept: bool = False
    node_processes: dict[str, Process] = field(default_factory=dict)

    def home_of(self, name: str) -> Path:
        """Return a node's Wallflower home: its keys, settings and ledger."""
        return self.folder / "nodes" / name

    def start_node(
        self,
        name: str,
        *,
        prefix: tuple[str, ...] = (),
        keys: Path | None = None,
        fleet: str | None = None,
    ) -> Process:
        """Start (or restart) a SuperNode on the host of that name.

        `keys` and `fleet` let a test start it with other keys or dial elsewhere.
        """
        port = _NODE_API_PORT if self.network is not None else free_port()
        home = self.home_of(name)
        process = start_supernode(
            self.supervisor,
            name,
            self.hosts[name],
            superlink=fleet or self.fleet,
            keys=keys or self.store.nodes / name,
            home=home / "flower",
            port=port,
            node_config=f'wallflower-home="{home}"',
            extra=self.node_environment(self, name),
            prefix=prefix,
            kept=self.kept,
        )
        self.node_processes[name] = process
        return process

    def await_nodes(self, count: int, timeout_s: float = 120) -> float:
        """Wait until SuperLink hears from so many nodes; gives the seconds."""
        return until(
            f"{count} nodes online",
            lambda: self.operator.nodes_online() >= count,
            timeout_s,
            pause_s=2.0,  # each look starts Flower's command line
        )


@contextlib.contextmanager
def consortium(
    folder: Path,
    nodes: Sequence[str],
    prepare: Callable[[Consortium, str], None],
    *,
    namespaces: bool = True,
    spare: Sequence[str] = (),
    users: int = 1000,
    on_disk: bool = True,
    node_environment: Callable[[Consortium, str], Mapping[str, str]] = (
        lambda built, name: {}
    ),
    operator_environment: Mapping[str, str] | None = None,
    kept: bool = False,
) -> Iterator[Consortium]:
    """Build keys and hosts, start everything, and take all of it down again.

    Parameters
    ----------
    folder : Path
        Where keys, homes and logs go.
    nodes : Sequence[str]
        Names of the nodes; each gets a host.
    prepare : Callable
        Fills a node's home before its first start.
    namespaces : bool
        False puts everything on loopback, without the proxy.
    spare : Sequence[str]
        Names of further hosts on which nothing is started.
    users : int
        Most users a node is certified for.
    on_disk : bool
        False keeps SuperLink's state in memory.
    node_environment : Callable
        Gives further variables of a node's environment.
    operator_environment : Mapping
        Further variables of the operator's environment.
    kept : bool
        Nodes are started again whenever they end; only with namespaces, which is where
        everything below a keeper is found again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        network: Network | None = None
        hosts: dict[str, Host]
        if namespaces:
            network = stack.enter_context(Network(["operator", *nodes, *spare]))
            hosts = dict(network.hosts)
            grpc_host = network.add_address("operator", 250)
            superlink_port, grpc_port = _SUPERLINK_PORT, GRPC_PORT
        else:
            hosts = {name: LoopbackHost(name) for name in ("operator", *nodes, *spare)}
            grpc_host = "127.0.0.1"
            superlink_port, grpc_port = free_port(), free_port()
        store = _make_keys(folder, [hosts["operator"].address, grpc_host], nodes, users)
        supervisor = stack.enter_context(Supervisor(folder / "logs"))
        home = folder / "operator"
        home.mkdir()
        operator = Operator(
            supervisor,
            hosts["operator"],
            store.operator,
            home,
            superlink_port,
            on_disk=on_disk,
            extra=operator_environment or {},
        )
        operator.start_superlink()
        operator.start_superexec()
        operator.write_connection()
        fleet = f"127.0.0.1:{superlink_port}"
        if network is not None:
            start_proxy(
                supervisor,
                hosts["operator"],
                port=FLEET_PORT,
                superlink=fleet,
                keys=store.operator,
                folder=folder / "proxy",
            )
            fleet = f"{hosts['operator'].address}:{FLEET_PORT}"
        built = Consortium(
            folder,
            supervisor,
            operator,
            store,
            hosts,
            fleet,
            grpc_host,
            grpc_port,
            network,
            node_environment,
            kept,
        )
        for name in nodes:
            operator.register(store.nodes / name / "flower.pub")
            built.home_of(name).mkdir(parents=True)
            prepare(built, name)
            built.start_node(name)
        yield built


def _make_keys(
    folder: Path, addresses: Sequence[str], nodes: Sequence[str], users: int
) -> KeyStore:
    store = KeyStore(folder / "keys")
    store.create("Laboratory", addresses, days=30)
    now = datetime.datetime.now(datetime.UTC)
    for name in nodes:
        store.add_node(name, capacity=users, days=30, now=now)
    return store
