from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from tests.strategy.watch.test_metrics import samples
from wallflower.protocol.files.logs import JsonFormatter
from wallflower.strategy.bandit.policy import ArmView, EliminationReason
from wallflower.strategy.store.events import (
    CohortAsked,
    CohortEnded,
    CohortProgress,
    Event,
    RoundFinished,
    RoundStarted,
    RunStarted,
)
from wallflower.strategy.watch.observing import Metrics
from wallflower.strategy.watch.telemetry import RunLog, RunMetrics, fan_out

# Of eight digits, so that no time stamp has them by chance.
SECRETS = ("51234567", "21234567", "42718281", "61414213", "12236067", "31732050")
VIEWS = (
    ArmView(0, 90, 0.51234567, 0.42718281, 0.61414213, True, None),
    ArmView(
        1,
        90,
        0.21234567,
        0.12236067,
        0.31732050,
        False,
        1,
        EliminationReason(0, 0.31732050, radius=0.42718281),
    ),
)
STORY: tuple[Event, ...] = (
    RunStarted("r1", ("a", "b"), 4, 400, 400, 0),
    RoundStarted(1, 1, (0, 1), 200),
    CohortAsked("c1", 1, 1, 0, 1, 100, 4),
    CohortAsked("c2", 1, 1, 1, 1, 100, 4),
    CohortProgress("c1", 0, "contribute", 2, 4),
    CohortEnded("c1", 0, 1, 90, 10, None, (("node-gone", 1),), 1.25),
    CohortEnded("c2", 1, 1, 0, 100, "below-quorum", (("node-gone", 3),), 2.5),
    RoundFinished(1, VIEWS, 200, 90, 110, None, 3.0),
)


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    sink = io.StringIO()
    handler = logging.StreamHandler(sink)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("wallflower.run")
    logger.addHandler(handler)
    level = logger.level
    logger.setLevel(logging.INFO)
    yield sink
    logger.removeHandler(handler)
    logger.setLevel(level)


async def test_metrics_count_users_and_cohorts() -> None:
    metrics = RunMetrics("r1", clock=lambda: 1234.0)
    for event in STORY:
        await metrics(event)
    found = samples(Metrics(metrics))
    assert found["wallflower_run_info", "r1"] == 1
    assert found["wallflower_run_users_invited_total", ""] == 200
    assert found["wallflower_run_users_answered_total", ""] == 90
    assert found["wallflower_run_cohorts_total", "below-quorum"] == 1
    assert found["wallflower_run_refusals_total", "node-gone"] == 4
    assert found["wallflower_run_cohorts_open", ""] == 0
    assert found["wallflower_run_arms_active", ""] == 1
    assert found["wallflower_run_last_progress_timestamp_seconds", ""] == 1234


async def test_logs_carry_run_batch_and_arm(stream: io.StringIO) -> None:
    log = RunLog("r1")
    for event in STORY:
        await log(event)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    void = next(line for line in lines if line["event"] == "cohort void")
    assert (void["run"], void["batch"], void["arm"]) == ("r1", 1, 1)
    assert (void["reason"], void["lost"]) == ("below-quorum", 100)
    assert len(lines) == len(STORY) - 1  # progress is for live views


async def test_neither_logs_nor_metrics_tell_an_estimate_or_a_bound(
    stream: io.StringIO,
) -> None:
    metrics = RunMetrics("r1")
    tell = fan_out(RunLog("r1"), metrics)
    for event in STORY:
        await tell(event)
    said = stream.getvalue() + Metrics(metrics).text().decode()
    for secret in SECRETS:
        assert secret[:7] not in said
