"""The orchestrator's process: ``python -m wallflower.serve.orchestrator RUN_DIR``.

Any number of them may wait, on whatever hosts; the one that has the run's lease works.
When it dies another one takes over within five seconds and goes on from the store.
Nothing is lost by a kill, so that SIGTERM is one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path

from wallflower.child import wait_for_parent_end
from wallflower.engines.registry import EngineJob
from wallflower.engines.visitors import run_visitors
from wallflower.protocol.errors import UnavailableError, WallflowerError
from wallflower.protocol.files.logs import installed_from, log_context
from wallflower.results.result import read_result
from wallflower.strategy.run.arriving.orchestrator import AttemptsSpentError
from wallflower.strategy.store.events import Event, TermsRefused
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.store.run_store import is_held, requests_of

TRY_AGAIN = 75  # what keeps the run from going on may pass (sysexits' EX_TEMPFAIL)
_LOOK_S = 0.5
_log = logging.getLogger(__name__)


async def _tell(event: Event) -> None:
    """Say who does not agree: nobody else says why no seat is opened."""
    if isinstance(event, TermsRefused):
        sys.stderr.write(f"{event.text}\n")


async def orchestrate(run_dir: Path) -> None:
    """Wait for the run's lease, then bring the run to its end."""
    with Journal.read(run_dir) as journal:
        job = EngineJob(journal.config, run_dir, journal.run_id, _tell)
    with log_context(run=job.run_id):
        # A lease sends no notice.
        while await asyncio.to_thread(is_held, run_dir):  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_S)
        _log.info("orchestrating", extra={"event": "orchestrating"})
        await run_visitors(job)
    with Journal.read(run_dir) as journal:
        finished = read_result(journal).finished
    if finished is None and requests_of(run_dir).is_pause_requested():
        sys.stderr.write(f"paused; to go on: wallflower resume {run_dir}\n")


async def _until_parent_ends(run_dir: Path) -> None:
    work = asyncio.create_task(orchestrate(run_dir))
    parent = asyncio.create_task(wait_for_parent_end())
    await asyncio.wait({work, parent}, return_when=asyncio.FIRST_COMPLETED)
    parent.cancel()
    if not work.done():
        work.cancel()
        await asyncio.wait({work})
        return
    work.result()


def main() -> int:
    """Run the orchestrator; return its exit code."""
    with installed_from(os.environ):
        try:
            asyncio.run(_until_parent_ends(Path(sys.argv[1])))
        except WallflowerError as error:
            sys.stderr.write(f"error: {error}\n")
            passes = isinstance(error, UnavailableError)
            if passes and not isinstance(error, AttemptsSpentError):
                return TRY_AGAIN
            return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
