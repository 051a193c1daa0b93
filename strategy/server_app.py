"""The Flower ServerApp: one experiment, from `flwr run` to its winner.

The run config says which experiment (`strategy.flower_config`); the journal and the log
of events go to the run directory, never to Flower.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from logging import INFO
from pathlib import Path

from flwr.app import Context
from flwr.common import log
from flwr.serverapp import Grid, ServerApp

from wallflower.protocol.errors import WallflowerError
from wallflower.protocol.files.private import private_directory, write_anew
from wallflower.protocol.rewards.seeded import TEST_MODE
from wallflower.strategy.bandit.policy import ArmView
from wallflower.strategy.config import ExperimentConfig
from wallflower.strategy.flower_config import experiment, run_directory
from wallflower.strategy.private_bandit import PrivateBandit, engine_of
from wallflower.strategy.server_app_files import FAILURE_FILE
from wallflower.strategy.store import events
from wallflower.strategy.store.event_log import EventLog
from wallflower.strategy.store.losses import describe_findings, describe_losses

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the experiment that the run config names."""
    config = experiment(context.run_config)
    run_dir = run_directory(context.run_config, config, context.run_id)
    private_directory(run_dir)
    (run_dir / FAILURE_FILE).unlink(missing_ok=True)
    with EventLog(run_dir) as event_log:

        async def listen(event: events.Event) -> None:
            await event_log.listen(event)
            _tell(event)

        strategy = PrivateBandit(
            config,
            run_dir,
            engine=str(context.run_config.get("engine") or engine_of(grid)),
            listen=listen,
        )
        try:
            strategy.start(grid)
        except WallflowerError as error:
            # Flower keeps only that the run failed; the launcher tells what failed.
            _leave_note(run_dir, error)
            raise
    for line in _table(config, strategy):
        log(INFO, "%s", line)
    if config.test_mode:
        log(logging.WARNING, "%s", TEST_MODE)
    log(INFO, "Head of the record: %s", strategy.head)


def _leave_note(run_dir: Path, error: WallflowerError) -> None:
    note = {"error": type(error).__name__, "text": str(error), "exit": error.exit_code}
    write_anew(run_dir / FAILURE_FILE, json.dumps(note).encode())


def _tell(event: events.Event) -> None:
    """Say in Flower's log how the run goes."""
    if isinstance(event, events.RunStarted):
        log(INFO, "%d nodes with %d users", event.nodes, event.population)
    elif isinstance(event, events.WaitingForNodes):
        log(
            logging.WARNING,
            "waiting for nodes: %d of %d are there%s",
            event.present,
            event.known,
            event.why and f" ({event.why})",
        )
    elif isinstance(event, events.TermsRefused):
        log(logging.WARNING, "%s; going on without them", event.text)
    elif isinstance(event, events.KeyGenerated) and event.findings:
        said = describe_findings(event.findings)
        log(logging.WARNING, "dealing %s: %s", event.dealing_id, said)
    elif isinstance(event, events.CohortEnded) and event.void is not None:
        why = describe_losses(dict(event.losses))
        words = event.cohort_id, event.void, why
        log(logging.WARNING, "cohort %s is void: %s; users lost: %s", *words)
        log(
            logging.WARNING,
            "cohort %s: %s",
            words[0],
            describe_findings(event.findings),
        )
    elif isinstance(event, events.ArmRetired):
        log(
            logging.WARNING,
            "arm %d is retired by hand from round %d on: %s",
            event.arm,
            event.number,
            event.reason,
        )
    elif isinstance(event, events.RetirementRefused):
        log(logging.WARNING, "arm %d cannot be retired: %s", event.arm, event.text)
    elif isinstance(event, events.RoundFinished):
        log(
            INFO,
            "[BATCH %d] %d arms left, %d users summed, %d lost, %.2f s",
            event.number,
            sum(view.active for view in event.views),
            event.answered,
            event.lost,
            event.seconds,
        )


def _table(config: ExperimentConfig, strategy: PrivateBandit) -> list[str]:
    return [
        f"Result ({strategy.finished or 'stopped'}), {strategy.run_dir}, "
        f"{strategy.messages_sent} Flower messages",
        *describe_arms(config, strategy.arms),
    ]


def describe_arms(config: ExperimentConfig, arms: Sequence[ArmView]) -> list[str]:
    """Return a line for every arm, best first, with its mean in the unit."""
    names, measured = config.experiment.arms, config.reward_range
    width = max(len(name) for name in names)
    lines = []
    for view in sorted(arms, key=lambda v: (v.active, v.estimate or 0.0), reverse=True):
        estimate = "–" if view.estimate is None else measured.describe(view.estimate)
        out = "retired after" if view.retired else "out in"
        state = "active" if view.active else f"{out} batch {view.eliminated_in}"
        people = f"{view.users:,} users of {view.asked:,} asked"
        lines.append(
            f"  {names[view.arm]:<{width}}  {estimate:>7}  "
            f"[{measured.describe_interval(view.lower, view.upper)}]  {people}  {state}"
        )
    return lines
