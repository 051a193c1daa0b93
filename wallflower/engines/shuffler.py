"""A shuffler of its own for engines on one machine: a process beside, on loopback.

That it is not independent of the operator is plain: a rehearsal keeps nothing from
whoever runs it.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from wallflower.engines.population import Enrolment
from wallflower.protocol.errors import UnavailableError
from wallflower.protocol.files.keyfiles import public_key_pem
from wallflower.protocol.files.private import write_anew
from wallflower.protocol.secure_sum.backends import SHUFFLE
from wallflower.strategy.config import ExperimentConfig
from wallflower.strategy.transport.shuffler import (
    ShufflerFiles,
    ShufflerPlace,
    stated_shuffler,
)

_START_S = 60.0
_STOP_S = 10.0


@asynccontextmanager
async def local_shuffler(
    config: ExperimentConfig, run_dir: Path, enrolment: Enrolment | None
) -> AsyncIterator[ShufflerPlace | None]:
    """Return the shuffler of the experiment, or start one while inside."""
    settings = config.secure_sum
    if settings.backend != SHUFFLE or settings.shuffler:
        yield stated_shuffler(settings)
        return
    home = run_dir / "shuffler"
    command = [sys.executable, "-m", "wallflower", "shuffler", "--as-child"]
    command += ["--home", str(home)]
    if enrolment is not None:
        write_anew(run_dir / "shuffler.enrolment", public_key_pem(enrolment.public_key))
        command += ["--enrolment", str(run_dir / "shuffler.enrolment")]
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,  # held open: a run that is killed closes it
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield ShufflerPlace(
            await _address(process), ShufflerFiles.read(home / "operator")
        )
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(_STOP_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def _address(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    try:
        async with asyncio.timeout(_START_S):
            line = await process.stdout.readline()
        return str(json.loads(line)["shuffler"])
    except (TimeoutError, ValueError, KeyError):
        raise UnavailableError("the shuffler did not start; see its messages") from None
