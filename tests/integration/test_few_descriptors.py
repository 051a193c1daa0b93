"""A run over gRPC with few file descriptors, and strangers who hold connections."""

from __future__ import annotations

import os
import resource
import shlex
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.harness.processes import free_port
from tests.support.run_fixtures import command, environment, write

NODES, SILENT = 200, 3_000
EXPERIMENT = f"""
[experiment]
name = "crowded"
arms = ["a", "b"]
failure-probability = 0.001
[policy]
first-batch = 60
[nodes]
count = {NODES}
users = 80
[rewards]
means = [0.5, 0.5]
[transport]
kind = "grpc"
port = PORT
"""
# Root may raise a hard limit, so the run gives up that right first.
WITHOUT_THE_RIGHT = (
    ("setpriv", "--bounding-set", "-sys_resource") if os.geteuid() == 0 else ()
)


@contextmanager
def many_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < SILENT + 500:
        pytest.skip(f"strangers need {SILENT + 500} descriptors, {hard} are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, SILENT + 500), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connect_silently(port: int, strangers: list[socket.socket]) -> None:
    """Open connections that never say a word; some may not be taken any more."""
    for _ in range(SILENT):
        stranger = socket.socket()
        stranger.setblocking(False)
        stranger.connect_ex(("127.0.0.1", port))
        strangers.append(stranger)


@pytest.mark.slow  # a whole run over TLS, beside three thousand connections
def test_strangers_take_no_descriptor_that_the_run_needs(tmp_path: Path) -> None:
    port, strangers = free_port(), list[socket.socket]()
    file = write(tmp_path, EXPERIMENT.replace("PORT", str(port)))
    words = command("run", file, "--run-dir", tmp_path / "run")
    limit = f"ulimit -n 800; exec {shlex.join(words)}"
    reported = tmp_path / "run" / "events.jsonl"
    with many_descriptors():
        run = subprocess.Popen(
            [*WITHOUT_THE_RIGHT, "sh", "-c", limit],
            cwd=tmp_path,
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            deadline = time.monotonic() + 300
            while not (reported.exists() and "RoundStarted" in reported.read_text()):
                assert time.monotonic() < deadline
                assert run.poll() is None, run.communicate()[1]
                time.sleep(0.02)
            connect_silently(port, strangers)
            _, output = run.communicate(timeout=300)
        finally:
            run.kill()
            run.wait()
            for stranger in strangers:
                stranger.close()
    assert run.returncode == 0, output


def test_a_run_without_room_for_its_nodes_says_so_at_once(tmp_path: Path) -> None:
    file = write(tmp_path, EXPERIMENT.replace("PORT", "0"))
    words = command("run", file, "--run-dir", tmp_path / "run")
    done = subprocess.run(
        [*WITHOUT_THE_RIGHT, "sh", "-c", f"ulimit -n 600; exec {shlex.join(words)}"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, "may have 600: room for" in done.stderr) == (4, True)
