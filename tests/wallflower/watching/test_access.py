"""Attacks on the live page: other names, other sites, guesses, frames, scripts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from wallflower.watching.access import LOOPBACK, Guard

TOKEN = "a token that is long enough to be one"
PATHS = ("/", "/runs/1/", "/runs/1/events", "/live.js", "/nothing")


async def secret(request: Request) -> PlainTextResponse:
    return PlainTextResponse("the run")


class PollingClient:
    """A browser or a program, with its cookies."""

    def __init__(self, guard: Guard, address: str) -> None:
        self._guard = guard
        self._address = address
        self.cookies = httpx.Cookies()

    def request(self, method: str, path: str, **more: Any) -> httpx.Response:
        async def ask() -> httpx.Response:
            async with httpx.AsyncClient(
                transport=httpx.ASGITransport(self._guard),
                base_url=self._address,
                cookies=self.cookies,
            ) as client:
                answer = await client.request(method, path, **more)
                self.cookies = client.cookies
                return answer

        return asyncio.run(ask())

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.request("GET", path, **more)

    def post(self, path: str, **more: Any) -> httpx.Response:
        return self.request("POST", path, **more)


def visitor(
    token: str | None = None,
    *,
    host: str = "127.0.0.1:8642",
    names: Callable[[str], bool] = LOOPBACK.__contains__,
    tls: bool = False,
) -> PollingClient:
    app = Starlette(routes=[Route("/{path:path}", secret)])
    scheme = "https" if tls else "http"
    guard = Guard(app, names, token, tls=tls)
    return PollingClient(guard, f"{scheme}://{host}")


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:9000", "127.0.0.1:1", "[::1]:8642", "LOCALHOST"]
)
def test_loopback_answers_to_its_own_names_on_any_port(host: str) -> None:
    assert visitor().get("/", headers={"host": host}).text == "the run"


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
    answer = visitor().get(path, headers={"host": host})
    assert (answer.status_code, "the run" in answer.text) == (421, False)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize("mode", ["no-cors", "cors", "same-origin"])
def test_another_website_opens_no_stream_and_embeds_nothing(
    site: str, mode: str
) -> None:
    said = {"sec-fetch-site": site, "sec-fetch-mode": mode}
    answer = visitor().get("/runs/1/events", headers=said)
    assert (answer.status_code, "the run" in answer.text) == (403, False)
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_done_but_looking(method: str) -> None:
    assert visitor().request(method, "/runs/1/").status_code == 405


@pytest.mark.parametrize("status", [200, 401, 403, 405, 421])
def test_every_answer_forbids_scripts_of_others_frames_and_copies(status: int) -> None:
    answers = {
        200: lambda: visitor().get("/"),
        401: lambda: visitor(TOKEN).get("/"),
        403: lambda: visitor().get("/", headers={"sec-fetch-site": "cross-site"}),
        405: lambda: visitor().post("/"),
        421: lambda: visitor().get("/", headers={"host": "evil.example"}),
    }
    answer = answers[status]()
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


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer"},
        {"authorization": "Bearer wrong"},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": f"Bearer {TOKEN[:-1]}"},
        {"cookie": "wallflower=; wallflower=x"},
        {"cookie": f"wallflower={TOKEN.split()[0]}"},
        {"cookie": "\x7f=;;;=,"},
    ],
)
def test_without_the_token_nothing_is_shown(path: str, headers: dict[str, str]) -> None:
    answer = visitor(TOKEN).get(path, headers=headers)
    assert (answer.status_code, "the run" in answer.text) == (401, False)


def test_a_token_in_the_address_opens_nothing() -> None:
    answer = visitor(TOKEN).get("/", params={"token": TOKEN})
    assert answer.status_code == 401


def test_a_program_shows_its_token_in_a_header() -> None:
    answer = visitor(TOKEN).get("/", headers={"authorization": f"Bearer {TOKEN}"})
    assert answer.text == "the run"


@pytest.mark.parametrize("tls", [False, True])
def test_a_browser_trades_the_token_for_a_cookie_that_scripts_cannot_read(
    tls: bool,
) -> None:
    browser = visitor(TOKEN, tls=tls)
    entered = browser.post("/enter", data={"token": TOKEN})
    assert (entered.status_code, entered.headers["location"]) == (303, "/")
    cookie = entered.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert ("secure" in cookie, cookie.startswith("__host-")) == (tls, tls)
    assert TOKEN not in entered.headers["set-cookie"]
    assert browser.get("/").text == "the run"


@pytest.mark.parametrize("given", ["", "wrong", TOKEN + "x", TOKEN.upper(), "é\ud800"])
def test_a_wrong_token_is_told_so_and_gets_no_cookie(given: str) -> None:
    answer = visitor(TOKEN).post(
        "/enter", content=b"token=" + given.encode("utf-8", "surrogatepass")
    )
    assert answer.status_code == 401
    assert "That was not it." in answer.text
    assert "set-cookie" not in answer.headers


def test_an_endless_token_is_cut_off() -> None:
    answer = visitor(TOKEN).post("/enter", content=b"token=" + b"x" * 100_000)
    assert answer.status_code == 413


def test_the_cookie_of_one_server_opens_no_other() -> None:
    first, second = visitor(TOKEN), visitor(TOKEN)
    first.post("/enter", data={"token": TOKEN})
    second.cookies.update(first.cookies)
    assert second.get("/").status_code == 401
