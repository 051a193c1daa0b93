"""An orchestrator of people who arrive as a process: ``RUN_DIR``; trustees are inside.

It can be killed at any moment; whoever starts it again goes on from the store. It ends
with TRY_AGAIN where the store is away, as the orchestrator of `wallflower serve` does.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from wallflower.clients.node.ledger import Ledger
from wallflower.clients.node.sessions import SessionStore
from wallflower.engines.arrivals import Keys, make_trustees
from wallflower.protocol.errors import UnavailableError
from wallflower.protocol.identity.enrolment import Trust
from wallflower.serve.orchestrator import TRY_AGAIN
from wallflower.strategy.run.arriving.orchestrator import VisitorOrchestrator
from wallflower.strategy.run.pending_cohorts import make_session_factory
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.transport.memory import MemoryTransport


async def operate(run_dir: Path) -> None:
    """Bring a run to its end."""
    with (
        Journal.resume(run_dir) as journal,
        journal.open_spool() as spool,
        Ledger(run_dir / "trustees.sqlite") as ledger,
    ):
        config = journal.config
        assert config.visitors is not None
        keys = Keys.keep(config.visitors.admission, run_dir)
        sessions = SessionStore(run_dir / "trustees")
        try:
            trustees = make_trustees(config, ledger, keys, sessions)
            trust = Trust(keys.enrolment_key, time.time)
            await VisitorOrchestrator(
                config,
                journal,
                MemoryTransport(dict(trustees)),
                make_session_factory(journal.run_id, trust),
                spool=spool,
                look_s=0.1,
            ).run()
        finally:
            sessions.close()


if __name__ == "__main__":
    try:
        asyncio.run(operate(Path(sys.argv[1])))
    except UnavailableError:
        sys.exit(TRY_AGAIN)
