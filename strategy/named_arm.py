"""The arms as a Flower app sees them: with their names, and in words for its log."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from wallflower.strategy.bandit.policy import ArmView
from wallflower.strategy.config import ExperimentConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedArm(ArmView):
    """What is known of one arm, with its `name`; the rest is as in `ArmView`.

    `arm` is its number. `users` of those `asked` are in its sums; `estimate`, `lower`
    and `upper` lie in [0, 1]. An arm that is not `active` went out in the round
    `eliminated_in`, for a `reason`, or was `retired` with an operator's `note`.
    """

    name: str


def name_arms(
    config: ExperimentConfig, views: Sequence[ArmView]
) -> tuple[NamedArm, ...]:
    """Return the arms with the names that the experiment gives them."""
    fields = [field.name for field in dataclasses.fields(ArmView)]
    names = config.experiment.arms
    return tuple(
        NamedArm(
            **{field: getattr(view, field) for field in fields}, name=names[view.arm]
        )
        for view in views
    )


def describe_arms(config: ExperimentConfig, arms: Sequence[ArmView]) -> list[str]:
    """Return a line for every arm, best first, with its mean in the unit."""
    names, measured = config.experiment.arms, config.reward_range
    width = max(len(name) for name in names)
    lines = []
    for view in sorted(arms, key=lambda v: (v.active, v.estimate or 0.0), reverse=True):
        estimate = "–" if view.estimate is None else measured.describe(view.estimate)
        out = "retired after" if view.retired else "out in"
        state = "active" if view.active else f"{out} round {view.eliminated_in}"
        people = f"{view.users:,} users of {view.asked:,} asked"
        lines.append(
            f"  {names[view.arm]:<{width}}  {estimate:>7}  "
            f"[{measured.describe_interval(view.lower, view.upper)}]  {people}  {state}"
        )
    return lines
