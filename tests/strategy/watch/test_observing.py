from __future__ import annotations

import asyncio
import json

import pytest

from deploy.harness.processes import free_port
from wallflower.strategy.store.events import RunStarted
from wallflower.strategy.transport.grpc.stats import GrpcServerStats
from wallflower.strategy.watch.observing import METRICS, observe_run

STARTED = RunStarted("r1", ("a", "b"), 4, 400, 400, 0)


async def get(port: int, path: str) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
    text = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    return text


async def test_metrics_are_served_while_the_run_is_under_way() -> None:
    port, stats = free_port(), GrpcServerStats()
    async with observe_run("r1", stats, {METRICS: f"127.0.0.1:{port}"}) as listen:
        await listen(STARTED)
        assert "503" in (await get(port, "/health/ready")).splitlines()[0]
        stats.connected = 4
        assert "200" in (await get(port, "/health/ready")).splitlines()[0]
        text = await get(port, "/metrics")
    assert 'wallflower_run_info{run="r1"} 1.0' in text
    assert "wallflower_run_nodes 4.0" in text
    assert "wallflower_grpc_nodes_connected 4.0" in text
    with pytest.raises(ConnectionRefusedError):
        await get(port, "/metrics")


async def test_json_logs_are_written_when_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with observe_run("r1", None, {"WALLFLOWER_LOGS": "json"}) as listen:
        await listen(STARTED)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["event"], line["run"]) for line in lines] == [("run started", "r1")]


async def test_nothing_is_opened_or_written_without_being_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with observe_run("r1", GrpcServerStats(), {}) as listen:
        await listen(STARTED)
    assert capsys.readouterr().err == ""
