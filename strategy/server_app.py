"""The Flower ServerApp: one experiment, from `flwr run` to its winner.

The run config says which experiment (`strategy.flower_config`); the journal and the log
of events go to the run directory, never to Flower.
"""

from __future__ import annotations

import json
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from wallflower.protocol.errors import WallflowerError
from wallflower.protocol.files.private import private_directory, write_anew
from wallflower.strategy.flower_config import FAILURE_FILE, experiment, run_directory
from wallflower.strategy.private_bandit import PrivateBandit, engine_of
from wallflower.strategy.store.event_log import EventLog

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the experiment that the run config names."""
    config = experiment(context.run_config)
    run_dir = run_directory(context.run_config, config, context.run_id)
    private_directory(run_dir)
    (run_dir / FAILURE_FILE).unlink(missing_ok=True)
    with EventLog(run_dir) as event_log:
        strategy = PrivateBandit(
            config,
            run_dir,
            engine=str(context.run_config.get("engine") or engine_of(grid)),
            listen=event_log.listen,
        )
        try:
            strategy.start(grid)
        except WallflowerError as error:
            # Flower keeps only that the run failed; the launcher tells what failed.
            _leave_note(run_dir, error)
            raise


def _leave_note(run_dir: Path, error: WallflowerError) -> None:
    note = {"error": type(error).__name__, "text": str(error), "exit": error.exit_code}
    write_anew(run_dir / FAILURE_FILE, json.dumps(note).encode())
