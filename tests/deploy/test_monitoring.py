"""Alerts name metrics that exist, and each has its paragraph in the guide."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from wallflower.strategy.transport.grpc.stats import GrpcServerStats
from wallflower.strategy.watch.observing import Metrics
from wallflower.strategy.watch.telemetry import RunMetrics

ROOT = Path(__file__).resolve().parents[2]
RULES: list[dict[str, Any]] = yaml.safe_load(
    (ROOT / "deploy/monitoring/alerts.yaml").read_text()
)["groups"][0]["rules"]


def exported() -> set[str]:
    stats, run = GrpcServerStats(), RunMetrics("r")
    stats.refused["x"] = run.cohorts["x"] = 1
    text = Metrics(stats, run).text().decode()
    return set(re.findall(r"^([a-z_]+)", text, re.MULTILINE)) - {"up"}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_an_alert_asks_for_metrics_that_are_exported(rule: dict[str, Any]) -> None:
    asked = set(re.findall(r"wallflower_[a-z_]+", rule["expr"]))
    assert asked <= exported(), asked - exported()
    assert asked or "up{" in rule["expr"]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_an_alert_has_its_paragraph_in_the_guide(rule: dict[str, Any]) -> None:
    path, _, anchor = str(rule["annotations"]["action"]).partition("#")
    headings = re.findall(r"^#+ (.+)$", (ROOT / path).read_text(), re.MULTILINE)
    assert anchor == str(rule["alert"]).lower()
    assert anchor in {heading.lower() for heading in headings}
