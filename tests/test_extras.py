"""What one feature alone needs is an extra; without it the error says which."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.run_fixtures import SMALL
from wallflower.clients.rewards.local import reward_source
from wallflower.engines import flower
from wallflower.figures.plan import FIGURES
from wallflower.figures.plot import draw_figure
from wallflower.protocol.errors import UnavailableError
from wallflower.protocol.files.sections import RewardSettings
from wallflower.strategy.config import load_config


def without(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    for module in modules:
        monkeypatch.setitem(sys.modules, module, None)


def test_parquet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    without(monkeypatch, "pyarrow")
    path = tmp_path / "rewards.parquet"
    path.write_bytes(b"")
    settings = RewardSettings(source="table", table=path)
    with pytest.raises(UnavailableError, match=r"wallflower\[parquet\]"):
        reward_source(settings, "node-0", ("a", "b"))


def test_flowers_simulation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    without(monkeypatch, "ray")
    (tmp_path / "experiment.toml").write_text(SMALL)
    with pytest.raises(UnavailableError, match=r"wallflower\[simulation\]"):
        flower.check_simulation(load_config(tmp_path / "experiment.toml"))


def test_figures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    without(monkeypatch, "matplotlib")
    with pytest.raises(UnavailableError, match=r"wallflower\[figures\]"):
        draw_figure(FIGURES[0], {}, tmp_path, "", 1)
