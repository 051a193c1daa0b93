"""Who gets to see the live page: names, token, headers, for every request.

A page on loopback answers to loopback's names only, so that a website whose name
suddenly means 127.0.0.1 learns nothing (DNS rebinding). Elsewhere it answers to the
names of its certificate and asks for a token, which a browser trades for a cookie: it
never stands in an address, a log or a command line.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse
from starlette.responses import Response as Answer
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from wallflower.results import page

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; "
    "style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
_OPEN = frozenset({"/page.css", "/flower.svg"})  # what the form for the token needs
_MOST_FORM_BYTES = 4096
_FORM_S = 5.0
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]]+)(?::\d*)?")


class Guard:
    """Lets requests through to `app`, or answers them itself.

    Parameters
    ----------
    app : ASGIApp
        The pages.
    names : Callable[[str], bool]
        Tells whether a host name, without its port, is one of ours.
    token : str, optional
        What a visitor must know.
    tls : bool
        Whether connections are encrypted; then the cookie never leaves them.
    """

    def __init__(
        self,
        app: ASGIApp,
        names: Callable[[str], bool],
        token: str | None = None,
        *,
        tls: bool = False,
    ) -> None:
        self._app = app
        self._names = names
        self._token = None if token is None else _digest(token)
        self._tls = tls
        self._cookie = "__Host-wallflower" if tls else "wallflower"
        self._session = secrets.token_urlsafe(32)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            raise RuntimeError(f"only http is served, not {scope['type']}")

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
            await send(message)

        answer = await self._refusal(Request(scope, receive))
        chosen = self._app if answer is None else answer
        await chosen(scope, receive, send_guarded)

    async def _refusal(self, request: Request) -> Answer | None:
        """Answer what must not reach the pages; None lets it through."""
        if not self._names(host_name(request.headers)):
            return PlainTextResponse("This page has another name.\n", 421)
        path, method = request.url.path, request.method
        if path == "/enter" and self._token is not None:
            return await self._enter(request)
        if method not in ("GET", "HEAD"):
            return PlainTextResponse("Only GET is answered.\n", 405)
        # Other websites may link here, but not open streams or embed files.
        site = request.headers.get("sec-fetch-site", "none")
        if site not in ("same-origin", "none") and (
            request.headers.get("sec-fetch-mode") != "navigate"
        ):
            return PlainTextResponse("Not for other websites.\n", 403)
        if self._token is None or path in _OPEN or self._known(request.headers):
            return None
        return _form(wrong=False)

    async def _enter(self, request: Request) -> Answer:
        if request.method != "POST":
            return RedirectResponse("/", 303)
        body = b""
        try:
            async with asyncio.timeout(_FORM_S):
                async for part in request.stream():
                    body += part
                    if len(body) > _MOST_FORM_BYTES:
                        return PlainTextResponse("Too long.\n", 413)
        except TimeoutError:
            return PlainTextResponse("Too slow.\n", 408, {"Connection": "close"})
        given = parse_qs(body.decode("utf-8", "replace")).get("token", [""])[0]
        if not self._is_token(given):
            return _form(wrong=True)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(
            self._cookie,
            self._session,
            path="/",
            secure=self._tls,
            httponly=True,
            samesite="strict",
        )
        return answer

    def _known(self, headers: Headers) -> bool:
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self._is_token(given):
            return True
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(self._cookie)
        except CookieError:
            return False
        return cookie is not None and hmac.compare_digest(
            _digest(cookie.value), _digest(self._session)
        )

    def _is_token(self, given: str) -> bool:
        assert self._token is not None
        return hmac.compare_digest(_digest(given.strip()), self._token)


def host_name(headers: Headers) -> str:
    """Give the name that a request asks for, without its port, in small letters.

    Examples
    --------
    >>> host_name(Headers({"host": "LocalHost:80"}))
    'localhost'
    >>> host_name(Headers({"host": "[::1]:80"}))
    '[::1]'
    """
    found = _HOST.fullmatch(headers.get("host", "").lower())
    return "" if found is None else found[1]


def _digest(text: str) -> bytes:
    # Of one length, so that comparing takes the same time for all.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _form(*, wrong: bool) -> Answer:
    return HTMLResponse(
        page.fragment("enter.html", {"wrong": wrong}),
        401,
        {"WWW-Authenticate": "Bearer"},
    )
