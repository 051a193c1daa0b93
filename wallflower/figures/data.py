"""The numbers behind a figure: simulated once, kept as CSV, reused when unchanged.

A curve's file is named by a hash of everything that decides it, so that a figure set
broken off anywhere goes on where it stopped, and a changed setting is simulated anew.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from wallflower.figures.plan import REWARD_DEVIATION, Figure, Panel, Series
from wallflower.protocol.numbers import round_up
from wallflower.protocol.privacy.sentences import power
from wallflower.protocol.rewards.models import synthetic_rewards
from wallflower.regret.report import guarantee_of
from wallflower.regret.setup import draw_means
from wallflower.regret.simulation import Doubles, Simulation, run

POINTS = 60
_VERSION = 1  # raise when the simulation itself changes
_COLUMNS = ("users", "mean", "stderr", "low", "high")


@dataclass(frozen=True)
class Curve:
    """Time-average regret over instances, at growing numbers of users.

    `low` and `high` hold the middle 80 % of the instances.
    """

    users: Doubles
    mean: Doubles
    stderr: Doubles
    low: Doubles
    high: Doubles

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Lines of a CSV file."""
        for values in zip(*(getattr(self, name) for name in _COLUMNS), strict=True):
            yield tuple(f"{value:.8g}" for value in values)


def list_settings(
    panel: Panel, series: Series, instances: int, seed: int
) -> dict[str, Any]:
    """Return everything that decides a curve."""
    return {
        "version": _VERSION,
        "label": series.label,
        "instance": panel.instance,
        "rewards": panel.rewards,
        "reward_sd": REWARD_DEVIATION,
        "instances": instances,
        "seed": seed,
        "points": POINTS,
        "policy": series.spec.resolved().as_json(),
    }


def load_curve(
    panel: Panel, series: Series, instances: int, seed: int, cache: Path
) -> Curve:
    """Return a curve from its file, or simulate it and write the file."""
    settings = list_settings(panel, series, instances, seed)
    text = json.dumps(settings, sort_keys=True)
    path = cache / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.csv"
    if path.exists():
        return _read(path)
    simulated = _simulate(panel, series, instances, seed)
    cache.mkdir(parents=True, exist_ok=True)
    # Written aside and renamed: a file that exists is whole.
    part = path.with_suffix(f".{os.getpid()}.part")
    _write(part, [f"# {text}"], _COLUMNS, list(simulated.rows()))
    part.replace(path)
    # Read back, so that a first run draws the very digits a resumed one would.
    return _read(path)


def write_figure_csv(
    path: Path, figure: Figure, curves: dict[tuple[int, int], Curve], header: str
) -> None:
    """Write all curves of a figure into one file; its first line tells the settings."""
    rows: list[tuple[str, ...]] = []
    for (place, number), found in curves.items():
        panel = figure.panels[place]
        series = panel.series[number]
        rows.extend((panel.title, series.label, *row) for row in found.rows())
    _write(path, [f"# {header}"], ("panel", "series", *_COLUMNS), rows)


def describe_promise(series: Series) -> str:
    """Return the (ε, δ) that a curve's users get, for its label."""
    found = guarantee_of(series.spec.resolved())
    if found["kind"] == "none":
        return "no privacy"
    if found["kind"] == "pure":
        delta = found["privacy_delta"]
        return f"ε = {found['epsilon']}, δ = {power(delta) if delta else 0}"
    rounded = round_up(float(found["approximate_epsilon"]), 2)
    return f"ε = {rounded}, δ = 10⁻⁶"


def _simulate(panel: Panel, series: Series, instances: int, seed: int) -> Curve:
    spec = series.spec
    means = draw_means(panel.instance, instances, spec.arms, seed).ravel()
    model = synthetic_rewards(panel.rewards, means, REWARD_DEVIATION)
    result = run(series.engine(Simulation(spec, model, instances, seed)))
    users = np.geomspace(min(1000, spec.horizon), spec.horizon, POINTS)
    average = result.regret_at(users) / users
    low, high = np.quantile(average, (0.1, 0.9), axis=0)
    spread = average.std(axis=0, ddof=1) if instances > 1 else np.zeros(POINTS)
    return Curve(users, average.mean(axis=0), spread / np.sqrt(instances), low, high)


def _write(
    path: Path,
    comments: list[str],
    columns: tuple[str, ...],
    rows: list[tuple[str, ...]],
) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        file.writelines(line + "\n" for line in comments)
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)


def _read(path: Path) -> Curve:
    table = np.loadtxt(path, delimiter=",", skiprows=2, ndmin=2)
    return Curve(*(table[:, column] for column in range(len(_COLUMNS))))
