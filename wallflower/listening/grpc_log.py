"""What gRPC itself prints, taken off the operator's terminal: to the log, and counted.

gRPC's core writes a line to C's ``stderr`` for every TLS handshake that fails, so that
a port scan fills a terminal. It cannot be told to write elsewhere. C's ``stderr`` is a
variable, though: while somebody listens here it is a pipe. Python's own
``sys.stderr`` is not touched. Where the variable is not found nothing is changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
from collections.abc import Callable

from wallflower.listening.limits import TokenBucket

_log = logging.getLogger(__name__)
_FAILED_HANDSHAKE = "Handshake failed"
_LINES_PER_S, _LINES_AT_ONCE = 10, 100
_UNBUFFERED = 2  # stdio's _IONBF
_CHUNK_BYTES = 65_536


class _Pipe:
    """A pipe with C's view of its one end; made once and kept, as C may still hold it.

    Neither end blocks: rather than wait for us, gRPC loses lines.
    """

    def __init__(self) -> None:
        libc = ctypes.CDLL(None)
        self._variable = ctypes.c_void_p.in_dll(libc, "stderr")
        self._terminal = self._variable.value
        self._reading, writing = os.pipe()
        os.set_blocking(self._reading, False)
        os.set_blocking(writing, False)
        libc.fdopen.restype = ctypes.c_void_p
        self._file = libc.fdopen(writing, b"w")
        libc.setvbuf(ctypes.c_void_p(self._file), None, _UNBUFFERED, 0)
        self._listeners: list[GrpcLines] = []

    def add(self, listener: GrpcLines) -> None:
        """Send the lines to a listener; of several the latest gets them."""
        # Who died without a word left no loop behind.
        living = [each for each in self._listeners if not each.loop.is_closed()]
        self._listeners = [*living, listener]
        if not living:
            listener.loop.add_reader(self._reading, self.read)
            self._variable.value = self._file

    def remove(self, listener: GrpcLines) -> None:
        """Send a listener the last lines, and no more."""
        self.read()
        self._listeners.remove(listener)
        if not self._listeners:
            self._variable.value = self._terminal
            listener.loop.remove_reader(self._reading)

    def read(self) -> None:
        """Hand out what gRPC wrote."""
        with contextlib.suppress(BlockingIOError):
            text = os.read(self._reading, _CHUNK_BYTES).decode("utf-8", "replace")
            for line in text.splitlines():
                self._listeners[-1].hear(line)


_pipes: list[_Pipe] = []


def _the_pipe() -> _Pipe | None:
    if not _pipes:
        try:
            _pipes.append(_Pipe())
        except (AttributeError, OSError, ValueError):
            return None
    return _pipes[0]


class GrpcLines:
    """Logs what gRPC prints, from its making until `close`.

    Parameters
    ----------
    count_failed : Callable[[], None]
        Called for every TLS handshake that failed.
    """

    def __init__(self, count_failed: Callable[[], None]) -> None:
        self.loop = asyncio.get_running_loop()
        self._count_failed = count_failed
        self._lines = TokenBucket(_LINES_PER_S, _LINES_AT_ONCE, self.loop.time())
        self._pipe = _the_pipe()
        if self._pipe is not None:
            self._pipe.add(self)

    def hear(self, line: str) -> None:
        """Take one line."""
        failed = _FAILED_HANDSHAKE in line
        if failed:
            self._count_failed()
        if self._lines.take(self.loop.time()):  # a scan must not flood the log
            event = "tls-handshake-failed" if failed else "grpc"
            text = line.partition("] ")[2] or line
            _log.info(event, extra={"event": event, "detail": text})

    def close(self) -> None:
        """Restore gRPC's own output."""
        if self._pipe is not None:
            self._pipe.remove(self)
