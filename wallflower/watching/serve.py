"""Serve the live page: where it listens, and what it asks for there."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ipaddress
import secrets
import signal
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import uvicorn

from wallflower.child import wait_for_parent_end
from wallflower.protocol.errors import InputError, UnavailableError
from wallflower.protocol.files import keyfiles
from wallflower.protocol.identity.certificates import is_valid_at, names_host
from wallflower.watching.access import LOOPBACK, Guard
from wallflower.watching.connections import (
    MOST_HEADER_BYTES,
    ConnectionLimiter,
    Listener,
    protocol_for,
)
from wallflower.watching.site import Site

DEFAULT_PORT = 8642
_LEAST_TOKEN = 32  # characters: nobody guesses it
_LAST_WORDS_S = 3


@dataclass(frozen=True, slots=True)
class Place:
    """Where a page is served, as the command line says it.

    Attributes
    ----------
    port : None tries the usual one, then any that is free.
    certificate, private_key : PEM files; both or none.
    token_file : holds the token; made if it is not there.
    """

    host: str = "127.0.0.1"
    port: int | None = None
    certificate: Path | None = None
    private_key: Path | None = None
    token_file: Path | None = None

    @property
    def tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.certificate is not None


def check(place: Place) -> None:
    """Refuse to show a run to others unasked, or in clear."""
    if (place.certificate is None) != (place.private_key is None):
        raise InputError(
            "certificate", "one file", "--certificate and --private-key together"
        )
    if place.certificate is not None and place.private_key is not None:
        _check_pair(place.certificate, place.private_key)
    if is_loopback(place.host):
        return
    missing = [
        option
        for option, value in (
            ("--certificate and --private-key", place.certificate),
            ("--token-file", place.token_file),
        )
        if value is None
    ]
    if missing:
        raise InputError(
            "host",
            f"{place.host} without {' and without '.join(missing)}",
            "127.0.0.1, or TLS and a token: anybody who reaches this address could "
            "look",
        )


def is_loopback(host: str) -> bool:
    """Tell whether everything that a host name stands for is this machine alone."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise InputError(
            "host", f"{host} ({error})", "an address of this machine"
        ) from None
    return all(ipaddress.ip_address(str(each[4][0])).is_loopback for each in found)


def token_of(path: Path) -> str:
    """Read the token, or make one for this account alone."""
    if not path.exists():
        keyfiles.write_private(path, f"{secrets.token_urlsafe(32)}\n".encode())
    token = keyfiles.read_private(path).decode("utf-8", "replace").strip()
    if len(token) < _LEAST_TOKEN:
        raise InputError(
            "token-file",
            f"{path} with {len(token)} characters",
            f"at least {_LEAST_TOKEN}; delete the file and a token is made",
        )
    return token


def listening(place: Place) -> socket.socket:
    """Open the socket; the usual port gives way to another, a wished one does not."""
    wished = DEFAULT_PORT if place.port is None else place.port
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    ports = (wished, 0) if place.port is None else (wished,)
    problem = ""
    for port in ports:
        try:
            return socket.create_server((place.host, port), family=family)
        except OSError as error:
            problem, _, _ = str(error.strerror).partition(" (")
    raise UnavailableError(
        f"the page cannot listen on {place.host}:{wished} ({problem}); choose another "
        "--port, or 0 for any"
    )


async def serve(
    directories: Sequence[Path],
    place: Place,
    say: Callable[[str], None],
    *,
    child: bool,
) -> None:
    """Serve until SIGINT or SIGTERM; as a `child` until standard input ends.

    Parameters
    ----------
    directories : Sequence[Path]
        The runs.
    place : Place
        Where; `check` it first.
    say : Callable[[str], None]
        Gets the page's address, once it is there.
    child : bool
        Whether another process started this one and ends it by going away.
    """
    token = None if place.token_file is None else token_of(place.token_file)
    site = Site(directories)
    await site.begin()
    guarded = Guard(site.app(), allowed_names(place), token, tls=place.tls)
    doorway = ConnectionLimiter()
    with Listener(listening(place), doorway) as opened:
        server = _Server(_settings(guarded, place, doorway), site.end)
        scheme = "https" if place.tls else "http"
        host = f"[{place.host}]" if ":" in place.host else place.host
        say(f"{scheme}://{host}:{opened.getsockname()[1]}/")
        async with asyncio.TaskGroup() as group:
            group.create_task(site.keep())
            beside = [group.create_task(_until_input_ends(server))] if child else []
            await server.serve(sockets=[opened])
            for task in beside:
                task.cancel()
            site.end()


class _Server(uvicorn.Server):
    """Lets the site tell the last before connections are closed."""

    def __init__(self, config: uvicorn.Config, ending: Callable[[], None]) -> None:
        super().__init__(config)
        self._ending = ending

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take a signal as the wish to end, not as a failure."""
        self._ending()
        self.force_exit = self.should_exit
        self.should_exit = True


def _settings(app: Guard, place: Place, doorway: ConnectionLimiter) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=protocol_for(doorway),
        h11_max_incomplete_event_size=MOST_HEADER_BYTES,
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=_LAST_WORDS_S,
        ssl_certfile=place.certificate,
        ssl_keyfile=place.private_key,
    )


def allowed_names(place: Place) -> Callable[[str], bool]:
    """Give the rule by which a host name is one of the page's own."""
    if place.certificate is None:
        return LOOPBACK.__contains__
    certificate = place.certificate.read_bytes()
    own = is_loopback(place.host)

    def names(host: str) -> bool:
        bare = host.strip("[]")
        with contextlib.suppress(ValueError):  # no host name at all
            return names_host(certificate, bare) or (own and host in LOOPBACK)
        return False

    return names


def _check_pair(certificate: Path, private_key: Path) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
            certificate, private_key
        )
        text = certificate.read_bytes()
    except (ssl.SSLError, OSError) as error:
        raise InputError(
            "certificate",
            f"{certificate} with {private_key} ({error})",
            "a PEM certificate and its key",
        ) from None
    if not is_valid_at(text, datetime.datetime.now(datetime.UTC)):
        raise InputError(
            "certificate", f"{certificate}, expired or not valid yet", "one in time"
        )


async def _until_input_ends(server: _Server) -> None:
    """End the server when whoever started it is gone."""
    await wait_for_parent_end()
    server.handle_exit(signal.SIGTERM, None)
