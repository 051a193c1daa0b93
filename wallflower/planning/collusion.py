"""What a promise becomes if more people or nodes collude than was stated.

Slack for people who vanish is no slack for people who collude, so both halves of the
condition are looked at: too little honest noise in a sum, and a sum of one node's
people that is opened by itself (docs/threat-model.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wallflower.protocol.accounting.exact import effective_epsilon_of
from wallflower.protocol.numbers import round_up
from wallflower.protocol.privacy.mechanism import CohortMechanism


@dataclass(frozen=True, slots=True)
class CollusionEffect:
    """The largest ε of one cohort under a condition that does not hold.

    Attributes
    ----------
    half : only half of the people needed are honest.
    alone : a contribution is opened by itself and only the person's own noise is in it.
    """

    half: float
    alone: float

    def sentence(self) -> str:
        """Say both, for those who know what ε is."""
        return (
            f"with half of the people needed honest, ε = {round_up(self.half)}. "
            "If so many nodes collude that single contributions open, only the noise "
            f"of a node's own people hides each. Then it is up to ε = "
            f"{round_up(self.alone)} for somebody alone on a node"
        )


def collusion_effect(cohorts: Sequence[CohortMechanism]) -> CollusionEffect | None:
    """Compute it over all cohorts; None where nothing depends on others' honesty."""
    if cohorts[0].guarantee().trust not in ("distributed", "shuffler"):
        return None
    half = max(effective_epsilon_of(one, -(-one.honest_floor // 2)) for one in cohorts)
    return CollusionEffect(half, max(effective_epsilon_of(one, 1) for one in cohorts))
