"""Attacks on the live page: other names, other sites, frames, endless headers."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from tests.support.half_requests import BEGINNING, half_requests
from tests.support.siege import most_memory
from tests.wallflower.test_run_commands import invoke
from tests.wallflower.test_watch_command import address_in, finished, started
from wallflower.protocol.errors import UnavailableError
from wallflower.watching.serve import LoopbackGuard, open_socket

__all__ = ["finished"]  # a fixture

PATHS = ("/", "/runs/1/", "/runs/1/events", "/live.js", "/nothing")
HALF = 220
MOST_BYTES = 20 * 2**20


async def show_secret(request: Request) -> PlainTextResponse:
    return PlainTextResponse("the run")


def send(method: str, path: str, **more: Any) -> httpx.Response:
    guard = LoopbackGuard(Starlette(routes=[Route("/{path:path}", show_secret)]))

    async def request() -> httpx.Response:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(guard), base_url="http://127.0.0.1:8642"
        ) as client:
            return await client.request(method, path, **more)

    return asyncio.run(request())


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:9000", "127.0.0.1:1", "[::1]:8642", "LOCALHOST"]
)
def test_loopback_answers_to_its_own_names_on_any_port(host: str) -> None:
    assert send("GET", "/", headers={"host": host}).text == "the run"


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8642",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "evil.example#localhost",
        "[::1].evil.example",
        "localhost@evil.example",
        "",
        "0.0.0.0",
    ],
)
@pytest.mark.parametrize("path", PATHS)
def test_a_name_that_was_made_to_point_here_learns_nothing(
    host: str, path: str
) -> None:
    answer = send("GET", path, headers={"host": host})
    assert (answer.status_code, "the run" in answer.text) == (421, False)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize("mode", ["no-cors", "cors", "same-origin"])
def test_another_website_opens_no_stream_and_embeds_nothing(
    site: str, mode: str
) -> None:
    headers = {"sec-fetch-site": site, "sec-fetch-mode": mode}
    answer = send("GET", "/runs/1/events", headers=headers)
    assert (answer.status_code, "the run" in answer.text) == (403, False)
    assert "access-control-allow-origin" not in answer.headers


def test_another_website_may_link_to_the_page() -> None:
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert send("GET", "/", headers=headers).text == "the run"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_done_but_looking(method: str) -> None:
    assert send(method, "/runs/1/").status_code == 405


@pytest.mark.parametrize(
    ("status", "method", "headers"),
    [
        (200, "GET", {}),
        (403, "GET", {"sec-fetch-site": "cross-site"}),
        (405, "POST", {}),
        (421, "GET", {"host": "evil.example"}),
    ],
)
def test_every_answer_forbids_scripts_of_others_frames_and_copies(
    status: int, method: str, headers: dict[str, str]
) -> None:
    answer = send(method, "/", headers=headers)
    assert answer.status_code == status
    policy = dict(
        part.strip().split(" ", 1)
        for part in answer.headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"


def test_the_command_has_no_option_for_other_hosts(tmp_path: Path) -> None:
    code, text = invoke("watch", tmp_path, "--host", "0.0.0.0")
    assert code == 2
    assert "No such option" in text


def test_the_page_listens_on_loopback_alone() -> None:
    with open_socket(0) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"


def test_a_chosen_port_that_is_taken_is_refused_and_the_default_gives_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        with pytest.raises(UnavailableError, match=f"127.0.0.1:{taken} "):
            open_socket(taken)
        monkeypatch.setattr("wallflower.watching.serve.DEFAULT_PORT", taken)
        with open_socket(None) as listener:
            assert listener.getsockname()[1] != taken


@pytest.fixture
def page(finished: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    with started("watch", finished, "--port", "0") as process:
        assert process.stdout is not None
        port = urlsplit(address_in(process.stdout.readline())).port
        assert port is not None
        yield process, port


async def read_status(port: int) -> bytes:
    """Request the page; return the first line of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(BEGINNING + b"Connection: close\r\n\r\n")
    line = await reader.readline()
    writer.transport.abort()
    return line


async def test_half_requests_shut_nobody_out(
    page: tuple[subprocess.Popen[str], int],
) -> None:
    _, port = page
    async with half_requests(port, HALF):
        for _ in range(5):
            assert b" 307 " in await read_status(port)


async def test_endless_headers_are_not_kept(
    page: tuple[subprocess.Popen[str], int],
) -> None:
    process, port = page
    assert b" 307 " in await read_status(port)
    before = await most_memory(process.pid, 0.5)
    async with half_requests(port, 20, header_bytes=24 * 2**20):
        held = await most_memory(process.pid, 1.0) - before
        assert held < MOST_BYTES, f"{held / 2**20:.0f} MiB"
        assert b" 307 " in await read_status(port)
