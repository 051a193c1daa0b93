"""A gRPC server in a process that loaded gRPC first, and what it says to an old stream.

Run by test_server_tls.py after `import grpc`, as Flower's processes do. A gRPC client
cannot be told to speak TLS 1.2, so the stream is opened by hand: a TLS socket and two
HTTP/2 frames.
"""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import ssl

from tests.support.grpc_fixtures import AUTHORITY, House, open_grpc_server
from wallflower.protocol.identity import tls
from wallflower.protocol.identity.tokens import HANDSHAKE, METHOD

_HEADERS = {
    ":method": "POST",
    ":scheme": "https",
    ":path": METHOD,
    ":authority": "localhost",
    "content-type": "application/grpc",
    "te": "trailers",
    HANDSHAKE: base64.b64encode(b"\xff" * 8).decode(),
}


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags])
    return head + stream.to_bytes(4, "big") + payload


def text(value: str) -> bytes:
    return bytes([len(value)]) + value.encode()


def ends_stream(heard: bytes) -> bool:
    """Find a frame of the stream that says END_STREAM, or resets it."""
    while len(heard) >= 9:
        length, kind, flags = int.from_bytes(heard[:3], "big"), heard[3], heard[4]
        stream = int.from_bytes(heard[5:9], "big")
        if stream == 1 and (kind == 3 or (kind in (0, 1) and flags & 1)):
            return True
        heard = heard[9 + length :]
    return False


def open_stream(port: int, version: ssl.TLSVersion) -> None:
    """Begin a call with headers that are no handshake; read until the gRPC server ends
    it.
    """
    context = ssl.create_default_context(cadata=AUTHORITY.certificate.decode())
    context.set_alpn_protocols(["h2"])
    context.minimum_version = context.maximum_version = version
    headers = b"".join(b"\x00" + text(k) + text(v) for k, v in _HEADERS.items())
    with (
        socket.create_connection(("127.0.0.1", port), timeout=30) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
    ):
        secure.sendall(
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
            + frame(4, 0, 0, b"")
            + frame(1, 4, 1, headers)
        )
        heard = b""
        ended = False
        while not ended and (more := secure.recv(65536)):
            heard += more
            ended = ends_stream(heard)


async def main() -> None:
    async with open_grpc_server(House()) as (grpc_server, port):
        received: dict[str, object] = {"enforced": tls.is_enforced()}
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            grpc_server.stats.refused.clear()
            await asyncio.to_thread(open_stream, port, version)
            [reason] = grpc_server.stats.refused
            received[version.name] = reason
        print(json.dumps(received))


if __name__ == "__main__":
    asyncio.run(main())
