"""Connections of the live page: how many, from where, how long, and how much they hold.

Anybody who reaches the port may connect, so a connection is worth nothing until it has
asked something. When all places are taken, the connection that has waited longest
without asking makes room for the next: requests that never end shut nobody out.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from wallflower.listening.limits import network_of

MOST_CONNECTIONS = 200
MOST_HEADER_BYTES = 16 * 1024
# For a request to be complete, and for the next one on the same connection.
_ASKING_S = 5.0

_Peer = tuple[Any, ...]


class ConnectionLimiter:
    """Who is connected, the longest first, and who of them is waiting to ask.

    Of connections that wait no network (/24, /64) has more than half of all places.
    """

    def __init__(self, most: int = MOST_CONNECTIONS) -> None:
        self._most = most
        self._open: dict[_Peer, OpenConnection] = {}

    def __len__(self) -> int:
        """How many are connected."""
        return len(self._open)

    def let_in(self, guest: OpenConnection) -> bool:
        """Take a new connection in; another one may have to go for it."""
        waiting = [each for each in self._open.values() if each.waits]
        near = [each for each in waiting if each.network == guest.network]
        if len(near) >= self._most // 2:
            near[0].turn_out()
        elif len(self._open) >= self._most:
            if not waiting:
                return False
            waiting[0].turn_out()
        self._open[guest.peer] = guest
        return True

    def forget(self, guest: OpenConnection) -> None:
        """Free the place of a connection that is gone."""
        if self._open.get(guest.peer) is guest:
            del self._open[guest.peer]

    def set_waiting(self, peer: _Peer, *, waits: bool) -> None:
        """Note whether a connection waits to ask, or is being answered."""
        guest = self._open.get(peer)
        if guest is not None:
            guest.waits = waits


class OpenConnection(socket.socket):
    """One connection, which tells the doorway when it is closed."""

    def __init__(self, doorway: ConnectionLimiter, fileno: int, peer: _Peer) -> None:
        super().__init__(fileno=fileno)
        self.peer = peer
        self.network = network_of(str(peer[0]))
        self.waits = True
        self._doorway = doorway

    def turn_out(self) -> None:
        """End the connection; whoever reads from it sees its end."""
        self._doorway.forget(self)
        with contextlib.suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close it, and free its place."""
        self._doorway.forget(self)
        super().close()


class Listener(socket.socket):
    """A listening socket that lets in as many as the doorway does."""

    def __init__(self, opened: socket.socket, doorway: ConnectionLimiter) -> None:
        super().__init__(opened.family, opened.type, opened.proto, opened.detach())
        self._doorway = doorway

    def accept(self) -> tuple[socket.socket, _Peer]:
        """Accept the next connection, or close it where there is no room."""
        connected, peer = super().accept()
        guest = OpenConnection(self._doorway, connected.detach(), peer)
        if not self._doorway.let_in(guest):
            guest.close()
            raise ConnectionAbortedError("no place is free")
        return guest, peer


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 as uvicorn speaks it, to those who ask in time."""

    doorway: ConnectionLimiter
    _peer: _Peer = ()
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Give a new connection its time to ask."""
        super().connection_made(transport)
        self._peer = transport.get_extra_info("peername")
        self._settle()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop its clock."""
        self._stop_clock()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Take what arrived; a whole request stops the clock, a part does not."""
        super().handle_events()
        self._settle()

    def on_response_complete(self) -> None:
        """Give the next request its time."""
        super().on_response_complete()
        self._settle()

    def _settle(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_clock()
            self.doorway.set_waiting(self._peer, waits=False)
        elif self._deadline is None and not self.transport.is_closing():
            self.doorway.set_waiting(self._peer, waits=True)
            self._deadline = self.loop.call_later(_ASKING_S, self.transport.abort)

    def _stop_clock(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def protocol_for(doorway: ConnectionLimiter) -> type[asyncio.Protocol]:
    """Give the protocol of a page whose connections a doorway counts."""
    return type("PageProtocol", (BoundedProtocol,), {"doorway": doorway})
