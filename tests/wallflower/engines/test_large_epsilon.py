"""Levels that promise next to nothing still plan, run and say so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.run_fixtures import SMALL, write
from tests.wallflower.test_run_commands import invoke

LARGE = [
    ("dist-rdp", "7"),
    ("dist-cdp", "8"),
    ("dist-dp", "60"),
    ("local-dp", "60"),
    ("central-dp", "60"),
    ("dist-rdp", "99"),
    ("dist-cdp", "99"),
    ("dist-dp", "99"),
]


@pytest.mark.parametrize(("mechanism", "epsilon"), LARGE)
@pytest.mark.parametrize("times", ["1", "3"])
def test_a_large_epsilon_is_planned_with_its_real_promise(
    mechanism: str, epsilon: str, times: str
) -> None:
    code, said = invoke(
        *("plan", "--arms", "2", "--horizon", "2000"),
        *("--set", f"privacy.max-participations={times}"),
        *("--mechanism", mechanism, "--epsilon", epsilon, "--format", "json"),
    )
    assert code == 0
    promised = json.loads(said)["guarantee"]["approximate"][1]["epsilon"]
    assert promised is not None
    # At δ = 10⁻⁶ a pure ε barely falls, and Gaussian-like noise costs far more.
    assert promised >= float(epsilon) * 0.9


@pytest.mark.parametrize(("mechanism", "epsilon"), LARGE[:3])
def test_a_large_epsilon_runs_and_verifies(
    tmp_path: Path, mechanism: str, epsilon: str
) -> None:
    text = f'{SMALL}[privacy]\nmechanism = "{mechanism}"\nepsilon = {epsilon}\n'
    run_dir = tmp_path / "run"
    code, said = invoke("run", write(tmp_path, text), "--run-dir", run_dir)
    assert code == 0
    assert "e^" in said
    assert invoke("verify", run_dir)[0] == 0


def test_a_horizon_beyond_counting_is_refused_by_name() -> None:
    code, said = invoke("simulate", "--horizon", "1e30")
    assert code == 2
    assert "horizon is 1" in said
    assert "at most 1000000000000000" in said
