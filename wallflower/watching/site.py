"""The pages of watched runs, and the events that keep them up to date."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from importlib import resources
from pathlib import Path

from markupsafe import Markup
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

from wallflower.results import page
from wallflower.version import __version__
from wallflower.watching.run import WatchedRun

_FILES = {
    "page.css": "text/css; charset=utf-8",
    "live.js": "text/javascript; charset=utf-8",
    "flower.svg": "image/svg+xml",
}
_RETRY_MS = 1000
_SIGN_OF_LIFE_S = 15.0

Parts = Callable[[], Mapping[str, str]]


class Site:
    """Several runs and whoever looks at them; `keep` follows the runs."""

    def __init__(self, directories: Sequence[Path]) -> None:
        self._lookers: set[asyncio.Event] = set()
        self._over = asyncio.Event()
        self._all_told = False
        self.runs = [
            WatchedRun(number, directory, self._wake_lookers)
            for number, directory in enumerate(directories, 1)
        ]

    def app(self) -> Starlette:
        """Return the application; `access.Guard` belongs in front of it."""
        return Starlette(
            routes=[
                Route("/", self._first),
                Route("/events", self._all_events),
                Route("/runs/{number:int}/", self._run),
                Route("/runs/{number:int}/events", self._run_events),
                Route("/{name}", _file),
            ]
        )

    async def begin(self) -> None:
        """Draw every run once."""
        for run in self.runs:
            await run.begin()

    async def keep(self) -> None:
        """Follow all runs until `end`."""
        async with asyncio.TaskGroup() as group:
            for run in self.runs:
                group.create_task(run.keep(self._over))
        self._all_told = True
        self._wake_lookers()

    def end(self) -> None:
        """Follow the runs no longer; streams end after what is told last."""
        self._over.set()

    def _wake_lookers(self) -> None:
        for looker in self._lookers:
            looker.set()

    async def _first(self, request: Request) -> Response:
        if len(self.runs) == 1:
            return RedirectResponse(self.runs[0].address)
        shown = {"cards": _safe(self._cards()), "version": __version__}
        return HTMLResponse(page.fragment("overview.html", shown))

    async def _run(self, request: Request) -> Response:
        run = self._find_run(request)
        shown = {
            "parts": {"differences": "", "arms": "", **_safe(run.parts)},
            "events": f"{run.address}events",
            "more": len(self.runs) if len(self.runs) > 1 else 0,
            "version": __version__,
        }
        return HTMLResponse(page.fragment("live.html", shown))

    async def _all_events(self, request: Request) -> Response:
        return self._stream(self._cards)

    async def _run_events(self, request: Request) -> Response:
        run = self._find_run(request)
        return self._stream(lambda: run.parts)

    def _find_run(self, request: Request) -> WatchedRun:
        number = int(request.path_params["number"])
        if not 1 <= number <= len(self.runs):
            raise HTTPException(404)
        return self.runs[number - 1]

    def _cards(self) -> Mapping[str, str]:
        return {str(run.number): run.card for run in self.runs}

    def _stream(self, parts: Parts) -> Response:
        return StreamingResponse(
            self._stream_events(parts), media_type="text/event-stream"
        )

    async def _stream_events(self, parts: Parts) -> AsyncIterator[str]:
        """Yield all parts, then those that change; a slow reader gets only the last."""
        sent: dict[str, str] = {}
        fresh = asyncio.Event()
        async with AsyncExitStack() as stack:
            self._lookers.add(fresh)
            stack.callback(self._lookers.discard, fresh)
            yield f"retry: {_RETRY_MS}\n\n"
            while True:
                last = self._all_told
                for name, html in dict(parts()).items():
                    if sent.get(name) != html:
                        sent[name] = html
                        data = json.dumps({"part": name, "html": html})
                        yield f"event: part\ndata: {data}\n\n"
                if last:
                    return
                try:
                    async with asyncio.timeout(_SIGN_OF_LIFE_S):
                        await fresh.wait()
                except TimeoutError:
                    yield ":\n\n"  # so that a connection that broke is noticed
                fresh.clear()


def _safe(parts: Mapping[str, str]) -> dict[str, Markup | str]:
    """Say that parts are markup already; a title is text."""
    return {
        name: html if name == "title" else Markup(html)  # noqa: S704 (our templates)
        for name, html in parts.items()
    }


async def _file(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _FILES:
        raise HTTPException(404)
    path = resources.files("wallflower.results") / "templates" / name
    return Response(path.read_bytes(), media_type=_FILES[name])
