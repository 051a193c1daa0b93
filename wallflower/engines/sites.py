"""Where a run would take place and whom it must reach: looked at beforehand."""

from __future__ import annotations

import os
import socket
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from wallflower.protocol.errors import ConfigError, InputError, UnavailableError
from wallflower.strategy.config import ExperimentConfig

_REACH_S = 5.0
# What Flower's config begins with: a simulation, where no SuperNode ever comes.
_FLOWERS_OWN = ":local:"
_WHICH = (
    "-o connection=NAME or -o address=HOST:PORT of a SuperLink, on engine deployment"
)


def check_place(
    config: ExperimentConfig, engine: str, options: Sequence[tuple[str, str]]
) -> str:
    """Say where it would run; raises UnavailableError where nobody answers."""
    shuffler = config.secure_sum.shuffler
    if shuffler:
        _reach("secure-sum.shuffler", shuffler)
    if engine == "serve":
        place = f"{config.transport.host}:{config.transport.port}"
        return f"trustees connect to {config.transport.public_address or place}"
    if engine != "deployment":
        kind = config.transport.kind
        return "in memory" if kind in ("auto", "memory") else f"over {kind}"
    address = _superlink_address(dict(options))
    if not address or address == _FLOWERS_OWN:
        raise InputError("option", "missing", _WHICH)
    _reach("the SuperLink", address)
    return f"the SuperLink at {address} answers"


def _superlink_address(options: Mapping[str, str]) -> str:
    """Find the SuperLink's address: as told, else from Flower's own config."""
    if "address" in options:
        return options["address"]
    home = Path(os.environ.get("FLWR_HOME") or Path.home() / ".flwr")
    try:
        known = tomllib.loads((home / "config.toml").read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError):
        known = {}
    links = known.get("superlink", {})
    name = options.get("connection", links.get("default", ""))
    found = links.get(name, {})
    if options.get("connection") and not found:
        raise ConfigError(
            str(home / "config.toml"), f'no connection "{name}" in [superlink]'
        )
    return str(found.get("address", "")) if isinstance(found, dict) else ""


def _reach(what: str, address: str) -> None:
    host, _, port = address.rpartition(":")
    if not port.isdigit():
        raise ConfigError(what, f'"{address}" is not host:port')
    try:
        socket.create_connection((host.strip("[]"), int(port)), _REACH_S).close()
    except OSError as error:
        raise UnavailableError(
            f"{what} at {address} cannot be reached ({error.strerror or error}); is it "
            "running, and may this machine reach it?"
        ) from None
