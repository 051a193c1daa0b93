"""A simulation's result as one JSON envelope and as a table for people."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wallflower.calendar_time import describe_days
from wallflower.output import page, print_table, print_text
from wallflower.policy_text import describe_purpose
from wallflower.protocol.accounting.exact import smallest_bound
from wallflower.protocol.numbers import counted, round_up
from wallflower.protocol.privacy.mechanism import LARGEST_COHORT
from wallflower.protocol.privacy.sentences import (
    SENTENCE_DELTA,
    SIMULATION,
    CohortCondition,
    Promise,
    power,
)
from wallflower.protocol.rewards.reward_range import RewardRange
from wallflower.regret.setup import Prepared
from wallflower.regret.simulation import SimulationResult
from wallflower.strategy.bandit.schedule import Schedule
from wallflower.strategy.bandit.spec import DECIDING, PolicySpec, dropping_chance
from wallflower.strategy.policy_names import ELIMINATION, INDEX_POLICIES


def summarize(prepared: Prepared, result: SimulationResult) -> dict[str, Any]:
    """Sum a result up in JSON types."""
    spec = result.simulation.spec.resolved()
    regret = result.regret * prepared.measured.width
    count = len(regret)
    return {
        "schema_version": 1,
        "command": "simulate",
        "settings": {
            **spec.as_json(),
            "engine": prepared.engine_name,
            "rewards": prepared.rewards,
            "instance": prepared.instance,
            "instances": count,
            "seed": result.simulation.seed,
        },
        **prepared.measured.as_json(),
        **_table(prepared),
        "interrupted": not bool(result.complete.all()),
        "complete_instances": int(result.complete.sum()),
        "regret": {
            "mean": float(regret.mean()),
            "stderr": (
                float(regret.std(ddof=1) / math.sqrt(count)) if count > 1 else None
            ),
            "per_user": float(regret.mean() / max(result.users.mean(), 1)),
            "smallest": float(regret.min()),
            "largest": float(regret.max()),
            "percentile_99": quantiles(regret, 0.99)[0],
        },
        "users": float(result.users.mean()),
        "users_until_decided": users_until_decided(result),
        "days_until_decided": days_until_decided(prepared, result),
        "batches": result.batches,
        "finished": dict(Counter(result.finished)),
        "best_arm_dropped": int(result.best_dropped.sum()),
        "arms": _arms(prepared, result),
        "guarantee": guarantee_of(spec),
    }


def _table(prepared: Prepared) -> dict[str, Any]:
    """Say how the cells of a replayed table count, if one is replayed."""
    judged = prepared.table
    if judged is None:
        return {}
    arms = [one.as_json() for one in judged.arms]
    return {"table": {"arms": arms, "warnings": judged.find_warnings()}}


def users_until_decided(result: SimulationResult) -> dict[str, Any]:
    """Return users asked and rounds played until a run was decided.

    `low` and `high` hold nine runs of ten.

    Instances that were not decided are counted, and left out of the figures.
    """
    asked = result.asked[result.decided]
    rounds = result.rounds[result.decided]
    names = ("median", "low", "high", "percentile_99")
    figures: dict[str, Any] = dict.fromkeys(("mean", *names, "rounds"))
    if len(asked):
        found = quantiles(asked, 0.5, 0.05, 0.95, 0.99)
        figures = {
            "mean": float(asked.mean()),
            **dict(zip(names, found, strict=True)),
            "rounds": float(rounds.mean()),
        }
    return {**figures, "undecided": int((~result.decided).sum())}


def days_until_decided(
    prepared: Prepared, result: SimulationResult
) -> dict[str, Any] | None:
    """Days until one arm was left, where people arrive; None where nobody says when.

    Instances that were not decided are left out of the figures.
    """
    calendar = prepared.calendar
    if calendar is None:
        return None
    rounds = result.eliminated_in.max(axis=1)
    days = calendar.days(result.asked, rounds)[result.decided]
    names = ("median", "low", "high", "percentile_99")
    figures: dict[str, Any] = dict.fromkeys(("mean", "rounds", *names))
    if len(days):
        found = quantiles(days, 0.5, 0.05, 0.95, 0.99)
        figures = {
            "mean": float(days.mean()),
            "rounds": float(rounds[result.decided].mean()),
            **dict(zip(names, found, strict=True)),
        }
    return {**figures, **calendar.as_json(), "terms": calendar.terms}


def quantiles(values: NDArray[Any], *parts: float) -> list[float]:
    """Return linear quantiles; NumPy's own load masked arrays, 30 ms of a command."""
    places = np.array(parts) * (len(values) - 1)
    found: list[float] = np.interp(places, range(len(values)), np.sort(values)).tolist()
    return found


def guarantee_of(spec: PolicySpec) -> dict[str, Any]:
    """Say what users are promised, whichever cohort they are in; and how sure it is."""
    conditions = _list_conditions(spec)
    wrap = spec.failure_probability / (100 * spec.arms)
    cohorts = [
        spec.calibrated(condition.people, condition.honest, wrap)
        for condition in conditions
        if condition.people <= LARGEST_COHORT
    ]
    promises = [cohort.guarantee() for cohort in cohorts]
    promise = max(promises, key=lambda one: one.epsilon or Fraction(0))
    approximate = smallest_bound(cohorts, 1, SENTENCE_DELTA).epsilon
    pure = promise.kind == "pure" and promise.epsilon is not None
    words = Promise(
        kind=promise.kind,
        trust=promise.trust,
        epsilon=(promise.epsilon or Fraction(0)) if pure else approximate,
        privacy_delta=float(promise.privacy_delta) if pure else SENTENCE_DELTA,
        conditions=conditions,
        corrupt=Fraction(0) if spec.floors is None else spec.floors.corrupt,
        keys=None if spec.floors is None else (),
    )
    return {
        "kind": promise.kind,
        "epsilon": promise.epsilon_text,
        "privacy_delta": float(promise.privacy_delta),
        "trust": promise.trust,
        "approximate_epsilon": (
            round_up(approximate) if math.isfinite(approximate) else None
        ),
        "approximate_delta": SENTENCE_DELTA,
        "sentence": f"{SIMULATION} {words.sentence()}",
        "best_arm": _best_arm_sentence(spec),
    }


def _list_conditions(spec: PolicySpec) -> tuple[CohortCondition, ...]:
    """Return every size that the horizon allows, as a plan with all arms does."""
    assert spec.ratio is not None, "a resolved spec has a ratio"
    schedule = Schedule(spec.ratio, max(spec.first_batch, 1))
    batches = schedule.batches_within(spec.horizon // spec.arms)
    sizes = [schedule.size(number) for number in range(1, max(batches, 1) + 1)]
    return tuple(CohortCondition(size, spec.floor(size)) for size in sizes)


def _best_arm_sentence(spec: PolicySpec) -> str:
    failure = spec.failure_probability
    bound = round_up(dropping_chance(spec.radius, failure), 6)
    if spec.policy not in (ELIMINATION, *INDEX_POLICIES):
        return f"What {spec.policy} promises about the best arm is not known here."
    if spec.policy != ELIMINATION:
        return (
            "No arm is ruled out; all intervals hold together with probability at "
            f"least {1 - float(failure):.4g}."
        )
    return f"The best arm is ever dropped with probability at most {bound}."


def _arms(prepared: Prepared, result: SimulationResult) -> list[dict[str, Any]]:
    """One row per arm: as named, or by rank of the mean where means were drawn."""
    measured = prepared.measured
    means = result.simulation.means
    rows, columns = means.shape
    order = np.tile(np.arange(columns), (rows, 1))
    names = prepared.arm_names
    if names is None:
        order = np.argsort(-means, axis=1)
        names = tuple(f"rank {rank + 1}" for rank in range(columns))

    def column(values: NDArray[Any], arm: int) -> NDArray[Any]:
        return np.asarray(np.take_along_axis(values, order, axis=1)[:, arm])

    return [
        {
            "arm": names[arm],
            "true_mean": measured.mean(float(column(means, arm).mean())),
            "estimate": measured.mean(float(column(result.estimates, arm).mean())),
            "lower": measured.mean(float(column(result.lower, arm).mean())),
            "upper": measured.mean(float(column(result.upper, arm).mean())),
            "users": float(column(result.pulls, arm).mean()),
            **_status(column(result.eliminated_in, arm)),
        }
        for arm in range(columns)
    ]


def _status(eliminated_in: NDArray[np.int64]) -> dict[str, Any]:
    out = eliminated_in > 0
    if len(eliminated_in) == 1:
        status = "out" if out[0] else "active"
    else:
        status = f"out in {int(out.sum())} of {len(out)}"
    batch = float(eliminated_in[out].mean()) if out.any() else None
    return {"status": status, "eliminated_in": batch}


def _describe_decided(report: dict[str, Any]) -> str:
    until, policy = report["users_until_decided"], report["settings"]["policy"]
    if policy not in DECIDING:
        return describe_purpose(policy)
    if until["mean"] is None:
        return "in no run"
    undecided = until["undecided"]
    if report["settings"]["instances"] == 1:
        rounds = counted(round(until["rounds"]), "round")
        return f"after {until['mean']:,.0f} users in {rounds}"
    return (
        f"after {until['mean']:,.0f} users in {until['rounds']:.1f} rounds on average, "
        f"{until['low']:,.0f} to "
        f"{until['high']:,.0f} in nine runs of ten, 99 % below "
        f"{until['percentile_99']:,.0f}"
        + (f"; not in {counted(undecided, 'run')}" if undecided else "")
    )


def print_report(report: dict[str, Any], measured: RewardRange) -> None:
    """Write the envelope for people, as wide as their terminal."""
    out, settings = page(), report["settings"]
    counts = counted(settings["instances"], "instance")
    print_text(
        out,
        f"{settings['policy']} on {settings['mechanism']}, ε = {settings['epsilon']}, "
        f"{counts}, seed {settings['seed']}",
    )
    arms = report["arms"]
    # A rank is no arm and has no mark.
    marked = range(len(arms)) if settings["instance"] == "given" else ()
    print_table(out, _COLUMNS, [_row(arm, measured) for arm in arms], marked)
    for name, text in _lines(report, measured):
        print_text(out, text, indent=f"{name:<11}")


_COLUMNS = (
    "arm",
    "true mean",
    "estimate",
    "interval",
    "users",
    "status",
    "out in round",
)


def _row(row: dict[str, Any], measured: RewardRange) -> tuple[str, ...]:
    batch = row["eliminated_in"]
    decimals = 4 if measured.is_default else measured.decimals

    def number(key: str) -> str:
        return f"{row[key]:,.{decimals}f}"

    return (
        row["arm"],
        measured.with_unit(number("true_mean")),
        measured.with_unit(number("estimate")),
        measured.with_unit(f"{number('lower')} – {number('upper')}"),
        f"{row['users']:,.0f}",
        row["status"],
        "" if batch is None else f"{batch:.3g}",
    )


def _calendar(days: dict[str, Any]) -> str:
    if days["mean"] is None:
        return f"one arm was never left alone, {days['terms']}"
    return (
        f"{describe_days(days['mean'])} and {days['rounds']:.1f} rounds on average, "
        f"99 % below {describe_days(days['percentile_99'])}, {days['terms']}"
    )


_ENDS = {
    "winner": "with one arm left",
    "equal": "with arms practically equal",
    "futile": "with none better than control by the margin",
    "horizon": "with everybody asked",
    "rounds": "with all rounds asked",
}


def _lines(report: dict[str, Any], measured: RewardRange) -> Iterator[tuple[str, str]]:
    settings, regret = report["settings"], report["regret"]
    for warning in report.get("table", {"warnings": ()})["warnings"]:
        yield "table", warning
    promise, error = report["guarantee"], report["regret"]["stderr"]
    spread = "" if error is None else f" ± {error:,.1f} (s.e.)"
    mean, each = regret["mean"], regret["per_user"]
    shown = measured.with_unit(f"{regret['percentile_99']:,.0f}")
    yield (
        "regret",
        f"{measured.with_unit(f'{mean:,.1f}{spread}')} after {report['users']:,.0f} "
        f"users, {measured.with_unit(f'{each:.3g}')} per user"
        + ("" if error is None else f"; 99 % of runs below {shown}"),
    )
    yield "decided", _describe_decided(report)
    if report["days_until_decided"] is not None:
        yield "calendar", _calendar(report["days_until_decided"])
    ends = ", ".join(
        f"{count} of {settings['instances']} {_ENDS.get(why, why)}"
        for why, count in report["finished"].items()
    )
    yield (
        "ended",
        f"{ends}; {'' if error is None else 'at most '}"
        f"{counted(report['batches'], 'round')}; best arm dropped in "
        f"{report['best_arm_dropped']} of {settings['instances']}",
    )
    approximate = promise["approximate_epsilon"]
    yield (
        "privacy",
        f"{promise['kind']}, ε = {promise['epsilon']}, trust: {promise['trust']}"
        + (
            f"; as (ε, δ): ({approximate}, {power(SENTENCE_DELTA)})"
            if approximate
            else ""
        ),
    )
    yield "", promise["sentence"]
    yield "certainty", promise["best_arm"]
    if report["interrupted"]:
        done = report["complete_instances"]
        yield "interrupted", f" {done} of {settings['instances']} reached their end"
