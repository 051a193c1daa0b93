"""A line that loses and delays packets: a relay between two network interfaces.

Run as a program inside the switch's namespace: ``lossy.py LEFT RIGHT LOSS DELAY_MS``.
Both directions are impaired. It needs nothing but raw sockets, so it works where the
kernel was built without ``netem``.
"""

from __future__ import annotations

import heapq
import random
import select
import signal
import socket
import sys
import time

_ALL_PROTOCOLS = 3  # ETH_P_ALL
_OUTGOING = 4  # PACKET_OUTGOING: a copy of what we sent ourselves
_LARGEST_FRAME = 70_000  # segmentation offload hands over frames above the MTU
_SOL_PACKET, _PACKET_VNET_HDR = 263, 15


def _open(interface: str) -> socket.socket:
    line = socket.socket(
        socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_PROTOCOLS)
    )
    # Frames between virtual interfaces carry no checksum yet and may be long; this
    # header keeps that knowledge across the relay, else the receiver drops them.
    line.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
    line.bind((interface, 0))
    return line


def relay(left: str, right: str, loss: float, delay_s: float, seed: int = 1) -> None:
    """Pass frames both ways until terminated."""
    lines = (_open(left), _open(right))
    other = {lines[0]: lines[1], lines[1]: lines[0]}
    chance = random.Random(seed)  # noqa: S311 - which packet is lost is no secret
    waiting: list[tuple[float, int, socket.socket, bytes]] = []
    serial = 0
    while True:
        pause = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        readable, _, _ = select.select(lines, [], [], pause)
        for line in readable:
            frame, source = line.recvfrom(_LARGEST_FRAME)
            if source[2] == _OUTGOING or chance.random() < loss:
                continue
            serial += 1
            due = time.monotonic() + delay_s
            heapq.heappush(waiting, (due, serial, other[line], frame))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, line, frame = heapq.heappop(waiting)
            try:
                line.send(frame)
            except OSError:
                continue  # a frame larger than the line takes is lost, as in real life


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    relay(sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4]) / 1000)
