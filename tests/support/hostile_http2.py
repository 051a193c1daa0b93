"""A stranger's HTTP/2 connection, frame by frame: messages that never end.

A gRPC client library sends what it was told to send and hangs up properly. This one
announces a message, sends all of it but the last byte as fast as the server's windows
allow, and keeps the stream open.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
from collections.abc import AsyncIterator

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _WINDOW = 0, 1, 3, 4, 6, 8
_IGNORED = 0xBB  # no type of HTTP/2
_ACK, _END_HEADERS = 1, 4
_MOST_FRAME = 16_384
_WINDOW_SETTING, _STREAMS_SETTING = 4, 3


class HostileConnection:
    """One TLS connection on which calls are begun and never finished.

    `sent` counts the bytes of messages that the server let us send, and `ended` the
    streams that it ended.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.sent = 0
        self.ended: dict[int, str] = {}
        self.closed = asyncio.Event()
        self.most_streams = 100
        self._reader = reader
        self._writer = writer
        self._initial = self._window = 65_535
        self._windows: dict[int, int] = {}
        self._next = 1
        self._changed = asyncio.Event()
        self._settled = asyncio.Event()

    async def follow(self) -> None:
        """Take in what the server says until it hangs up."""
        try:
            while True:
                head = await self._reader.readexactly(9)
                length = int.from_bytes(head[:3], "big")
                kind, flags = head[3], head[4]
                stream = int.from_bytes(head[5:], "big") & 0x7FFFFFFF
                self._take(kind, flags, stream, await self._reader.readexactly(length))
                self._changed.set()
        except (asyncio.IncompleteReadError, OSError):
            self.closed.set()
            self._settled.set()
            self._changed.set()

    def _take(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        if kind == _SETTINGS and not flags & _ACK:
            self._take_settings(body)
        elif kind == _PING and not flags & _ACK:
            self._write(_PING, _ACK, 0, body)
        elif kind == _WINDOW:
            more = int.from_bytes(body, "big")
            if stream == 0:
                self._window += more
            elif stream in self._windows:
                self._windows[stream] += more
        elif kind == _RESET or (kind == _HEADERS and flags & 1):
            self._windows.pop(stream, None)
            self.ended[stream] = "reset" if kind == _RESET else "trailers"

    def _take_settings(self, body: bytes) -> None:
        for number, value in struct.iter_unpack(">HI", body):
            if number == _WINDOW_SETTING:
                for each in self._windows:
                    self._windows[each] += value - self._initial
                self._initial = value
            elif number == _STREAMS_SETTING:
                self.most_streams = value
        self._write(_SETTINGS, _ACK, 0, b"")
        self._settled.set()

    def _write(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        if self.closed.is_set() or self._writer.is_closing():
            return
        head = len(body).to_bytes(3, "big") + bytes([kind, flags])
        self._writer.write(head + stream.to_bytes(4, "big") + body)

    async def settled(self) -> None:
        """Wait until the server said how many streams it allows."""
        await self._settled.wait()

    async def over(self, stream: int) -> None:
        """Wait until the server ends a stream or the connection."""
        while stream in self._windows and not self.closed.is_set():
            self._changed.clear()
            await self._changed.wait()

    async def begin(self, path: str, *fields: tuple[str, str]) -> int:
        """Begin a call; give the number of its stream."""
        await self._settled.wait()
        stream, self._next = self._next, self._next + 2
        self._windows[stream] = self._initial
        named = [
            (":method", "POST"),
            (":scheme", "https"),
            (":path", path),
            (":authority", "localhost"),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            *fields,
        ]
        block = b"".join(
            b"\x00" + _text(name.encode()) + _text(value.encode())
            for name, value in named
        )
        self._write(_HEADERS, _END_HEADERS, stream, block)
        await self._writer.drain()
        return stream

    async def hold(
        self, stream: int, message_bytes: int, piece: int = _MOST_FRAME, beside: int = 0
    ) -> None:
        """Send a message of so many bytes, all but its last, and keep it open.

        In pieces, each beside bytes that the server ignores: what it keeps of a piece
        may keep alive all that was read together with it.
        """
        left = b"\x00" + message_bytes.to_bytes(4, "big")
        await self.send(stream, left)
        await self.send(stream, bytes(message_bytes - 1), piece, beside)

    async def send(
        self, stream: int, body: bytes, piece: int = _MOST_FRAME, beside: int = 0
    ) -> None:
        """Send bytes as the windows allow; give up when the stream is over."""
        view = memoryview(body)
        while view:
            if self.closed.is_set() or stream not in self._windows:
                return
            room = min(self._window, self._windows[stream], piece, len(view))
            if room <= 0:
                self._changed.clear()
                await self._changed.wait()
                continue
            self._window -= room
            self._windows[stream] -= room
            self._write(_DATA, 0, stream, bytes(view[:room]))
            if beside:
                self._write(_IGNORED, 0, 0, bytes(beside))
            self.sent += room
            view = view[room:]
            with contextlib.suppress(OSError):
                await self._writer.drain()


def _text(value: bytes) -> bytes:
    """Write a string for HPACK, as it is."""
    if len(value) < 127:
        return bytes([len(value)]) + value
    size, rest = b"\x7f", len(value) - 127
    while rest >= 128:
        size, rest = size + bytes([rest % 128 + 128]), rest // 128
    return size + bytes([rest]) + value


def _anybody() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context


@contextlib.asynccontextmanager
async def hostile_connection(
    port: int, source: str = "127.0.0.1"
) -> AsyncIterator[HostileConnection]:
    """Connect from an address of loopback, without token or certificate."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=_anybody(), local_addr=(source, 0)
    )
    writer.write(_PREFACE + bytes([0, 0, 0, _SETTINGS, 0, 0, 0, 0, 0]))
    connection = HostileConnection(reader, writer)
    following = asyncio.create_task(connection.follow())
    try:
        yield connection
    finally:
        following.cancel()
        await asyncio.wait([following])
        writer.transport.abort()
