"""Flower's processes with the flags a production deployment uses.

TLS, node authentication, ``--isolation process`` and a SuperExec secret on the
operator's side; each SuperNode has a Flower home of its own, because unpacking an app
is not atomic.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from deploy.harness.network import Host
from deploy.harness.processes import Process, Supervisor, listening, until
from wallflower.protocol.errors import UnavailableError

_BIN = Path(sys.executable).parent
ROOT = Path(__file__).resolve().parents[2]


def environment(home: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return Flower its home and forbid it to phone or install anything."""
    home.mkdir(parents=True, exist_ok=True)
    return {
        **{name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ},
        "PATH": f"{_BIN}:{os.environ.get('PATH', '/usr/bin')}:/usr/sbin",
        "HOME": str(home),
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
        **(extra or {}),
    }


@dataclass(slots=True)
class Operator:
    """The operator's host: SuperLink, SuperExec and the `flwr` command.

    `api` is where SuperLink listens; `dialled` is where nodes dial, which differs when
    a proxy stands between.
    """

    supervisor: Supervisor
    host: Host
    keys: Path  # ca.crt, server.crt, server.key, superexec.secret
    home: Path
    port: int
    bind: str = "127.0.0.1"
    on_disk: bool = True
    extra: Mapping[str, str] = field(default_factory=dict)

    def _environment(self) -> dict[str, str]:
        return environment(self.home, self.extra)

    def start_superlink(self) -> Process:
        """Start SuperLink, on its database unless told otherwise."""
        command = [
            *("flower-superlink", "--host", self.bind, "--port", str(self.port)),
            *("--ssl-ca-certfile", str(self.keys / "ca.crt")),
            *("--ssl-certfile", str(self.keys / "server.crt")),
            *("--ssl-keyfile", str(self.keys / "server.key")),
            *("--enable-supernode-auth", "--isolation", "process"),
            *("--superexec-auth-secret-file", str(self.keys / "superexec.secret")),
            "--disable-runtime-dependency-installation",
        ]
        if self.on_disk:
            command += ["--database", str(self.home / "superlink.db")]
        process = self.supervisor.start(
            "superlink", self.host, command, environment=self._environment()
        )
        self._await(process)
        return process

    def _await(self, process: Process) -> None:
        def up() -> bool:
            if process.exit_code is not None:
                raise UnavailableError(
                    f"SuperLink ended with {process.exit_code}; log: {process.log}"
                )
            return listening(self.host, self.port)

        until("SuperLink's port", up, 60)

    def start_superexec(self) -> Process:
        """Start the process that runs ServerApps."""
        command = [
            *("flower-superexec", "--root-certificates", str(self.keys / "ca.crt")),
            *("--runtime-api-address", self.dialled),
            *("--superexec-auth-secret-file", str(self.keys / "superexec.secret")),
        ]
        return self.supervisor.start(
            "superexec", self.host, command, environment=self._environment()
        )

    @property
    def dialled(self) -> str:
        """Where the operator's own tools reach SuperLink."""
        address = "127.0.0.1" if self.bind in ("127.0.0.1", "0.0.0.0") else self.bind  # noqa: S104
        return f"{address}:{self.port}"

    def write_connection(self, name: str = "wallflower") -> None:
        """Tell `flwr` where SuperLink is."""
        text = (
            f'[superlink]\ndefault = "{name}"\n\n[superlink.{name}]\n'
            f'address = "{self.dialled}"\n'
            f'root-certificates = "{self.keys / "ca.crt"}"\n'
        )
        (self.home / "config.toml").write_text(text)

    def flwr(self, *arguments: str, timeout_s: float = 60) -> str:
        """Run a `flwr` command on the operator's host and give its output."""
        done = subprocess.run(
            self.host.command(["flwr", *arguments]),
            capture_output=True,
            text=True,
            env=self._environment(),
            timeout=timeout_s,
            check=False,
        )
        if done.returncode != 0:
            tail = (done.stdout + done.stderr).strip()[-400:]
            raise UnavailableError(f"`flwr {' '.join(arguments)}` failed: {tail}")
        return done.stdout

    def register(self, public_key: Path) -> None:
        """Admit a node."""
        self.flwr("supernode", "register", str(public_key), "wallflower")

    def nodes_online(self) -> int:
        """Count the SuperNodes that SuperLink hears from."""
        listed = json.loads(
            self.flwr("supernode", "list", "wallflower", "--format", "json")
        )
        return sum(node["status"] == "online" for node in listed["nodes"])


# What systemd does for a node's service: start it again, and let nothing of the former
# one live on. SuperLink turns away a SuperNode that lost power (exit code 305) until
# its former heartbeat has run out, so a node without a keeper would stay away.
_KEEPER = (
    'set -m; while true; do "$@" & child=$!; wait "$child"; '
    'kill -9 -- "-$child" 2>/dev/null; sleep 3; done'
)


def start_supernode(
    supervisor: Supervisor,
    name: str,
    host: Host,
    *,
    superlink: str,
    keys: Path,
    home: Path,
    port: int,
    node_config: str,
    extra: Mapping[str, str] | None = None,
    prefix: tuple[str, ...] = (),
    kept: bool = False,
) -> Process:
    """Start a SuperNode that dials out; its own API stays on its loopback.

    `prefix` stands before the command, e.g. ``faketime`` for a host whose clock is
    wrong; `kept` starts it again whenever it ends, as a service manager does.
    """
    command = [
        *(("bash", "-c", _KEEPER, "keeper") if kept else ()),
        *prefix,
        *("flower-supernode", "--root-certificates", str(keys / "ca.crt")),
        *("--auth-supernode-private-key", str(keys / "flower.key")),
        *("--superlink", superlink, "--host", "127.0.0.1", "--port", str(port)),
        *("--node-config", node_config),
    ]
    return supervisor.start(name, host, command, environment=environment(home, extra))
