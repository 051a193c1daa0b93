"""The real proxy in the laboratory: nginx with the rendered production file."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from deploy.harness.flower import ROOT, environment
from deploy.harness.network import Host
from deploy.harness.processes import Process, Supervisor, listening, until
from wallflower.protocol.errors import UnavailableError


def load_stream() -> str:
    """Return the line that loads nginx's stream module, a file of its own on Debian."""
    module = Path("/usr/lib/nginx/modules/ngx_stream_module.so")
    return f"load_module {module};\n" if module.exists() else ""


def nginx_program() -> str | None:
    """Find nginx, which is rarely on a user's path."""
    return shutil.which(
        "nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin"
    )


def start_proxy(
    supervisor: Supervisor,
    host: Host,
    *,
    port: int,
    superlink: str,
    keys: Path,
    folder: Path,
    name: str = "proxy",
) -> Process:
    """Render the configuration and run nginx in the foreground on a host."""
    program = nginx_program()
    if program is None:
        raise UnavailableError("nginx is not installed; the proxy cannot be run")
    for part in ("run", "logs"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    settings = [
        f"LISTEN={host.address}:{port}",
        f"SUPERLINK={superlink}",
        f"KEYS={keys}",
        f"RUN={folder / 'run'}",
        f"LOGS={folder / 'logs'}",
    ]
    rendered = subprocess.run(
        [ROOT / "deploy" / "render-proxy", *settings], capture_output=True, check=True
    ).stdout
    path = folder / "nginx.conf"
    path.write_bytes(rendered)
    # `daemon off`: the supervisor stops what it started; one worker is plenty here.
    process = supervisor.start(
        name,
        host,
        [program, "-c", str(path), "-g", "daemon off;"],
        environment=environment(folder / "home"),
    )
    until("the proxy's port", lambda: listening(host, port), 20)
    return process


def start_visitors_proxy(
    supervisor: Supervisor,
    host: Host,
    *,
    workers: Sequence[str],
    keys: Path,
    folder: Path,
) -> Process:
    """Run the shipped proxy of people who arrive before these workers' addresses."""
    program = nginx_program()
    if program is None:
        raise UnavailableError("nginx is not installed; the proxy cannot be run")
    for part in ("run", "logs"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    text = (ROOT / "deploy" / "proxy" / "visitors.conf").read_text()
    for place, found in (
        ("/keys", keys),
        ("/run/wallflower", folder / "run"),
        ("/var/log/wallflower", folder / "logs"),
    ):
        text = text.replace(f"{place}/", f"{found}/")
    for port in (8643, 8443):
        lines = " ".join(f"server {address}:{port};" for address in workers)
        text = text.replace(f"server serve:{port};", lines)
    path = folder / "visitors.conf"
    path.write_text(load_stream() + text)
    process = supervisor.start(
        "visitors-proxy",
        host,
        [program, "-c", str(path), "-g", "daemon off;"],
        environment=environment(folder / "home"),
    )
    until("the proxy's port", lambda: listening(host, 8444), 20)
    return process
