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
from wallflower.protocol.rewards.reward_range import DEFAULT_RANGE, RewardRange
from wallflower.strategy.bandit.policies import policy_spec
from wallflower.strategy.bandit.policy import ArmView
from wallflower.strategy.bandit.spec import ELIMINATION
from wallflower.strategy.config import ExperimentConfig


@dataclass(frozen=True, slots=True)
class RetiredArm:
    """An arm taken out by hand from round `before_round` on, at Unix second `at`."""

    arm: str
    before_round: int
    reason: str
    at: float

    def in_words(self) -> str:
        """Say when and why.

        Examples
        --------
        >>> RetiredArm("a", 3, "rash", 0.0).in_words()
        '"a" was retired by hand before round 3 (rash)'
        """
        return (
            f'"{self.arm}" was retired by hand before round {self.before_round} '
            f"({self.reason})"
        )


def listed(parts: Sequence[str]) -> str:
    """Join words as a sentence does.

    Examples
    --------
    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


def compared(views: Sequence[ArmView]) -> int:
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
    arms = compared(views)
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


# Rounds that grow by less are simulated as if they grew by this: a run of a thousand
# rounds would take a hundred thousand of them to look at a hundred times its people.
_LEAST_RATIO = Fraction(3, 2)
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
    larger_rounds : whether its rounds grow faster than those of the run did, by half
        each; so many small rounds as before would take long to simulate.
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
            grows = " Each of its rounds is half as large again as the one before."
        return f"An estimate from what was seen: {start}{hope}.{grows} {none}"

    def as_json(self) -> dict[str, Any]:
        """Return JSON types, gaps and the base rate in the unit."""
        told = dataclasses.asdict(self)
        del told["measured"]
        return {
            **told,
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
    policy = dataclasses.replace(policy_spec(config), arms=len(left)).resolved()
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
    """Give how far an arm can be ahead of all others, and where those then are."""
    floor = max(other.lower for other in left if other is not view)
    return _digits(view.upper - floor), _rate(floor)


def _digits(gap: float) -> Fraction:
    """Two digits: an estimate has no more."""
    return Fraction(f"{min(max(gap, 0.0), 1.0):.2g}")


def _rate(mean: float) -> Fraction:
    return Fraction(f"{min(max(mean, 0.0), 1.0):.3f}")


def _about(people: int) -> str:
    return f"about {float(f'{people:.2g}'):,.0f}"
