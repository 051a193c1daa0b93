"""How far every arm is from control and from the leader: differences and lifts.

They are computed from the record when it is read, by the joint test of the two arms
(`strategy.bandit.differences`), never from two intervals. Everything here is in the
unit of the outcomes; a lift is a ratio of means in that unit, less one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from wallflower.protocol.numbers import round_up, signed_percent
from wallflower.protocol.rewards.reward_range import RewardRange
from wallflower.strategy.bandit.differences import Ends, PairRegion
from wallflower.strategy.bandit.policy import Arm, ArmView, Ending
from wallflower.strategy.bandit.worst_case import Pair, WorstCase
from wallflower.strategy.config import ExperimentConfig

NOT_BOUNDED = "not bounded"
WITHIN = "within the margin"
_SETTLED = {"equal": WITHIN, "futile": "not better by the margin"}
# A lift beyond this says no more than that there is no upper end.
_LARGEST_LIFT = 1000.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """One arm beside another: `arm` less `other`, in the unit of the outcomes.

    Attributes
    ----------
    difference : of the two estimates; None where one was never heard.
    lower, upper : the interval of the difference, among those who answered.
    lower_all_asked, upper_all_asked : the same for everybody asked, whatever the
        outcomes of the missing were.
    lift : the ratio of the estimates less one; None where the other is not above 0.
    lift_lower, lift_upper : its interval; None where that side is not bounded, because
        the other mean may be 0.
    is_out : the sums put the arm out, which leaves it behind the best arm.
    settled_by : the ending that says what the interval leaves open, if one does:
        ``equal`` (neither is better by the margin) or ``futile`` (the arm does not beat
        control by the margin).
    """

    arm: str
    other: str
    difference: float | None
    lower: float
    upper: float
    lower_all_asked: float
    upper_all_asked: float
    lift: float | None
    lift_lower: float | None
    lift_upper: float | None
    is_out: bool = False
    settled_by: str | None = None


@dataclass(frozen=True, slots=True)
class Comparisons:
    """Every arm beside control and beside the leader.

    Attributes
    ----------
    control : name of the control, if the file has one.
    leader : the winner, or the arm in the race with the highest estimate.
    to_control, to_leader : the other arms, in the order of the file.
    chance : that any difference or lift of any two arms in any round is wrong.
    margin : difference that does not matter, in the unit; None where none is stated.
    """

    control: str | None
    leader: str
    to_control: tuple[Comparison, ...]
    to_leader: tuple[Comparison, ...]
    chance: Fraction
    margin: float | None
    measured: RewardRange

    def as_json(self) -> dict[str, Any]:
        """Return JSON types."""
        return {
            "control": self.control,
            "leader": self.leader,
            "margin": self.margin,
            "wrong_with_chance_at_most": float(self.chance),
            "to_control": [dataclasses.asdict(one) for one in self.to_control],
            "to_leader": [dataclasses.asdict(one) for one in self.to_leader],
        }

    def rows(self) -> list[dict[str, Any]]:
        """Return all comparisons as rows of plain values."""
        return [dataclasses.asdict(one) for one in (*self.to_control, *self.to_leader)]

    def describe_level(self) -> str:
        """Say how sure all intervals of differences and lifts are, together."""
        chance = f"{round_up(100 * self.chance, 2)}\N{NO-BREAK SPACE}%"
        return (
            "Differences and lifts of all arms in all rounds hold together, except "
            f"with a chance of at most {chance}."
        )

    def explain(self) -> str:
        """Say also why an interval may be short, and touch 0 although an arm is out."""
        return (
            f"{self.describe_level()} Each is computed from both arms at "
            "once. So it is shorter than the two arms’ intervals suggest: these may "
            "overlap although one arm is surely better. An arm is out when its test "
            "against one better arm is sure. The intervals here are about every pair "
            "at once, so one may still touch 0"
            f"{' or reach beyond the margin' if self.margin is not None else ''}."
        )


def compare_arms(
    config: ExperimentConfig,
    views: Sequence[ArmView],
    worst: WorstCase,
    finished: str | None,
) -> Comparisons | None:
    """Compare every arm with control and with the leader; None before any sum.

    `finished` says why the experiment is over, if it is.
    """
    names, measured = config.experiment.arms, config.reward_range
    racing = {
        view.arm: view.estimate
        for view in views
        if view.active and view.estimate is not None
    }
    if not racing:
        return None
    leader = max(racing, key=lambda arm: racing[arm])

    out = {view.arm for view in views if not (view.active or view.retired)}

    def ending_of(arm: Arm, other: Arm) -> str | None:
        """Return the ending by the margin that is about these two arms."""
        if arm not in racing:
            return None
        is_equal = finished == Ending.EQUAL and other in racing
        is_futile = finished == Ending.FUTILE and other == control
        return finished if is_equal or is_futile else None

    control = config.experiment.control_arm

    def beside(other: Arm) -> tuple[Comparison, ...]:
        return tuple(
            dataclasses.replace(
                _compare(names[arm], names[other], worst.compare(arm, other), measured),
                is_out=arm in out,
                settled_by=ending_of(arm, other),
            )
            for arm in range(len(names))
            if arm != other
        )

    margin = config.experiment.margin
    return Comparisons(
        control=config.experiment.control,
        leader=names[leader],
        to_control=() if control is None else beside(control),
        to_leader=beside(leader),
        chance=config.experiment.failure_probability,
        margin=None if margin is None else float(margin),
        measured=measured,
    )


def _compare(arm: str, other: str, pair: Pair, measured: RewardRange) -> Comparison:
    inner, outer = _difference(pair.among_answered), _difference(pair.whatever)
    offset = float(measured.low) / measured.width
    ratio = pair.among_answered.ratio(offset)
    difference = lift = None
    if pair.estimate is not None and pair.other_estimate is not None:
        apart = pair.estimate - pair.other_estimate
        difference = measured.difference(min(max(apart, inner[0]), inner[1]))
        lift = _lift(pair.estimate, pair.other_estimate, offset, ratio)
    return Comparison(
        arm=arm,
        other=other,
        difference=difference,
        lower=measured.difference(inner[0]),
        upper=measured.difference(inner[1]),
        lower_all_asked=measured.difference(outer[0]),
        upper_all_asked=measured.difference(outer[1]),
        lift=lift,
        lift_lower=None if ratio.lower is None else ratio.lower - 1,
        lift_upper=_bound_lift(ratio.upper),
    )


def _difference(region: PairRegion) -> tuple[float, float]:
    ends = region.difference()
    return (-1.0 if ends.lower is None else ends.lower), (
        1.0 if ends.upper is None else ends.upper
    )


def _bound_lift(upper: float | None) -> float | None:
    return None if upper is None or upper > _LARGEST_LIFT else upper - 1


def _lift(one: float, other: float, offset: float, ratio: Ends) -> float | None:
    """Return the ratio of two estimates less one, within its interval."""
    if other + offset <= 0:
        return None
    found = (one + offset) / (other + offset)
    found = found if ratio.lower is None else max(found, ratio.lower)
    found = found if ratio.upper is None else min(found, ratio.upper)
    return found - 1


def describe_difference(one: Comparison, measured: RewardRange) -> str:
    """Return a difference with its interval, without the unit's name.

    Examples
    --------
    >>> one = Comparison("a", "b", 0.05, -0.01, 0.1, -0.01, 0.1, 0.5, -0.2, None)
    >>> describe_difference(one, RewardRange()), describe_lift(one)
    ('+0.050 (−0.010 to +0.100)', '+50 % (−20 % or more)')
    """
    estimate = (
        "–" if one.difference is None else _format_signed(one.difference, measured)
    )
    return f"{estimate} ({describe_ends(one.lower, one.upper, measured)})"


def describe_ends(lower: float, upper: float, measured: RewardRange) -> str:
    """Return the ends of a difference, without the unit's name."""
    return f"{_format_signed(lower, measured)} to {_format_signed(upper, measured)}"


def judge(one: Comparison, margin: float | None, *, to_leader: bool = False) -> str:
    """Say in two words what an interval of a difference shows.

    That an arm is out is sure although this interval may touch 0, and what an ending by
    the margin says is sure although it may reach beyond the margin.

    Examples
    --------
    >>> one = Comparison("a", "b", 0.05, -0.01, 0.1, -0.01, 0.1, 0.5, -0.2, None)
    >>> judge(one, None), judge(one, 0.2)
    ('not decided', 'within the margin')
    """
    if margin is not None and -margin <= one.lower and one.upper <= margin:
        return WITHIN
    if one.lower > 0:
        return "surely better"
    if one.upper < 0:
        return "surely worse"
    if one.settled_by is not None:
        return _SETTLED[one.settled_by]
    return "out" if to_leader and one.is_out else "not decided"


def describe_lift(one: Comparison) -> str:
    """Return a lift with its interval; what is not bounded is said to be so."""
    lower, upper = one.lift_lower, one.lift_upper
    if lower is None or (lower <= -1 and upper is None):
        return NOT_BOUNDED
    start = "–" if one.lift is None else signed_percent(one.lift)
    if upper is None:
        return f"{start} ({signed_percent(lower)} or more)"
    return f"{start} ({signed_percent(lower)} to {signed_percent(upper)})"


def _format_signed(number: float, measured: RewardRange) -> str:
    return f"{number:+,.{measured.decimals}f}".replace("-", "−")
