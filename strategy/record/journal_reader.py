"""Reading a run's record: what anybody who may open it can ask of it."""

from __future__ import annotations

import json
from collections.abc import Iterator

from wallflower.protocol.errors import JournalError
from wallflower.protocol.secure_sum.session import Finding
from wallflower.strategy.config import ExperimentConfig, config_from_canonical
from wallflower.strategy.record import chain
from wallflower.strategy.record.entries import (
    DealingRecord,
    Retirement,
    RoundRecord,
    StoredCohort,
)
from wallflower.strategy.record.journal_rows import USED, dealing_from, sum_from
from wallflower.strategy.record.store import RunStore


class JournalReader(RunStore):
    """The questions that a journal answers, while it is written or afterwards."""

    @property
    def run_id(self) -> str:
        """The run's name."""
        return self._meta("run-id")

    @property
    def engine(self) -> str:
        """The engine that carries the run."""
        return self._meta("engine")

    @property
    def created_at(self) -> float:
        """Seconds since 1970."""
        return float(self._meta("created-at"))

    @property
    def config(self) -> ExperimentConfig:
        """The config the run began with."""
        return config_from_canonical(self._meta("config"))

    @property
    def head(self) -> str:
        """The last link of the chain: it stands for the whole record so far."""
        return self.entries()[-1].link

    def entries(self) -> list[chain.Entry]:
        """Every link of the chain, in order."""
        found = chain.entries(self.rows)
        if not found:
            raise JournalError(f"{self.path} has no chain: its entries were removed")
        return found

    def breaks(self) -> Iterator[str]:
        """Say where the record is not what its chain says."""
        return chain.breaks(self.rows)

    def cohorts(self) -> list[StoredCohort]:
        """Every cohort ever asked, in order."""
        stored = []
        for *facts, losses, result in self.rows(
            "SELECT cohort_id, round, batch, arm, attempt, size, spec, state, "
            "reason, losses, result FROM cohort ORDER BY round, arm, attempt"
        ):
            lost = json.loads(losses)
            found = sum_from(facts[0], lost, result)
            stored.append(StoredCohort(*(*facts, lost, found)))
        return stored

    def blame(self) -> dict[str, list[Finding]]:
        """What is known of who caused what, by cohort."""
        found: dict[str, list[Finding]] = {}
        for cohort_id, *facts in self.rows("SELECT * FROM blame"):
            found.setdefault(cohort_id, []).append(Finding(*facts))
        return found

    def dealings(self) -> list[DealingRecord]:
        """Every dealing, in order."""
        rows = self.rows(
            "SELECT dealing_id, nodes, reason, dealers, members, findings FROM dealing "
            "ORDER BY rowid"
        )
        return [dealing_from(row) for row in rows]

    def met(self) -> dict[str, int]:
        """Every node that ever described its users, with their latest number."""
        return dict(self.rows("SELECT node_id, users FROM node ORDER BY meeting"))

    def used(self) -> Iterator[tuple[str, str, tuple[str, ...]]]:
        """Every invitation but those that were returned: cohort, node, users."""
        for cohort_id, node_id, users in self.rows(USED):
            yield cohort_id, node_id, tuple(json.loads(users))

    def returned(self) -> list[tuple[str, str, str]]:
        """Every invitation that was returned: cohort, node, reason."""
        return self.rows("SELECT cohort_id, node_id, reason FROM returned")

    def invitations(self) -> Iterator[tuple[str, str, tuple[str, ...]]]:
        """Every invitation ever sent: cohort, node, users."""
        for cohort_id, node_id, users in self.rows("SELECT * FROM invitation"):
            yield cohort_id, node_id, tuple(json.loads(users))

    def retired(self) -> list[Retirement]:
        """Every arm that was retired by hand, in the order of the arms."""
        return [
            Retirement(*row) for row in self.rows("SELECT * FROM retired ORDER BY arm")
        ]

    def meetings(self) -> dict[str, dict[str, int]]:
        """Give what nodes said how many users they have, by the meeting's number."""
        found: dict[str, dict[str, int]] = {}
        for meeting, node_id, users in self.rows("SELECT * FROM node"):
            found.setdefault(str(meeting), {})[node_id] = users
        return found

    def rounds(self) -> list[RoundRecord]:
        """Every finished round, in order."""
        return [
            RoundRecord(
                number,
                tuple(json.loads(views)),
                json.loads(state),
                json.loads(spent),
                finished,
            )
            for number, views, state, spent, finished in self.rows(
                "SELECT number, views, policy_state, spent, finished FROM round "
                "ORDER BY number"
            )
        ]

    def last_round(self) -> RoundRecord | None:
        """The round to go on from."""
        rounds = self.rounds()
        return rounds[-1] if rounds else None

    def _meta(self, key: str) -> str:
        rows = self.rows("SELECT value FROM meta WHERE key = ?", key)
        if not rows:
            raise JournalError(f'{self.path} has no "{key}"')
        return str(rows[0][0])
