"""Register nodes with SuperLink, through Flower's own command line."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from wallflower.engines.process import find_program
from wallflower.protocol.errors import InputError, UnavailableError


def _flwr(*arguments: str) -> str:
    try:
        done = subprocess.run(
            [find_program("flwr"), *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
    except subprocess.TimeoutExpired:
        raise UnavailableError("flwr did not answer within 120 s") from None
    if done.returncode != 0:
        tail = (done.stdout + done.stderr).strip()[-300:]
        raise UnavailableError(f"`flwr {' '.join(arguments)}` failed: {tail}")
    return done.stdout


def register_nodes(keys: Path, names: Sequence[str], superlink: str) -> list[str]:
    """Register the public keys of these nodes (all of the folder when none is named).

    Gives the names that are new to SuperLink; a key it knows already is left alone.
    """
    found = {path.parent.name: path for path in sorted(keys.glob("nodes/*/flower.pub"))}
    for name in names:
        if name not in found:
            known = ", ".join(found) or "none"
            raise InputError("node", f'"{name}"', f"one of {known}")
    new = []
    for name in names or found:
        try:
            _flwr("supernode", "register", str(found[name]), superlink)
        except UnavailableError as error:
            if "already" not in str(error):
                raise
        else:
            new.append(name)
    return new


def nodes_online(superlink: str) -> dict[int, str]:
    """Return each node's Flower id and status."""
    listed = json.loads(_flwr("supernode", "list", superlink, "--format", "json"))
    return {int(node["node-id"]): str(node["status"]) for node in listed["nodes"]}
