"""Sentences about policies, for reports: what they are for, what intervals mean."""

from __future__ import annotations

from wallflower.strategy.bandit.spec import ELIMINATION, INDEX_POLICIES


def describe_purpose(policy: str) -> str:
    """Return what a policy that rules no arm out is for, and what it cannot answer."""
    means = (
        "is an index policy: while it learns it gives more people the better arms, and "
        "it rules none out."
        if policy in INDEX_POLICIES
        else "rules no arm out."
    )
    return f"{policy} {means} To decide which is best is what {ELIMINATION} is for."


def describe_sampled(policy: str, *, missing: bool) -> str:
    """Return whose mean outcome the interval of an arm holds; see docs/validity.md."""
    if policy in INDEX_POLICIES:
        drawn = "drawn from all nodes in proportion to who is left there"
    else:
        drawn = "drawn evenly over the nodes"
    who = "those who answered of the people asked" if missing else "the people asked"
    return f"{who}, {drawn}"


def describe_intervals(policy: str, chance: str, *, missing: bool) -> str:
    """Return what the intervals of arms mean.

    All policies known here have the same intervals (`SequentialTest.interval`),
    whatever they choose arms by. Of others it is not known.
    """
    if policy not in (ELIMINATION, *INDEX_POLICIES):
        return (
            f"what {policy} says of an arm's mean; how sure it is, is not known here."
        )
    people = describe_sampled(policy, missing=missing)
    return (
        f"an arm's mean lies in it: that of {people}, not of the whole population. All "
        "intervals of all rounds hold together, except with a chance of at most "
        f"{chance}."
    )
