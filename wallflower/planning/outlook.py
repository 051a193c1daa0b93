"""Whether an experiment's users suffice to tell anything: one line, in a moment."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from wallflower.planning.plan import planned_batches
from wallflower.planning.request import PlanRequest, with_file
from wallflower.planning.units import round_gap_up
from wallflower.policy_text import describe_purpose
from wallflower.protocol.numbers import counted
from wallflower.protocol.privacy.sentences import percent
from wallflower.strategy.bandit.spec import ELIMINATION
from wallflower.strategy.config import load_config

# What `plan` takes where neither flag nor file says anything; a file says most.
DEFAULTS = PlanRequest(
    arms=10,
    horizon=100_000,
    epsilon=Fraction(1),
    mechanism="dist-dp",
    scale=Fraction(10),
    ratio=Fraction(3, 2),
    first_batch=0,
    floor=Fraction(4, 5),
    corrupt=Fraction(1, 10),
    participations=1,
    failure_probability=Fraction(1, 20),
    gaps=(),
)


def outlook(path: Path) -> tuple[bool, str]:
    """Say whether the users of a file suffice to rule an arm out, and which gap does.

    Returns
    -------
    tuple[bool, str]
        Whether any gap at all is told apart, and the sentence.
    """
    config = load_config(path)
    if config.policy.name != ELIMINATION:
        return True, describe_purpose(config.policy.name)
    batches = planned_batches(with_file(DEFAULTS, path, ()))
    gap = min(batch.separates for batch in batches)
    many = counted(len(batches), "batch")
    chance = percent(1 - config.experiment.failure_probability)
    if gap >= 1:
        return False, (
            f"{many} with all arms, and no gap of means is told apart with probability "
            f"{chance}: ask more users, compare fewer arms or allow a larger ε "
            "(wallflower plan)"
        )
    shown = round_gap_up(gap, config.reward_range)
    return True, (
        f"{many} with all arms: means that differ by {shown} are told apart "
        f"with probability {chance}, smaller gaps where arms fall early "
        "(wallflower plan)"
    )
