"""Sentences about policies, for reports: what they are for, what intervals mean."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol, cast

from wallflower.protocol.rewards.reward_range import RewardRange
from wallflower.strategy.bandit.policy import EliminationReason
from wallflower.strategy.policy_names import ELIMINATION, INDEX_POLICIES


def describe_purpose(policy: str) -> str:
    """Return what a policy that rules no arm out is for, and what it cannot answer."""
    means = (
        "is an index policy: while it learns it gives more people the better arms, and "
        "it rules none out."
        if policy in INDEX_POLICIES
        else "rules no arm out."
    )
    return f"{policy} {means} To decide which is best is what {ELIMINATION} is for."


def describe_sampled(policy: str, *, missing: bool, arriving: bool = False) -> str:
    """Return whose mean outcome the interval of an arm holds; see docs/validity.md."""
    if arriving:
        part = "those who answered of " if missing else ""
        return f"{part}the people who came while seats were free"
    if policy in INDEX_POLICIES:
        drawn = "drawn from all nodes in proportion to who is left there"
    else:
        drawn = "drawn evenly over the nodes"
    who = "those who answered of the people asked" if missing else "the people asked"
    return f"{who}, {drawn}"


def describe_intervals(
    policy: str, chance: str, *, missing: bool, arriving: bool = False
) -> str:
    """Return what the intervals of arms mean.

    All policies known here have the same intervals (`SequentialTest.interval`),
    whatever they choose arms by. Of others it is not known.
    """
    if policy not in (ELIMINATION, *INDEX_POLICIES):
        return (
            f"what {policy} says of an arm's mean; how sure it is, is not known here."
        )
    people = describe_sampled(policy, missing=missing, arriving=arriving)
    return (
        f"an arm's mean lies in it: that of {people}, not of the whole population. All "
        "intervals of all rounds hold together, except with a chance of at most "
        f"{chance}."
    )


class ArmValues(Protocol):
    """What is known of an arm: as a policy has it, or as a row of a history."""

    @property
    def estimate(self) -> float | None:
        """Return the mean, if there is one."""

    @property
    def lower(self) -> float:
        """Return the lower end of its interval."""

    @property
    def upper(self) -> float:
        """Return the upper end of its interval."""

    @property
    def reason(self) -> EliminationReason | None:
        """Return why the sums put it out, if they did."""

    @property
    def note(self) -> str:
        """Return an operator's words for its retirement."""


def values_in_unit(
    view: ArmValues, names: Sequence[str], measured: RewardRange
) -> dict[str, Any]:
    """Return an arm as plain values, with mean, interval and reason in the unit."""
    values = {
        **dataclasses.asdict(cast(Any, view)),
        "estimate": None if view.estimate is None else measured.mean(view.estimate),
        "lower": measured.mean(view.lower),
        "upper": measured.mean(view.upper),
        "reason": view.note or describe_reason(view.reason, names, measured),
    }
    del values["note"]
    return values


def describe_reason(
    reason: EliminationReason | None, names: Sequence[str], measured: RewardRange
) -> str:
    """Return why the sums put an arm out; an empty text where they did not.

    Examples
    --------
    >>> from fractions import Fraction
    >>> euros = RewardRange(Fraction(0), Fraction(200), "€")
    >>> reason = EliminationReason(1, 0.25, radius=0.125)
    >>> describe_reason(reason, ("a", "b"), euros)
    'trails "b" by 50.00 € > radius 25.00 €'
    """
    if reason is None:
        return ""
    rival = names[reason.rival]
    trails = f'trails "{rival}" by {describe_gap(reason.gap, measured)}'
    if reason.radius is not None:
        return f"{trails} > radius {describe_gap(reason.radius, measured)}"
    if reason.chance is None:
        return trails
    return (
        f"{trails}; the chance of such sums, were it as good as any, is at most "
        f"{reason.chance:.2g}"
    )


def describe_gap(gap: float, measured: RewardRange) -> str:
    """Return a difference of two means in the unit, in four digits without one."""
    return f"{gap:.4g}" if measured.is_default else measured.describe_difference(gap)
