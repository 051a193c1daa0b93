from __future__ import annotations

import errno
import os
import socket
import sys
from pathlib import Path

import pytest

from wallflower.engines.ray_start import (
    keep_ray_logs,
    ray_environment,
    reserved_port,
)

only_linux = pytest.mark.skipif(
    sys.platform != "linux", reason="other systems do not share a port in this way"
)


def listen_as_servers_do(port: int) -> socket.socket:
    """Listen as gRPC and uvicorn do: on every address, with the reuse of addresses."""
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("", port))
    server.listen()
    return server


@only_linux
def test_a_server_can_listen_on_a_port_that_is_reserved() -> None:
    with reserved_port() as port, listen_as_servers_do(port):
        with socket.create_connection(("127.0.0.1", port)) as caller:
            assert caller.getpeername() == ("127.0.0.1", port)


@only_linux
def test_no_connection_can_take_a_port_that_is_reserved() -> None:
    """Another address of this host would do, if the port were only looked up."""
    with reserved_port() as port, socket.socket() as caller:
        with pytest.raises(OSError, match=os.strerror(errno.EADDRINUSE)):
            caller.bind(("127.0.3.1", port))


def test_two_reserved_ports_differ() -> None:
    with reserved_port() as one, reserved_port() as other:
        assert one != other


def test_ray_gets_a_port_and_more_time_than_its_own_limits() -> None:
    environment = ray_environment(4711)
    assert environment["RAY_GCS_SERVER_PORT"] == "4711"
    assert int(environment["RAY_gcs_rpc_server_reconnect_timeout_s"]) > 60
    assert int(environment["RAY_agent_register_timeout_ms"]) > 100_000


def test_what_ray_logged_is_kept_before_its_folder_is_removed(tmp_path: Path) -> None:
    logs = tmp_path / "scratch" / "ray" / "session_latest" / "logs"
    logs.mkdir(parents=True)
    (logs / "gcs_server.err").write_text("Address already in use")
    keep_ray_logs(tmp_path / "scratch", tmp_path / "home")
    kept = tmp_path / "home" / "ray-logs" / "gcs_server.err"
    assert kept.read_text() == "Address already in use"


def test_a_ray_that_never_logged_leaves_nothing(tmp_path: Path) -> None:
    keep_ray_logs(tmp_path / "scratch", tmp_path / "home")
    assert list(tmp_path.iterdir()) == []
