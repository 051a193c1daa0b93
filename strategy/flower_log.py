"""How a run speaks in Flower's log: rounds as of a stock strategy, errors in a line."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from logging import INFO, WARNING

from flwr.common import log

from wallflower.protocol.errors import WallflowerError
from wallflower.protocol.numbers import counted
from wallflower.strategy.config import ExperimentConfig
from wallflower.strategy.named_arm import describe_arms
from wallflower.strategy.store import events
from wallflower.strategy.store.losses import describe_findings, describe_losses


class FlowerLog:
    """A listener that writes what happens into Flower's log.

    Parameters
    ----------
    config : ExperimentConfig
        Has the arms' names and the unit of the outcomes.
    num_rounds : int
        How many rounds are run at most; 0 where nobody says.
    """

    def __init__(self, config: ExperimentConfig, num_rounds: int = 0) -> None:
        self._config = config
        self._of_all = f"/{num_rounds}" if num_rounds else ""

    async def listen(self, event: events.Event) -> None:
        """Write one event."""
        match event:
            case events.RunStarted():
                many = counted(event.nodes, "node")
                log(INFO, "%s with %s", many, counted(event.population, "user"))
            case events.RoundStarted():
                log(INFO, "")
                log(INFO, "[ROUND %d%s]", event.number, self._of_all)
                users, arms = (
                    counted(event.users, "user"),
                    counted(len(event.arms), "arm"),
                )
                log(INFO, "configure_round: Asked %s about %s", users, arms)
            case events.RoundFinished():
                self._log_finish(event)
            case events.WaitingForNodes() | events.TermsRefused():
                log(WARNING, "%s", _describe_absence(event))
            case events.KeyGenerated() | events.CohortEnded():
                self._log_end(event)
            case events.ArmRetired():
                words = self._name(event.arm), event.number, event.reason
                log(WARNING, "%s is retired by hand from round %d on: %s", *words)
            case events.RetirementRefused():
                log(
                    WARNING,
                    "%s cannot be retired: %s",
                    self._name(event.arm),
                    event.text,
                )
            case events.CohortAsked() | events.CohortProgress():
                pass

    def _log_finish(self, event: events.RoundFinished) -> None:
        summed, seconds = counted(event.answered, "user"), event.seconds
        words = summed, f"{event.lost:,}", seconds
        log(INFO, "aggregate_round: %s summed so far, %s lost, %.2f s", *words)
        lines = describe_arms(self._config, event.views)
        for number, line in enumerate(lines, 1):
            branch = "└" if number == len(lines) else "├"
            log(INFO, "\t%s──> %s", branch, line.strip())

    def _log_end(self, event: events.KeyGenerated | events.CohortEnded) -> None:
        if isinstance(event, events.KeyGenerated):
            if event.findings:
                findings = describe_findings(event.findings)
                log(WARNING, "dealing %s: %s", event.dealing_id, findings)
        elif event.void is not None:
            losses: Mapping[str, int] = dict(event.losses)
            words = event.cohort_id, event.void, describe_losses(losses)
            log(WARNING, "cohort %s is void: %s; users lost: %s", *words)
            findings = describe_findings(event.findings)
            log(WARNING, "cohort %s: %s", event.cohort_id, findings)

    def _name(self, arm: int) -> str:
        return self._config.experiment.arms[arm]


def _describe_absence(event: events.WaitingForNodes | events.TermsRefused) -> str:
    if isinstance(event, events.TermsRefused):
        return f"{event.text}; going on without them"
    there = f"{event.present} of {event.known} are there"
    return f"waiting for nodes: {there}{event.why and f' ({event.why})'}"


class _ShortFailures(logging.Filter):
    """Drops the traceback from what Flower logs of an error that explains itself."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep every record; shorten those that carry one of our errors."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, WallflowerError):
            record.msg, record.args = f"{record.getMessage()}: {error}", ()
            record.exc_info = None
        return True


SHORT_FAILURES = _ShortFailures()


def shorten_failures() -> None:
    """Let Flower log our errors in one line each; others keep their traceback."""
    logging.getLogger("flwr").addFilter(SHORT_FAILURES)
