"""A plan as a page for people or as JSON for programs. Every ε is rounded up."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import Any

from wallflower.calendar_time import describe_days
from wallflower.output import page, print_json, print_table, print_text
from wallflower.planning.findable import (
    describe_findable,
    describe_others,
    detectable_json,
    margin_json,
)
from wallflower.planning.future import RUNS, PlannedBatch
from wallflower.planning.plan import PRIVACY_DELTAS, GapCost, LieEffect, Plan
from wallflower.planning.shuffled import messages_sentence, sent_by_user
from wallflower.planning.units import (
    describe_clipping,
    describe_gap,
    round_gap_up,
)
from wallflower.protocol.accounting.exact import Bound
from wallflower.protocol.numbers import counted, round_up
from wallflower.protocol.privacy.sentences import MUST_BE_HONEST, percent, power
from wallflower.protocol.rewards.reward_range import RewardRange
from wallflower.strategy.store.entries import Askable

_BATCHES = (
    "round",
    "users per arm",
    "g",
    "τ",
    "modulus m",
    "bits",
    "users so far",
    "tells apart",
)
_GAPS = (
    "gap of means",
    "typically",
    "users per arm",
    "users in all",
    "by round",
    "fits",
)
_LEGEND = (
    "Outcomes are rounded to multiples of 1/g; τ bounds the noise of a sum; bits are "
    "what one user sends. The last column is the gap of means that is decided by then."
)


def print_plan(plan: Plan, output: str, askable: Askable | None = None) -> None:
    """Show it in the format asked for, with who can be asked where that is known."""
    if output == "json":
        known = None if askable is None else dataclasses.asdict(askable)
        print_json("plan", {**plan_json(plan), "people": known})
        return
    _print_page(plan)
    if askable is not None:
        print_text(page(), askable.describe())


# --- JSON


def plan_json(plan: Plan) -> dict[str, Any]:
    """Return everything in the plan; an infinite ε is null."""
    request, guarantee = plan.request, plan.guarantee
    return {
        "settings": {
            "arms": request.arms,
            "names": list(request.names),
            "horizon": request.horizon,
            "epsilon": str(request.epsilon),
            "mechanism": request.mechanism,
            "scale": str(request.scale),
            "ratio": str(plan.policy.ratio),
            "first_batch": plan.policy.first_batch,
            "floor": str(request.floor),
            "corrupt": str(request.corrupt),
            "participations": request.participations,
            "failure_probability": str(request.failure_probability),
            "base_rate": _mean_json(request.base_rate, request.measured),
            "shuffle": request.shuffle,
        },
        **request.measured.as_json(),
        "clipping": _clipping(plan),
        "batches": [_batch_json(planned, request.measured) for planned in plan.batches],
        "calendar": _calendar_json(plan),
        "guarantee": {
            "kind": guarantee.kind,
            "epsilon": (
                None if guarantee.epsilon is None else float(guarantee.epsilon_text)
            ),
            "privacy_delta": float(guarantee.privacy_delta),
            "trust": guarantee.trust,
            "unit": "one user, one reward",
            "participations": request.participations,
            "sentence": plan.sentence,
            "approximate": [_bound_json(bound) for bound in plan.equivalents],
            "probabilistic": [
                {"epsilon": _round_epsilon(loss), "privacy_delta": privacy_delta}
                for loss, privacy_delta in zip(plan.losses, PRIVACY_DELTAS, strict=True)
            ],
            "returning_users": [_bound_json(bound) for bound in plan.returning],
        },
        "dropouts": [
            {
                "arriving": str(effect.arriving),
                "epsilon": _round_epsilon(effect.epsilon),
            }
            for effect in plan.dropouts
        ],
        "lies": [_lie_json(effect, request.measured) for effect in plan.lies],
        "gaps": [
            _gap_json(cost, request.measured) | {"fits": cost.fits(request.most_users)}
            for cost in plan.gaps
        ],
        "minimum_detectable": detectable_json(plan),
        "margin": margin_json(plan),
        "stranded": None if request.stranded is None else request.stranded.as_json(),
    }


def _calendar_json(plan: Plan) -> dict[str, Any] | None:
    calendar = plan.request.calendar
    if calendar is None:
        return None
    days = [calendar.days(one.users, one.batch) for one in plan.batches]
    return {**calendar.as_json(), "days_by_batch": days}


def _calendar(plan: Plan) -> str | None:
    """Say when each round is over if no arm falls."""
    calendar = plan.request.calendar
    if calendar is None:
        return None
    ends = [
        f"round {one.batch} is over after "
        f"{describe_days(calendar.days(one.users, one.batch))}"
        for one in (plan.batches[0], plan.batches[-1])
    ]
    return f"If no arm falls, {' and '.join(dict.fromkeys(ends))}, {calendar.terms}."


def _mean_json(part: Fraction, measured: RewardRange) -> str:
    return str(measured.low + part * (measured.high - measured.low))


def _lie_json(effect: LieEffect, measured: RewardRange) -> dict[str, Any]:
    return {
        "people": effect.people,
        "trusted": measured.difference(effect.trusted),
        "counts_as": effect.counts_as,
        "proved": measured.difference(effect.proved),
    }


def _batch_json(planned: PlannedBatch, measured: RewardRange) -> dict[str, Any]:
    cohort = planned.cohort
    sent = sent_by_user(cohort)
    shuffled = (
        {}
        if sent is None
        else {"messages_per_user": sent.messages, "sealed_bytes_per_user": sent.size}
    )
    return {
        **shuffled,
        "batch": planned.batch,
        "cohort_size": cohort.cohort_size,
        "honest_floor": cohort.honest_floor,
        "precision": cohort.precision,
        "noise_bound": cohort.noise_bound,
        "modulus": cohort.modulus,
        "bits_per_user": cohort.bits_per_user,
        "users": planned.users,
        "separates": measured.difference(min(1.0, planned.separates)),
    }


def _bound_json(bound: Bound) -> dict[str, Any]:
    return {
        "epsilon": _round_epsilon(bound.epsilon),
        "privacy_delta": bound.privacy_delta,
        "reason": bound.reason,
    }


def _gap_json(cost: GapCost, measured: RewardRange) -> dict[str, Any]:
    return {
        "gap": float(cost.gap * (measured.high - measured.low)),
        "batch": cost.batch,
        "users_per_arm": cost.users_per_arm,
        "users": cost.users,
        "typically": cost.typically,
    }


def _round_epsilon(epsilon: float) -> float | None:
    return None if math.isinf(epsilon) else float(round_up(epsilon))


# --- the page


def _print_page(plan: Plan) -> None:
    request, out = plan.request, page()
    print_text(
        out,
        f"{counted(request.arms, 'arm')}, up to {counted(request.horizon, 'user')}, "
        f"{request.mechanism} at ε = {round_up(request.epsilon)}",
        "bold",
    )
    if request.names:
        print_text(out, f"Arms: {', '.join(request.names)}.")
    print_text(out, "")
    print_text(out, "What a person is promised", "bold")
    print_text(out, plan.sentence)
    print_text(out, f"Must be trusted: {MUST_BE_HONEST[plan.guarantee.trust]}.")
    if plan.guarantee.epsilon is not None:
        print_text(out, _equivalents(plan))
    for line in _returning(plan):
        print_text(out, line)
    print_text(out, "")
    if (clipping := _clipping(plan)) is not None:
        print_text(out, "What is measured", "bold")
        print_text(out, clipping)
        print_text(out, "")
    if request.stranded is not None:
        print_text(out, "Who can be asked", "bold")
        print_text(out, request.stranded.describe())
        print_text(out, "")
    print_text(out, "What is sent (if no arm falls early)", "bold")
    rows = [_batch(planned, request.measured) for planned in plan.batches]
    print_table(out, _BATCHES, rows)
    print_text(out, _LEGEND)
    largest = plan.batches[-1].cohort
    if (sent := sent_by_user(largest)) is not None:
        print_text(out, messages_sentence(largest, sent))
    print_text(out, "")
    if (calendar := _calendar(plan)) is not None:
        print_text(out, "How long it takes", "bold")
        print_text(out, calendar)
        print_text(out, "")
    if plan.dropouts:
        print_text(out, "When people do not answer", "bold")
        print_text(out, _dropouts(plan))
        print_text(out, "")
    if plan.lies:
        print_text(out, "When a person lies", "bold")
        print_text(out, _lies(plan))
        print_text(out, "")
    sure = percent(1 - request.failure_probability)
    print_text(out, f"Users needed to tell arms apart with probability {sure}", "bold")
    print_table(out, _GAPS, [_gap_row(cost, plan) for cost in plan.gaps])
    print_text(
        out,
        f"Typically: mean of {RUNS} simulated experiments in all, one arm ahead of "
        f"the others' {describe_others(request)}. The other columns suffice whatever "
        f"the {'rates' if request.measured.is_default else 'means'} are, if everybody "
        "who is asked answers.",
    )
    print_text(out, describe_findable(plan))


def _clipping(plan: Plan) -> str | None:
    request = plan.request
    return describe_clipping(request.measured) if request.outcomes else None


def _lies(plan: Plan) -> str:
    first, last = plan.lies[0], plan.lies[-1]
    measured = plan.request.measured

    def describe_move(effect: LieEffect) -> str:
        part = min(effect.proved, effect.trusted)
        if measured.is_default:
            return round_up(part, 3)
        return round_gap_up(part, measured)

    counts_as = round_up(max(first.counts_as, last.counts_as), 0)
    return (
        "Where inputs are trusted, one dishonest person (or node) can put the mean of "
        f"its cohort anywhere, up to {round_gap_up(first.trusted, measured)} away. "
        "Where they are proved (secure-sum.inputs, for a δ of 2⁻⁴⁰), one person counts "
        f"as at most {counts_as}. They move the mean of {first.people:,} people by "
        f"{describe_move(first)} at most, of {last.people:,} by "
        f"{describe_move(last)}. A node that speaks for u people moves it u times as "
        "far."
    )


def _equivalents(plan: Plan) -> str:
    parts = [
        f"({round_up(bound.epsilon)}, {power(privacy_delta)})"
        for bound, privacy_delta in zip(plan.equivalents, PRIVACY_DELTAS, strict=True)
    ]
    if plan.guarantee.kind == "pure":
        without = not plan.guarantee.privacy_delta
        start, exceeded = "The promise needs no δ; as" if without else "As", ""
    else:
        start = "As"
        losses = [
            f"{round_up(loss)} with a chance of {power(privacy_delta)}"
            for loss, privacy_delta in zip(plan.losses, PRIVACY_DELTAS, strict=True)
        ]
        exceeded = (
            " In one cohort, to who sees the bare sum, the loss of privacy exceeds "
            f"{', '.join(losses)} at most."
        )
    return f"{start} (ε, δ)-DP it reads {', '.join(parts)}.{exceeded}"


def _returning(plan: Plan) -> list[str]:
    times = plan.request.participations
    if times == 1 or plan.guarantee.epsilon is None:
        return ["Everybody takes part once at most."] if times == 1 else []
    lines = [f"After {times} times, the smallest valid bound holds:"]
    for bound in plan.returning:
        exactly = f"δ = {power(bound.privacy_delta)}" if bound.privacy_delta else "no δ"
        lines.append(f"  ε = {round_up(bound.epsilon)} ({exactly}): {bound.reason}")
    return lines


def _batch(planned: PlannedBatch, measured: RewardRange) -> tuple[str, ...]:
    cohort = planned.cohort
    return (
        str(planned.batch),
        f"{cohort.cohort_size:,}",
        f"{cohort.precision:,}",
        f"{cohort.noise_bound:,}",
        f"{cohort.modulus:,}",
        str(cohort.bits_per_user),
        f"{planned.users:,}",
        "–" if planned.separates > 1 else round_gap_up(planned.separates, measured),
    )


def _ends(parts: list[Fraction]) -> tuple[Fraction, Fraction]:
    return min(parts), max(parts)


def _dropouts(plan: Plan) -> str:
    parts = [
        f"{round_up(effect.epsilon)} with {percent(effect.arriving)} of them"
        for effect in plan.dropouts
        if effect.arriving < 1
    ]
    floors = [
        Fraction(planned.cohort.honest_floor, planned.cohort.cohort_size)
        for planned in plan.batches
    ]
    least, most = (f"{round_up(part * 100, 1)} %" for part in _ends(floors))
    part = f"{most} of the cohort"
    if least != most:
        part = f"{least} to {most} of the cohort, by its size"
    return (
        f"Each person's noise counts on {part}. "
        "While so many honest people answer, the promise holds in full. With fewer, no "
        "sum is released and the cohort counts as used. Were it released, ε would be "
        f"{', '.join(parts)}."
    )


def _typically(cost: GapCost) -> str:
    return "–" if cost.typically is None else f"{cost.typically:,}"


def _gap_row(cost: GapCost, plan: Plan) -> tuple[str, ...]:
    gap, often = describe_gap(cost.gap, plan.request.measured), _typically(cost)
    if cost.users is None:
        return gap, often, "more than 10¹⁰", "–", "–", "no"
    fits = "yes" if cost.fits(plan.request.most_users) else "no"
    per_arm = f"{cost.users_per_arm:,}"
    return gap, often, per_arm, f"{cost.users:,}", str(cost.batch), fits
