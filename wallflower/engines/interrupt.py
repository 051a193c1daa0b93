"""Ctrl-C as a question that is asked between steps, not an exception anywhere.

The first SIGINT (or SIGTERM) asks a loop to end after its current step; a second one
breaks off at once.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interruption:
    """Whether someone asked to stop."""

    def __init__(self) -> None:
        self.asked = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Note the wish; insist the second time."""
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Catch SIGINT and SIGTERM inside the block."""
    interruption = Interruption()
    caught = (signal.SIGINT, signal.SIGTERM)
    former = [signal.signal(number, interruption.handle) for number in caught]
    try:
        yield interruption
    finally:
        for number, handler in zip(caught, former, strict=True):
            signal.signal(number, handler)
