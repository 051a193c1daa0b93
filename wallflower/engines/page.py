"""The live page beside a run: a process of its own that ends with the run.

It takes no time from the run's event loop, and a run that is killed leaves nothing
behind: the page ends when the pipe that the run held open is gone.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wallflower.protocol.errors import UnavailableError

_LAST_WORDS_S = 30.0


@contextmanager
def page_beside(run_dir: Path) -> Iterator[str]:
    """Serve the page of a run while inside; gives its address.

    On leaving, whoever looks gets the last state before the page goes.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "wallflower", "watch", "--as-child", str(run_dir)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is the run's to handle
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        address = process.stdout.readline().strip()
        if not address:
            said = process.stderr.read().strip()
            raise UnavailableError(f"the page could not be opened: {said}")
        yield address
    finally:
        process.stdin.close()
        try:
            process.wait(_LAST_WORDS_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        process.stderr.close()
