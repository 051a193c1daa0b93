"""Notice within seconds that the ServerApp of a run died.

Flower reports it after most of a minute, when a lease runs out. But the server of a run
holds the lock in its directory, and the kernel frees it the moment that process dies.
Where the directory's disk knows no locks, Flower's report remains.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from wallflower.protocol.errors import UnavailableError, WallflowerError
from wallflower.strategy.run.run_state import standing
from wallflower.strategy.server_app_files import FAILURE_FILE
from wallflower.strategy.store import pausing
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.store.store import RunLock

_LOOK_S = 0.5
# A server that ends in order frees the lock before it leaves its last note.
_LAST_WORDS_S = 5.0


@asynccontextmanager
async def while_server_lives(run_dir: Path) -> AsyncIterator[None]:
    """Do what is inside; raise UnavailableError if the run's server dies meanwhile."""
    inside = asyncio.current_task()
    assert inside is not None
    died = False

    async def watch() -> None:
        nonlocal died
        await _wait_for_death(run_dir)
        died = True
        inside.cancel()

    watching = asyncio.create_task(watch())
    try:
        yield
    except asyncio.CancelledError:
        if died and inside.uncancel() == 0:
            raise UnavailableError(
                f"the ServerApp of {run_dir} died without a word (was it killed?); "
                "finished rounds are kept"
            ) from None
        raise
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching


async def _wait_for_death(run_dir: Path) -> None:
    """Return when a server was there, is gone, and left no word about its end."""
    while not _is_served(run_dir):  # noqa: ASYNC110 (a lock is asked, it does not tell)
        await asyncio.sleep(_LOOK_S)
    while True:
        await asyncio.sleep(_LOOK_S)
        if not _is_served(run_dir):
            await asyncio.sleep(_LAST_WORDS_S)
            if _is_served(run_dir):
                continue
            if not await asyncio.to_thread(_has_last_words, run_dir):
                return
            await asyncio.Event().wait()  # it ended in order: Flower will say so


def _is_served(run_dir: Path) -> bool:
    with contextlib.suppress(WallflowerError):
        return RunLock.is_held(run_dir)
    return True  # nothing can be told from a lock that cannot be opened


def _has_last_words(run_dir: Path) -> bool:
    """Tell whether a server that is gone ended in order."""
    if (run_dir / FAILURE_FILE).exists() or pausing.asked(run_dir):
        return True
    with contextlib.suppress(WallflowerError), Journal.read(run_dir) as journal:
        last = standing(journal)
        return last is not None and last.finished is not None
    return True  # the record itself cannot be read, which is said elsewhere
