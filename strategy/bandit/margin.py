"""When no difference that matters is left: the margin of practical equality.

Arm j is *within* the margin m of arm k when the test of μ_j ≤ μ_k − m, at the level by
which arms fall, rules that out: k is surely not better by m or more. After a round

    equal    every arm in the race is within the margin of every other;
    futile   control is within the margin of every arm in the race.

Let k be the best arm. Both endings, and its own fall, are wrong only if the test of
some arm j against k ever rules out the true difference: K − 1 supermartingales, each at
p/(K − 1). So with probability at least 1 − p the best arm never falls, and the arms
called equal are all within m of it, hence of each other. Control is within m of it too
when a run ends as futile.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

from wallflower.strategy.bandit.policy import Arm, Ending
from wallflower.strategy.bandit.spec import PolicySpec

Pair = tuple[Arm, Arm]


def pairs_of(ending: Ending, racing: Sequence[Arm], control: Arm | None) -> list[Pair]:
    """Return who must be within the margin of whom for an ending.

    Examples
    --------
    >>> pairs_of(Ending.FUTILE, [0, 1, 2], 0)
    [(0, 1), (0, 2)]
    """
    if ending == Ending.EQUAL:
        return list(itertools.permutations(racing, 2))
    return [(control, arm) for arm in racing if arm != control and control is not None]


def find_ending(
    spec: PolicySpec,
    racing: Sequence[Arm],
    asked: Sequence[Arm],
    estimates: Mapping[Arm, float],
    is_within: Callable[[Arm, Arm], bool],
) -> Ending | None:
    """Return the ending that the margin gives after a round, if any.

    Pairs are looked at from the largest estimated difference on: one that is not within
    the margin is enough.
    """
    if spec.margin is None or len(racing) < 2:
        return None
    for ending in (Ending.EQUAL, Ending.FUTILE):
        if ending == Ending.FUTILE and spec.control not in asked:
            continue
        pairs = pairs_of(ending, racing, spec.control)
        pairs.sort(key=lambda pair: estimates[pair[0]] - estimates[pair[1]])
        if all(is_within(arm, rival) for arm, rival in pairs):
            return ending
    return None
