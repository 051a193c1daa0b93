"""Validate what cannot be run here with its own schema tools: ``make check-deploy``.

A tool that is missing is named as such and the rest goes on: the last line says what
was checked and what was not. Nothing here needs a container engine or a cluster.
"""

from __future__ import annotations

import datetime
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
_COMPOSE_LAYERS = (
    ("base.yaml",),
    ("base.yaml", "tls.yaml"),
    ("base.yaml", "tls.yaml", "state.yaml"),
    ("node.yaml",),
    ("shuffler.yaml",),
    ("visitors.yaml",),
)


class MissingToolError(Exception):
    """A checker is not installed."""


def _tool(*names: str) -> str:
    for name in names:
        beside = Path(sys.executable).with_name(name)
        found = str(beside) if beside.exists() else shutil.which(name)
        if found is None and Path("/usr/sbin", name).exists():
            found = f"/usr/sbin/{name}"
        if found is not None:
            return found
    raise MissingToolError(f"{names[0]} is not installed")


def _run(command: Sequence[str], **environment: str) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    if done.returncode != 0:
        raise ValueError((done.stdout + done.stderr).strip())
    return done.stdout + done.stderr


def check_dockerfiles(scratch: Path) -> str:
    """Lint the images' recipes with hadolint."""
    del scratch
    files = sorted(str(path) for path in (FOLDER / "images").glob("*.Dockerfile"))
    _run([_tool("hadolint"), *files])
    return f"hadolint: {len(files)} Dockerfiles"


def check_compose(scratch: Path) -> str:
    """Merge and validate every allowed combination of compose layers."""
    tool = _tool("docker-compose")
    settings = {
        "KEYS": str(scratch),
        "STATE": str(scratch),
        "PROXY_CONF": str(scratch / "nginx.conf"),
        "FLEET": "operator.example:443",
        "ADDRESS": "shuffler.example",
        "RUN": str(scratch),
        "PGPASS": str(scratch / "pgpass"),
        "DB_PASSWORD": str(scratch / "password"),
        "ORIGIN": "https://shop.example",
    }
    for layers in _COMPOSE_LAYERS:
        files = [word for n in layers for word in ("-f", str(FOLDER / "compose" / n))]
        _run([tool, *files, "config", "-q"], **settings)
    return f"docker-compose config: {len(_COMPOSE_LAYERS)} combinations"


def check_kubernetes(scratch: Path) -> str:
    """Build all kustomizations and validate them against Kubernetes' schemas."""
    kubectl, validator = _tool("kubectl"), _tool("kubernetes-validate")
    places = ("operator", "node", "shuffler", "visitors")
    for name in places:
        built = scratch / f"{name}.yaml"
        built.write_text(
            _run([kubectl, "kustomize", str(FOLDER / "kubernetes" / name)])
        )
        _run([validator, "--strict", str(built)])
    return f"kubectl kustomize and kubernetes-validate --strict: {', '.join(places)}"


def check_systemd(scratch: Path) -> str:
    """Verify the units; the programs they start are stood in for by a true binary."""
    tool = _tool("systemd-analyze")
    units = []
    for path in sorted((FOLDER / "systemd").glob("*.service")):
        # The installed programs are absent on a build machine; everything else counts.
        text = path.read_text().replace("/opt/wallflower/bin/", "/bin/true ")
        unit = scratch / path.name.replace("@", "@check")
        unit.write_text(text)
        units.append(str(unit))
    said = _run([tool, "verify", *units])
    if said.strip():
        raise ValueError(said.strip())
    return f"systemd-analyze verify: {len(units)} units"


def check_proxy(scratch: Path) -> str:
    """Render the proxy's configuration with fresh keys and let nginx test it."""
    from deploy.harness.proxy import load_stream
    from wallflower.protocol.identity.certificates import (
        make_authority,
        make_server_certificate,
    )

    nginx = _tool("nginx")
    now = datetime.datetime.now(datetime.UTC)
    authority = make_authority("check", now=now)
    pair = make_server_certificate(authority, ["localhost"], now=now)
    (scratch / "ca.crt").write_bytes(authority.certificate)
    (scratch / "server.crt").write_bytes(pair.certificate)
    (scratch / "server.key").write_bytes(pair.private_key)
    folders = [f"{word}={scratch}" for word in ("KEYS", "RUN", "LOGS")]
    rendered = scratch / "nginx.conf"
    rendered.write_text(_run([str(FOLDER / "render-proxy"), *folders]))
    _run([nginx, "-t", "-c", str(rendered)])
    visitors = scratch / "visitors.conf"
    text = (FOLDER / "proxy" / "visitors.conf").read_text()
    for place in ("/keys", "/run/wallflower", "/var/log/wallflower"):
        text = text.replace(f"{place}/", f"{scratch}/")
    # Nobody resolves the workers' name here.
    text = text.replace("server serve:", "server 127.0.0.1:")
    visitors.write_text(load_stream() + text)
    _run([nginx, "-t", "-c", str(visitors)])
    return "nginx -t: the rendered proxy, and that of people who arrive"


CHECKS: tuple[Callable[[Path], str], ...] = (
    check_dockerfiles,
    check_compose,
    check_kubernetes,
    check_systemd,
    check_proxy,
)


def main() -> int:
    """Run all checks; 1 if one failed."""
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for check in CHECKS:
            try:
                sys.stdout.write(f"ok       {check(Path(folder))}\n")
            except MissingToolError as missing:
                sys.stdout.write(f"missing  {missing}; {check.__name__} was not run\n")
            except ValueError as problem:
                failed += 1
                sys.stdout.write(f"FAILED   {check.__name__}:\n{problem}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
