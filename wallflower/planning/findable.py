"""What the users of an experiment typically suffice for: a lead, and the margin."""

from __future__ import annotations

from typing import Any

from wallflower.planning.future import RUNS
from wallflower.planning.plan import Plan
from wallflower.planning.request import PlanRequest
from wallflower.planning.units import describe_gap, describe_mean
from wallflower.protocol.numbers import counted, signed_percent


def describe_findable(plan: Plan) -> str:
    """Say which lead is found, and when the margin ends a run."""
    return _detectable(plan) + _margin(plan)


def detectable_json(plan: Plan) -> dict[str, Any] | None:
    """Return the smallest lead that is typically found, None where there is none."""
    lead, measured = plan.smallest_lead, plan.request.measured
    if lead is None:
        return None
    base = measured.mean(float(plan.request.base_rate))
    gap = measured.difference(float(lead))
    return {"gap": gap, "lift": gap / base if base > 0 else None, "base_rate": base}


def _detectable(plan: Plan) -> str:
    """Say which lead the users of the experiment typically suffice for."""
    request, lead, found = plan.request, plan.smallest_lead, detectable_json(plan)
    start = (
        f"Minimum detectable effect: with {counted(request.horizon, 'user')} and the "
        f"others' {describe_others(request)}"
    )
    if lead is None or found is None:
        return f"{start}, no lead is typically found."
    lift = found["lift"]
    relative = "" if lift is None else f" ({signed_percent(lift, 2)})"
    return (
        f"{start}, a lead of {describe_gap(lead, request.measured)}{relative} is found "
        f"in at least four of five of {RUNS} simulated experiments."
    )


def margin_json(plan: Plan) -> dict[str, Any] | None:
    """Return the margin, and who is typically asked until it ends a run of equals."""
    margin, measured = plan.policy.margin, plan.request.measured
    if margin is None:
        return None
    part = measured.difference(float(margin))
    return {"margin": part, "users_if_equal": plan.users_if_equal}


def _margin(plan: Plan) -> str:
    """Say when the margin ends a run; nothing where none is stated."""
    margin, users = plan.policy.margin, plan.users_if_equal
    if margin is None:
        return ""
    gap = describe_gap(margin, plan.request.measured)
    start = f"Margin: a run also ends when no difference of {gap} or more is left"
    if users is None:
        return f" {start}. Were all arms alike, the users there are would not suffice."
    return f" {start}. Were all arms alike, that typically takes {users:,} users."


def describe_others(request: PlanRequest) -> str:
    """Say where the other arms of a typical experiment are."""
    mean = describe_mean(request.base_rate, request.measured)
    if request.measured.is_default:
        return f"rate of {mean}"
    return f"mean of {mean}, outcomes at either end of the range"
