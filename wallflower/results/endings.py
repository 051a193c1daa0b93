"""What a result means where an arm was retired by hand, or no arm is left alone.

An arm that somebody retires leaves the race without having lost it. Others may have
fallen to it before, and were never compared with the arms that are left. So a winner is
the best of the arms that were left when the last one was retired, and of no others.

A run that ended undecided cannot continue: its levels were shared out over its horizon.
What it would still take is another experiment on new people with the arms that are
left. How many it typically asks is simulated, exactly in law, from estimates and
intervals that the record has released: nobody is asked and no privacy is spent.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from wallflower.planning.future import LONGEST, RUNS, typical_users
from wallflower.policy_text import describe_purpose
from wallflower.protocol.numbers import round_up
from wallflower.protocol.privacy.sentences import (
    NOTHING_PROMISED,
    Promise,
    odds_factor,
    percent,
    power,
)
from wallflower.protocol.rewards.reward_range import DEFAULT_RANGE, RewardRange
from wallflower.strategy.bandit.policies import policy_spec
from wallflower.strategy.bandit.policy import ArmView, Ending
from wallflower.strategy.config import ExperimentConfig
from wallflower.strategy.policy_names import ELIMINATION
from wallflower.strategy.store.entries import RoundRecord


@dataclass(frozen=True, slots=True)
class RetiredArm:
    """An arm taken out by hand from round `before_round` on, at Unix second `at`."""

    arm: str
    before_round: int
    reason: str
    at: float

    def describe(self) -> str:
        """Say when and why.

        Examples
        --------
        >>> RetiredArm("a", 3, "rash", 0.0).describe()
        '"a" was retired by hand before round 3 (rash)'
        """
        return (
            f'"{self.arm}" was retired by hand before round {self.before_round} '
            f"({self.reason})"
        )


def join_words(parts: Sequence[str]) -> str:
    """Join words as a sentence does.

    Examples
    --------
    >>> join_words(["a", "b", "c"])
    'a, b and c'
    """
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


def count_compared(views: Sequence[ArmView]) -> int:
    """Count the arms that were left when the last one was retired by hand."""
    since = max(view.eliminated_in or 0 for view in views if view.retired)
    return sum(
        view.active or (not view.retired and (view.eliminated_in or 0) > since)
        for view in views
    )


def winner_meaning(
    winner: str, views: Sequence[ArmView], chance: str
) -> tuple[str, str]:
    """Say what the winner is the best of, and with what chance it is not."""
    arms = count_compared(views)
    if arms == 1:
        return (
            f"{winner} is the only arm left after a retirement by hand.",
            "It was not compared to the end with what was retired, nor with arms that "
            "had fallen to that.",
        )
    return (
        f"{winner} is the best of the {arms} arms left after the last retirement by "
        "hand.",
        "For each of them, the chance that it fell to one that is no better is at most "
        f"{chance}. Nothing is said of arms retired, or fallen before.",
    )


def margin_meaning(
    config: ExperimentConfig,
    last: RoundRecord,
    chance: str,
    marks: str = '""',
    *,
    retired: bool,
) -> tuple[str, str]:
    """Say what a run that ended by the margin has shown, and how sure that is.

    `marks` are the two quotation marks of where it is said.
    """
    stated, measured = config.experiment, config.reward_range
    margin = measured.with_unit(f"{float(stated.margin or 0):,.12g}")
    left = [stated.arms[view.arm].join(marks) for view in last.views if view.active]
    if last.finished == Ending.EQUAL:
        headline = f"Any of {join_words(left)} will do."
        meaning = f"None of them is better than another by {margin} or more."
        wrong = "that this is wrong, or that a better arm was dropped,"
    else:
        headline = f"No arm beats {str(stated.control).join(marks)} by {margin}."
        meaning = f"Smaller differences do not matter here (margin {margin})."
        wrong = "that one does"
    if retired:
        return headline, (
            f"{meaning} For each arm that was not retired, the chance that this is "
            f"wrong about it is at most {chance}."
        )
    return headline, f"{meaning} The chance {wrong} is at most {chance}."


# Rounds that grow by less are simulated as if they grew by this: a run of a thousand
# rounds would take a hundred thousand of them to look at a hundred times its people.
_LEAST_RATIO = Fraction(11, 10)
_MOST_ARMS, _FEWEST = 4000, 8  # arms of all simulated experiments, and experiments


@dataclass(frozen=True, slots=True)
class StillNeeded:
    """What another experiment with the arms that are left would typically ask.

    Attributes
    ----------
    arms : that are left.
    gap : by which the highest estimate is ahead of the next, in two digits.
    base_rate : the next estimate.
    people : asked on average if the gap is true; None where some simulated experiment
        was undecided after `looked_up_to`.
    widest_gap : the largest that the intervals allow.
    people_at_widest : the same for it: the least that can be hoped for.
    looked_up_to : people after whom a simulated experiment was given up.
    measured : the range of outcomes; gaps and rates are parts of it, in [0, 1].
    simulated : experiments behind each figure.
    larger_rounds : whether its rounds grow faster than those of the run did, by a
        tenth each; so many small rounds as before would take long to simulate.
    """

    arms: int
    gap: float
    base_rate: float
    people: int | None
    widest_gap: float
    people_at_widest: int | None
    looked_up_to: int
    measured: RewardRange = DEFAULT_RANGE
    simulated: int = RUNS
    larger_rounds: bool = False

    @property
    def sentence(self) -> str:
        """Say it as the estimate that it is."""
        whom = f"another experiment with the {self.arms} arms left"
        none = "Were they equally good, no number would do."
        if not self.gap:
            return f"The sums show no difference that {whom} could be planned by."
        if self.people is None:
            start = (
                f"if the best of them is ahead by {self._show(self.gap)}, as the sums "
                f"suggest, not even {self.looked_up_to:,} people would surely let "
                f"{whom} decide"
            )
        else:
            start = (
                f"{whom} would typically ask "
                f"{_about(self.people)} people, if the best of them is ahead by "
                f"{self._show(self.gap)}, as the sums suggest"
            )
        hope = ""
        if self.people_at_widest is not None:
            hope = (
                f"; {_about(self.people_at_widest)} if it is by "
                f"{self._show(self.widest_gap)}, the most that the intervals allow"
            )
        grows = ""
        if self.larger_rounds:
            grows = " Each of its rounds is a tenth larger than the one before."
        return f"An estimate from what was seen: {start}{hope}.{grows} {none}"

    def as_json(self) -> dict[str, Any]:
        """Return JSON types, gaps and the base rate in the unit."""
        fields = dataclasses.asdict(self)
        del fields["measured"]
        return {
            **fields,
            "gap": self.measured.difference(self.gap),
            "base_rate": self.measured.mean(self.base_rate),
            "widest_gap": self.measured.difference(self.widest_gap),
        }

    def _show(self, gap: float) -> str:
        """Return a gap in the unit; it has two digits, so it needs no rounding."""
        return self.measured.with_unit(f"{self.measured.difference(gap):,.12g}")


def still_needed(
    config: ExperimentConfig, views: Sequence[ArmView]
) -> StillNeeded | None:
    """Estimate it; None where nothing was seen or nothing is to be decided."""
    left = [view for view in views if view.active]
    if config.policy.name != ELIMINATION or len(left) < 2:
        return None
    estimates = [view.estimate for view in left if view.estimate is not None]
    if len(estimates) < len(left):
        return None
    policy = dataclasses.replace(
        policy_spec(config),
        arms=len(left),
        control=None,
        keep_control=False,
        margin=None,
    ).resolved()
    grown = policy.ratio is not None and policy.ratio < _LEAST_RATIO
    if grown:
        policy = dataclasses.replace(policy, ratio=_LEAST_RATIO)
    # With many arms a single experiment is a mean over many of them already.
    runs = max(_FEWEST, min(RUNS, _MOST_ARMS // len(left)))
    next_best, best = sorted(estimates)[-2:]
    base, gap = _rate(next_best), _digits(best - next_best)
    widest, floor = max(_lead_at_most(view, left) for view in left)
    return StillNeeded(
        arms=len(left),
        gap=float(gap),
        base_rate=float(base),
        people=typical_users(policy, base, gap, runs) if gap else None,
        widest_gap=float(widest),
        people_at_widest=(
            typical_users(policy, floor, widest, runs) if widest else None
        ),
        looked_up_to=LONGEST * policy.horizon,
        measured=config.reward_range,
        simulated=runs,
        larger_rounds=grown,
    )


def index_outcome(
    config: ExperimentConfig, views: Sequence[ArmView], marks: str = '""'
) -> tuple[str, str]:
    """Say what came of an index policy, and what such a policy is for.

    `marks` are the two quotation marks of where it is said.
    """
    names = config.experiment.arms
    most = max(views, key=lambda view: view.asked)
    everybody = sum(view.asked for view in views)
    return (
        f"{names[most.arm].join(marks)} was given to most people: "
        f"{most.asked:,} of {everybody:,}.",
        describe_purpose(config.policy.name),
    )


def _lead_at_most(view: ArmView, left: Sequence[ArmView]) -> tuple[Fraction, Fraction]:
    """Return how far an arm can be ahead of all others, and where those then are."""
    floor = max(other.lower for other in left if other is not view)
    return _digits(view.upper - floor), _rate(floor)


def _digits(gap: float) -> Fraction:
    """Two digits: an estimate has no more."""
    return Fraction(f"{min(max(gap, 0.0), 1.0):.2g}")


def _rate(mean: float) -> Fraction:
    return Fraction(f"{min(max(mean, 0.0), 1.0):.3f}")


def _about(people: int) -> str:
    return f"about {float(f'{people:.2g}'):,.0f}"


def summarize_promise(promise: Promise, *, rehearsal: bool, semi_honest: bool) -> str:
    """Return a promise and its condition in at most three short sentences.

    Every figure is on the safe side: of several cohorts the strictest condition is
    stated for all. `Promise.sentence` has the details.

    Parameters
    ----------
    promise : Promise
        What one person is promised.
    rehearsal : bool
        Whether one machine held everybody's outcome.
    semi_honest : bool
        Whether the server must follow the protocol.

    Examples
    --------
    >>> from wallflower.protocol.privacy.sentences import CohortCondition
    >>> conditions = (CohortCondition(100, 80, 10, 1),)
    >>> promise = Promise("pure", "distributed", 1, conditions=conditions)
    >>> text = summarize_promise(promise, rehearsal=False, semi_honest=True)
    >>> for sentence in text.replace(". ", ".|").split("|"):
    ...     print(sentence)
    Not even the operator can shift the odds of a guess about a person's outcome by \
more than a factor of 2.72 (ε = 1 in all).
    This holds while at most 10 % of each cohort's nodes collude, at least 80 % of its \
people answer honestly and the server is semi-honest.
    """
    if promise.kind == "none":
        return NOTHING_PROMISED
    sentences = [_summarize_claim(promise, rehearsal)]
    if rehearsal:
        sentences.insert(0, "Rehearsal: this machine held every outcome.")
    if condition := _summarize_condition(promise, semi_honest):
        sentences.append(condition)
    return " ".join(sentences)


def _summarize_claim(promise: Promise, rehearsal: bool) -> str:
    factor, total = odds_factor(promise.epsilon), round_up(promise.epsilon)
    often = f" for {promise.times} participations" if promise.times > 1 else " in all"
    who = {
        "server": "nobody who sees the results",
        "nobody": "nobody who reads what leaves the device",
    }.get(promise.trust, "not even the operator")
    start = f"On people's own nodes, {who} could" if rehearsal else f"{who} can"
    start = f"{start[0].upper()}{start[1:]}"
    if not promise.privacy_delta:
        return (
            f"{start} shift the odds of a guess about a person's outcome by more than "
            f"a factor of {factor} (ε = {total}{often})."
        )
    delta = power(promise.privacy_delta)
    return (
        f"{start} come to a conclusion more than {factor} times as likely as after "
        f"another outcome, {delta} added (ε = {total}, δ = {delta}{often})."
    )


def _summarize_condition(promise: Promise, semi_honest: bool) -> str:
    """Return what must be true for the promise, or nothing where nothing must be."""
    if promise.trust == "nobody":
        return ""
    if promise.trust == "server":
        return "This holds if the server, which sees every outcome, is trusted."
    # Sealed sums share one key over the whole run; the others share in every cohort.
    whole_run = promise.keys is not None
    parts = []
    if promise.trust == "shuffler":
        parts.append("the shuffler does not help the operator")
    if promise.trust != "shuffler" or promise.privacy_delta:
        parts.append(_limit_nodes(promise, whole_run))
    people = "of its people" if parts and not whole_run else "of each cohort's people"
    if promise.trust == "shuffler" and not promise.privacy_delta:
        people = "of each cohort's people"
    parts.append(f"{_honest_part(promise)} {people} answer honestly")
    if semi_honest:
        parts.append("the server is semi-honest")
    lots = [condition.drawn for condition in promise.conditions]
    lots += [key.drawn for key in promise.keys or ()]
    chance = f" (failure chance {power(2.0**-promise.lottery_bits)})" * any(lots)
    return f"This holds while {', '.join(parts[:-1])} and {parts[-1]}{chance}."


def _honest_part(promise: Promise) -> str:
    conditions = promise.conditions
    most = max((Fraction(g.honest, g.people) for g in conditions), default=Fraction(1))
    return "all" if most == 1 else f"at least {round_up(most * 100, 1)} %"


def _limit_nodes(promise: Promise, whole_run: bool) -> str:
    pairs = [(key.colluding, key.nodes) for key in promise.keys or ()]
    if not whole_run:
        pairs = [
            (condition.colluding, condition.nodes) for condition in promise.conditions
        ]
    known = [Fraction(few, nodes) for few, nodes in pairs if nodes]
    least = min(known, default=promise.corrupt)
    whose = "the run's nodes" if whole_run else "each cohort's nodes"
    if not least:
        return f"none of {whose} colludes"
    return f"at most {percent(least)} of {whose} collude"
