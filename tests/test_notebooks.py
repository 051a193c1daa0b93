"""The notebooks of examples/notebooks, run from top to bottom by a real kernel."""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from deploy.harness.processes import free_port
from tests.support.flower_processes import end_processes_of, write_patient_flwr
from tests.support.run_fixtures import SMALL, write
from wallflower.results.page import load_run
from wallflower.strategy.config import load_config

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


def read(name: str) -> nbformat.NotebookNode:
    return nbformat.read(ROOT / "examples" / "notebooks" / name, as_version=4)


def execute(
    notebook: nbformat.NotebookNode, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """Run all cells in a folder; return what they showed as text and HTML."""
    programs = folder / "programs"
    write_patient_flwr(programs, sys.executable)
    monkeypatch.setenv("PATH", f"{programs}:{sys.prefix}/bin", prepend=":")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("IPYTHONDIR", str(folder / ".ipython"))
    client = NotebookClient(
        notebook, timeout=550, resources={"metadata": {"path": str(folder)}}
    )
    client.execute()
    shown = []
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            shown += [output.get("text", ""), *data.values()]
    return "\n".join(map(str, shown))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_is_kept_without_what_it_showed(path: Path) -> None:
    for cell in nbformat.read(path, as_version=4).cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


CELL = """
import wallflower as wf
from flwr.clientapp import ClientApp

config = wf.load_config("experiment.toml")
given = {"config": config.canonical(), "run-dir": "record"}
nodes = wf.partitions(config.nodes.count)
with wf.InProcessGrid(wf.serve_nodes(ClientApp()), nodes, given) as grid:
    strategy = wf.PrivateBandit(config, "record")
    strategy.start(grid)
strategy.finished
"""


@pytest.mark.slow  # a kernel and a whole run
def test_the_flower_strategy_runs_in_a_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, SMALL + "[test]\nnoise-seed = 7\n")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    assert "'winner'" in execute(notebook, tmp_path, monkeypatch)


@pytest.mark.slow  # a kernel, simulations and a whole run
def test_planning_and_analysing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = execute(read("planning.ipynb"), tmp_path, monkeypatch)
    assert "Ready" in shown
    assert "The record holds." in shown
    assert load_run(tmp_path / "record").result.finished is not None
    assert load_config(tmp_path / "signup.toml").experiment.name == "signup"


@pytest.mark.usefixtures("one_ray_at_a_time")
@pytest.mark.slow  # a kernel, SuperLink and Ray
def test_a_private_experiment_chooses_among_three_models_in_a_flower_simulation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "flower"
    monkeypatch.setenv("FLWR_HOME", str(home))
    # Otherwise it would use a SuperLink that this machine already runs.
    for use in ("SUPERLINK_HTTP", "CONTROL"):
        monkeypatch.setenv(f"FLWR_LOCAL_{use}_API_PORT", str(free_port()))
    try:
        shown = execute(read("models.ipynb"), tmp_path, monkeypatch)
    finally:
        end_processes_of(home)
    assert "Final results (winner)" in shown
    assert "The record holds." in shown
    # Of 2,000 simulated runs with these models' rates none drops the best one.
    assert load_run(tmp_path / "record").result.winner == "quadratic"
