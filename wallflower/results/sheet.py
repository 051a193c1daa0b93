"""One page for the people who are asked: what happens, and what nobody learns.

The facts are those of the plan, so that a sheet promises what a run keeps. They are
values without words: each language has a template of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from wallflower.planning.collusion import collusion_effect
from wallflower.planning.plan import make_plan
from wallflower.planning.request import PlanRequest
from wallflower.protocol.errors import ConfigError, InputError
from wallflower.protocol.files.sections import one_of
from wallflower.protocol.numbers import round_up
from wallflower.protocol.privacy.sentences import Promise, odds_factor, percent, power
from wallflower.results.page import fragment
from wallflower.strategy.config import ExperimentConfig
from wallflower.strategy.sections import ContactSettings

LANGUAGES = ("en", "de")
_NEEDED = ("responsible", "email", "retention")
_CERTAIN = 10_000  # even odds become so many to 1: nobody doubts any more
_WITH_COMMA = str.maketrans(".,", ",.")  # 1,250.5 becomes 1.250,5
_UNITS = (("days", 86_400), ("hours", 3_600), ("minutes", 60), ("seconds", 1))


@dataclass(frozen=True, slots=True)
class Sheet:
    """What a sheet says, in the language's own numbers.

    Attributes
    ----------
    name, arms : of the experiment.
    times : how often a person takes part at most.
    low, high : between which outcomes count.
    window : after how many of which unit the outcome is taken; None at once.
    trust : who must be honest, as of `protocol.privacy.sentences.MUST_BE_HONEST`.
    factor : what even odds become to one, at most.
    epsilon, privacy_delta : of everything, for those who look it up; δ empty if none.
    fewest : people in the smallest sum that is opened.
    nodes : percent of nodes that may work with the operator; empty for none.
    honest : percent of the people of each cohort that must answer honestly.
    half : the same factor if only half of them do; empty where nothing depends on it.
    alone : the same factor if only a person's own noise is left; empty: certainty.
    contact : whom to ask.
    """

    name: str
    arms: tuple[str, ...]
    times: int
    low: str
    high: str
    window: tuple[str, str] | None
    trust: str
    factor: str
    epsilon: str
    privacy_delta: str
    fewest: int
    nodes: str
    honest: str
    half: str
    alone: str
    contact: ContactSettings


def write_sheet(
    config: ExperimentConfig, request: PlanRequest, where: Path, language: str
) -> str:
    """Return the page as HTML; a file without somebody to ask is refused."""
    one_of("language", language, LANGUAGES)
    for key in _NEEDED:
        if not getattr(config.contact, key):
            raise ConfigError(
                f"{where}.contact",
                f'"{key}" is missing: people must know whom to ask and how long '
                "something is kept",
            )
    sheet = _facts(config, request, comma=language == "de")
    return fragment(f"sheet.{language}.html", {"sheet": sheet})


def _facts(config: ExperimentConfig, request: PlanRequest, *, comma: bool) -> Sheet:
    plan = make_plan(request)
    promise = plan.promise
    if config.test_mode or promise.kind == "none":
        raise InputError(
            "privacy.mechanism",
            "a seed" if config.test_mode else config.privacy.mechanism,
            "one that promises something; nobody may be asked on these terms",
        )
    cohorts = [batch.cohort for batch in plan.batches]
    effect = collusion_effect(cohorts)

    def say(number: str) -> str:
        return number.translate(_WITH_COMMA) if comma else number

    low, high = config.reward_range.ends
    return Sheet(
        name=config.experiment.name,
        arms=config.experiment.arms,
        times=promise.times,
        low=say(low),
        high=config.reward_range.with_unit(say(high)),
        window=_window(config.window.seconds, say),
        trust=promise.trust,
        factor=say(odds_factor(promise.epsilon)),
        epsilon=say(round_up(promise.epsilon)),
        privacy_delta=say(_delta(promise)),
        fewest=min(cohort.honest_floor for cohort in cohorts),
        nodes=say(percent(promise.corrupt)) if promise.corrupt else "",
        honest=say(_honest(promise)),
        half=say(_odds(None if effect is None else effect.half)),
        alone=say(_odds(None if effect is None else effect.alone)),
        contact=config.contact,
    )


def _window(seconds: float | None, say: Callable[[str], str]) -> tuple[str, str] | None:
    """Return a window in the largest unit that divides it; None without one."""
    if seconds is None:
        return None
    unit, length = next(
        ((unit, length) for unit, length in _UNITS if seconds % length == 0),
        _UNITS[-1],
    )
    return say(f"{seconds / length:g}"), unit


def _delta(promise: Promise) -> str:
    return power(promise.privacy_delta) if promise.privacy_delta else ""


def _honest(promise: Promise) -> str:
    """Return the percent of the most demanding cohort, rounded up."""
    most = max(
        Fraction(condition.honest, condition.people) for condition in promise.conditions
    )
    return f"{round_up(most * 100, 1)} %"


def _odds(epsilon: float | None) -> str:
    """Return what even odds become; nothing where that is certainty, or no number."""
    if epsilon is None or epsilon > math.log(_CERTAIN):
        return ""
    return odds_factor(epsilon)
