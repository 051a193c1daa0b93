"""The server process is killed (SIGKILL) and restarted on its spool: the same sum.

Real processes: the gRPC server runs in its own, the nodes in this one, over TLS on
loopback.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from deploy.harness.processes import free_port
from tests.support.grpc_fixtures import QUICK, House, connect_nodes
from tests.support.sum_nodes import one_hot

NODES = 12


async def serve(folder: Path, config: dict[str, Any]) -> tuple[int, bytes]:
    """Run the server process to its end; give exit code and standard output."""
    path = folder / "config.json"
    path.write_text(json.dumps({**config, "folder": str(folder)}))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.integration.grpc_server_process",
        str(path),
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    try:
        async with asyncio.timeout(100):
            out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, out


# Every stage of every back-end, in one process: tests/strategy/run/test_driver.py.
@pytest.mark.slow  # starts two server processes, each importing gRPC
@pytest.mark.parametrize(
    ("backend", "kill"),
    [
        ("sealed", ("seal", 7)),
        # After the contributions and before the first message to the members.
        ("sealed", ("open", 0)),
        ("secagg-plus", ("mask", 7)),
    ],
)
async def test_a_killed_server_gives_the_same_sum_after_its_restart(
    tmp_path: Path, backend: str, kill: tuple[str, int]
) -> None:
    house, nodes = House(), one_hot(NODES)
    (tmp_path / "server.crt").write_bytes(house.server.certificate)
    (tmp_path / "server.key").write_bytes(house.server.private_key)
    port = free_port()
    config = {
        "secret": house.secret.hex(),
        "enrolment": house.enrolment.public_key.hex(),
        "port": port,
        "nodes": sorted(nodes),
        "wait_for": sorted(nodes),
        "backend": backend,
    }
    async with connect_nodes(house, port, nodes, QUICK) as tasks:
        code, out = await serve(tmp_path, {**config, "kill": kill})
        assert (code, out) == (-signal.SIGKILL, b"")
        # Contributors whose answer is on disk need not be there again.
        code, out = await serve(tmp_path, {**config, "kill": None})
        assert code == 0
        ends = [await task for task in tasks.values()]
    outcome = json.loads(out)
    assert outcome["survivors"] == sorted(nodes)
    assert outcome["total"] == 2**NODES - 1
    assert ends == ["finished"] * NODES
