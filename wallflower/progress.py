"""Long calculations in a command: a progress bar, and a way to stop between steps.

Imports nothing heavy: `simulate` from flags starts in less than a second.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[float], None]]:
    """Show the part that is done (0 to 1) while the block runs.

    It is on standard error, and only where that is a terminal.
    """
    if not sys.stderr.isatty():
        yield lambda part: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(title, total=1.0)
        yield lambda part: bars.update(task, completed=part)


class Interruption:
    """Whether someone asked to stop."""

    def __init__(self) -> None:
        self.asked = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Note the first signal; raise KeyboardInterrupt at the second."""
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Catch SIGINT and SIGTERM inside the block, which checks `asked` between steps."""
    interruption = Interruption()
    caught = (signal.SIGINT, signal.SIGTERM)
    former = [signal.signal(number, interruption.handle) for number in caught]
    try:
        yield interruption
    finally:
        for number, handler in zip(caught, former, strict=True):
            signal.signal(number, handler)
