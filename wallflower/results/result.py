"""What a run has come to, read from its journal: for people and for programs."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from wallflower.policy_text import describe_purpose, describe_sampled, values_in_unit
from wallflower.protocol.numbers import round_up
from wallflower.protocol.privacy.sentences import REHEARSAL, power
from wallflower.protocol.rewards.seeded import TEST_MODE
from wallflower.protocol.secure_sum.session import Finding
from wallflower.protocol.visitors import OPEN
from wallflower.results.arrivals import (
    INVENTED,
    ArmSeats,
    count_seats,
    describe_trust,
    seats_json,
)
from wallflower.results.cohorts import UNDER_WAY, CohortRow, cohort_rows
from wallflower.results.comparisons import Comparisons, compare_arms
from wallflower.results.endings import (
    RetiredArm,
    StillNeeded,
    index_outcome,
    join_words,
    margin_meaning,
    still_needed,
    summarize_promise,
    winner_meaning,
)
from wallflower.results.missing import MissingPeople, find_missing
from wallflower.results.run_folder import Unfinished, read_unfinished
from wallflower.strategy.bandit.policy import DECIDED, ArmView
from wallflower.strategy.bandit.spec import DECIDING, dropping_chance
from wallflower.strategy.config import ExperimentConfig
from wallflower.strategy.run.drawing import (
    Reach,
    Stranded,
    compare_with_equal_nodes,
    read_reach,
)
from wallflower.strategy.run.run_state import round_after_retirement
from wallflower.strategy.run.spending import build_promise, read_spend
from wallflower.strategy.store.entries import (
    RETIRED,
    SUMMED,
    VOID,
    WAITING,
    Askable,
    PrivacySpend,
    RoundRecord,
)
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.store.losses import describe_findings
from wallflower.strategy.store.run_store import requests_of

# Engines that host everybody: the machine they run on holds every outcome.
REHEARSALS = ("fast", "local", "simulation")
_NOBODY_ASKED = "Nobody was asked yet: nobody has spent any privacy."
ENDINGS = {
    "winner": "one arm is left",
    "equal": "the arms left are practically equal",
    "futile": "no arm beats control by the margin",
    "horizon": "the users of the experiment's horizon do not suffice for another round",
    "rounds": "as many rounds as policy.most-rounds allows were asked",
    "users-exhausted": "too few people are left for another round",
}


@dataclass(frozen=True, slots=True)
class RunResult:
    """The state of a run, finished or not.

    `rows` are all attempts at a sum, `cohorts` of them, some `void` or still `open`.
    `spent` is the guarantee that anybody invited may have used up by now; `losses`
    counts by reason those who were asked and are in no sum. `askable` counts who can
    still be asked, as the nodes said.
    """

    run_id: str
    run_dir: str
    engine: str
    config: ExperimentConfig
    rounds: int
    last: RoundRecord | None
    rows: tuple[CohortRow, ...]
    invited: int
    answered: int
    cohorts: int
    void: int
    open: int
    head: str
    spent: PrivacySpend
    unfinished: Unfinished
    waiting: bool  # it stopped because too few nodes were there
    losses: Mapping[str, int]
    missing: MissingPeople
    askable: Askable
    # Cohort or dealing, why it is void (empty for a sum or a key), and what is known
    # of who caused it.
    blame: tuple[tuple[str, str, tuple[Finding, ...]], ...] = ()
    retired: tuple[RetiredArm, ...] = ()
    # Arms that are to be retired when the round under way is over.
    retiring: tuple[str, ...] = ()
    # Whom the nodes gave, if a round met any.
    reach: Reach | None = None

    @property
    def finished(self) -> str | None:
        """Why the experiment is over, or None."""
        return None if self.last is None else self.last.finished

    @property
    def winner(self) -> str | None:
        """The name of the only arm that is left."""
        if self.last is None or self.finished != "winner":
            return None
        (active,) = (view.arm for view in self.last.views if view.active)
        return self.config.experiment.arms[active]

    @property
    def under_way(self) -> int:
        """People whose cohort has not ended: neither answered nor lost."""
        return self.losses.get(UNDER_WAY, 0)

    @property
    def lost(self) -> Mapping[str, int]:
        """People by the reason why they are in no sum and will be in none."""
        return {why: many for why, many in self.losses.items() if why != UNDER_WAY}

    @property
    def decides(self) -> bool:
        """Whether its policy rules arms out at all."""
        return self.config.policy.name in DECIDING

    def still_needed(self) -> StillNeeded | None:
        """Estimate what another experiment would take, if this one ended undecided."""
        if self.last is None or self.finished in (None, *DECIDED):
            return None
        return still_needed(self.config, self.last.views)

    def stranded(self) -> Stranded | None:
        """Return whom unequal nodes kept from being asked, if the run ended of it."""
        if self.reach is None or self.finished in (None, *DECIDED):
            return None
        return compare_with_equal_nodes(self.config, self.reach)

    def comparisons(self) -> Comparisons | None:
        """Compare every arm with control and with the leader, where that is known."""
        worst = self.missing.worst_case
        if self.last is None or worst is None:
            return None
        return compare_arms(self.config, self.last.views, worst, self.finished)

    @property
    def interval_of(self) -> str:
        """Say whose mean an arm's interval holds."""
        return describe_sampled(
            self.config.policy.name,
            missing=self.missing.missing > 0,
            arriving=bool(self.seats),
        )

    @property
    def rehearsal(self) -> bool:
        """Whether one machine held everybody's outcome."""
        return self.engine in REHEARSALS

    @property
    def trust(self) -> str:
        """What must be believed of the server."""
        if self.config.test_mode:
            return "test mode"
        return describe_trust(self.config)

    @property
    def seats(self) -> tuple[ArmSeats, ...]:
        """The seats of every arm, where people arrive."""
        return count_seats(self.rows, self.config.experiment.arms)

    def sentence(self) -> str:
        """Return the result and the whole guarantee, in words."""
        return f"{self.outcome()} {self.promise()}"

    def outcome(self) -> str:
        """Return the verdict, what was decided by hand, and what the run waits for."""
        waits = " It waits for nodes to come back; then resume it." * self.waiting
        return f"{self.verdict()}{self._by_hand()}{waits}"

    def verdict(self) -> str:
        """Return the result, and whom it holds for."""
        holds = self.missing.describe(self.winner)
        return f"{self._outcome()}{holds and f' {holds}'}"

    def _by_hand(self) -> str:
        """Say what was decided by hand, or nothing."""
        sentences = [f" {one.describe()}." for one in self.retired]
        if self.retiring and self.finished is None:
            names = join_words([f'"{name}"' for name in self.retiring])
            sentences.append(
                f" When the round under way is over, {names} will be retired by hand."
            )
        return "".join(sentences)

    @property
    def risk(self) -> Fraction:
        """The proved bound of the chance that a better arm was dropped."""
        failure = self.config.experiment.failure_probability
        return dropping_chance(self.config.policy.radius, failure)

    def _outcome(self) -> str:
        arms = self.config.experiment.arms
        chance = float(self.risk)
        if self.last is None or not self.rounds:
            return "No round is finished yet."
        if self.missing.by_margin:
            headline, meaning = margin_meaning(
                self.config, self.last, f"{chance:g}", retired=bool(self.retired)
            )
            return f"{self.missing.qualify(headline)} {meaning}"
        if self.winner is not None and self.retired:
            winner = f'"{self.winner}"'
            best, meaning = winner_meaning(winner, self.last.views, f"{chance:g}")
            return f"{self.missing.qualify(best)} {meaning}"
        if self.winner is not None:
            return (
                f'"{self.winner}" is the best of {len(arms)} arms'
                f"{self.missing.qualification}; the chance that a better one was "
                f"dropped is at most {chance:g}."
            )
        left = [view for view in self.last.views if view.active]
        if self.finished is None and not self.decides:
            return f"Not finished. {describe_purpose(self.config.policy.name)}"
        if self.finished is None:
            return self.missing.qualify(
                f"Not finished: {len(left)} of {len(arms)} arms are left."
            )
        if not self.decides:
            return " ".join(index_outcome(self.config, self.last.views))
        why = ENDINGS.get(self.finished, self.finished)
        needed, stranded = self.still_needed(), self.stranded()
        return (
            f"Undecided: {len(left)} of {len(arms)} arms are left"
            f"{self.missing.qualification}, and {why}."
            f"{'' if stranded is None else ' ' + stranded.describe_end()}"
            f"{'' if needed is None else ' ' + needed.sentence}"
        )

    def summary(self) -> str:
        """Return the promise to everybody invited, in at most three short sentences.

        One more says what a round that is not finished may have cost.
        """
        if self.config.test_mode:
            return TEST_MODE
        if not self.invited:
            return _NOBODY_ASKED
        promise = summarize_promise(
            build_promise(self.spent),
            rehearsal=self.rehearsal,
            semi_honest=self.config.secure_sum.server != "malicious",
        )
        return f"{promise}{self._invented}{self.unfinished.sentence}"

    @property
    def _invented(self) -> str:
        visitors = self.config.visitors
        return f" {INVENTED}" * (visitors is not None and visitors.admission == OPEN)

    def promise(self) -> str:
        """Return what the people invited so far have spent at most, in words."""
        spent = self.spent
        if self.config.test_mode:
            return TEST_MODE
        if not self.invited:
            return _NOBODY_ASKED
        times = spent.participations
        often = "twice" if times == 1 else f"more than {times} times"
        promise = build_promise(spent)
        total = round_up(promise.epsilon)
        delta = promise.privacy_delta and f" at δ = {power(promise.privacy_delta)}"
        rehearsal = f"{REHEARSAL} " * (self.rehearsal and promise.kind != "none")
        return (
            f"{rehearsal}{promise.sentence()} Nobody was asked {often}: "
            f"ε = {total}{delta or ''} in all; {self.trust}.{self.unfinished.sentence}"
        )

    def as_json(self) -> dict[str, Any]:
        """Return JSON types."""
        needed, stranded = self.still_needed(), self.stranded()
        comparisons = self.comparisons()
        return {
            "run": self.run_id,
            "run_dir": self.run_dir,
            "engine": self.engine,
            "experiment": self.config.experiment.name,
            "finished": self.finished,
            "waiting_for_nodes": self.waiting,
            "retired": [dataclasses.asdict(one) for one in self.retired],
            "retiring": list(self.retiring),
            "winner": self.winner,
            "still_needed": None if needed is None else needed.as_json(),
            "stranded": None if stranded is None else stranded.as_json(),
            "rounds": self.rounds,
            "users": {
                "invited": self.invited,
                "answered": self.answered,
                "lost": self.invited - self.answered,
                "lost_by_reason": dict(self.losses),
                "can_be_asked": self.askable.able,
                "left_out": self.askable.left_out,
                "people": self.askable.people,
            },
            "missing": self.missing.as_json(self.winner),
            "interval_of": self.interval_of,
            "visitors": seats_json(self.config, self.seats, self.missing.rates),
            "cohorts": {"asked": self.cohorts, "void": self.void, "open": self.open},
            "blame": [
                {
                    "cohort": cohort_id,
                    "void": reason or None,
                    "describe": describe_findings(findings),
                    "findings": [dataclasses.asdict(one) for one in findings],
                }
                for cohort_id, reason, findings in self.blame
            ],
            **self.config.reward_range.as_json(),
            "arms": [
                self._arm(view) for view in (self.last.views if self.last else ())
            ],
            "differences": None if comparisons is None else comparisons.as_json(),
            "guarantee": self.spent.as_json() if self.invited else None,
            "rehearsal": self.rehearsal,
            "test_mode": self.config.test_mode,
            "unfinished_round": dataclasses.asdict(self.unfinished),
            "trust": self.trust,
            "head": self.head,
            "sentence": self.sentence(),
        }

    def _arm(self, view: ArmView) -> dict[str, Any]:
        measured = self.config.reward_range
        names = self.config.experiment.arms
        whole = self.missing.interval_of_all(view)
        return {
            "name": names[view.arm],
            **values_in_unit(view, names, measured),
            "lower_all_asked": None if whole is None else measured.mean(whole.lower),
            "upper_all_asked": None if whole is None else measured.mean(whole.upper),
        }


def read_result(journal: Journal) -> RunResult:
    """Sum a journal up."""
    rows = tuple(cohort_rows(journal))
    rounds = journal.count_rounds()
    losses: Counter[str] = Counter()
    for row in rows:
        losses.update(row.losses)
    last = round_after_retirement(journal)
    arms = journal.config.experiment.arms
    return RunResult(
        run_id=journal.run_id,
        run_dir=str(journal.run_dir),
        engine=journal.engine,
        config=journal.config,
        rounds=rounds,
        last=last,
        rows=rows,
        invited=sum(row.invited for row in rows),
        answered=sum(row.answered for row in rows),
        cohorts=len(rows),
        void=sum(row.state == VOID for row in rows),
        open=sum(row.state not in (VOID, SUMMED) for row in rows),
        head=journal.head,
        spent=read_spend(journal),
        unfinished=read_unfinished(journal, rows, rounds),
        waiting=journal.last_entry().kind == WAITING,
        losses=dict(sorted(losses.items())),
        missing=find_missing(journal, rows, last),
        askable=journal.count_askable(),
        blame=tuple(
            (one.dealing_id, one.reason, one.findings)
            for one in journal.dealings()
            if one.findings
        )
        + tuple((row.cohort, row.why, row.findings) for row in rows if row.findings),
        reach=read_reach(journal),
        retired=_list_retired(journal),
        retiring=tuple(
            arms[arm]
            for arm in requests_of(journal.run_dir).read_retirements()
            if arm < len(arms)
        ),
    )


def _list_retired(journal: Journal) -> tuple[RetiredArm, ...]:
    """Return the arms retired by hand, in the order in which they were."""
    arms = journal.config.experiment.arms
    records = {str(one.arm): one for one in journal.retired()}
    if not records:
        return ()
    return tuple(
        RetiredArm(arms[one.arm], one.round_number, one.reason, entry.at)
        for entry in journal.entries()
        if entry.kind == RETIRED and (one := records.get(entry.subject)) is not None
    )
