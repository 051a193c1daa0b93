"""``wallflower simulate`` as a user meets it: exit codes, one-line errors, Ctrl-C."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from wallflower.cli import main

Simulate = Callable[..., "Done"]
COMMAND = [sys.executable, "-m", "wallflower", "simulate"]
SMALL = ["--arms", "3", "--horizon", "5000", "--instances", "2"]
TWO = ["--set", "rewards.means=[0.2, 0.8]"]
EQUAL = ["--set", "rewards.means=[0.5, 0.5]"]


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    error: str


@pytest.fixture
def simulate(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Simulate:
    """Run the command line in this process, from its entry point to its exit."""

    def command(*flags: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["wallflower", "simulate", *flags])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return Done(int(ended.value.code or 0), captured.out, captured.err)

    return command


def report(simulate: Simulate, *flags: str) -> dict[str, Any]:
    done = simulate(*flags, "--format", "json")
    assert done.code == 0, done.error
    loaded: dict[str, Any] = json.loads(done.out)
    return loaded


def test_json_is_one_envelope_with_regret_arms_and_guarantee(
    simulate: Simulate,
) -> None:
    found = report(simulate, *SMALL, "--seed", "3")
    assert (found["schema_version"], found["command"]) == (1, "simulate")
    assert found["regret"]["mean"] > 0
    assert found["regret"]["stderr"] > 0
    assert [arm["arm"] for arm in found["arms"]] == ["rank 1", "rank 2", "rank 3"]
    assert found["guarantee"]["kind"] == "pure"
    assert found["guarantee"]["epsilon"] == "1"
    assert found["users"] == 5000
    assert not found["interrupted"]


def test_people_get_a_table_with_one_row_per_arm(simulate: Simulate) -> None:
    done = simulate(*TWO)
    assert done.code == 0
    lines = done.out.splitlines()
    assert any(line.split()[:3] == ["●", "0", "0.2000"] for line in lines)
    assert any(line.startswith("regret ") for line in lines)
    assert "The best arm is ever dropped with probability at most 0.1." in done.out


def test_the_papers_radius_promises_what_can_be_proved_of_it(
    simulate: Simulate,
) -> None:
    # One side of K arms: a quarter for rewards and a half for noise, over all batches.
    assert math.pi**2 / 6 * (1 / 4 + 1 / 2) + 0.01 <= 1.25
    done = simulate(*TWO, "--set", "policy.radius=paper")
    said = " ".join(done.out.split())
    assert "The best arm is ever dropped with probability at most 0.125." in said


def test_a_toml_file_of_an_experiment_is_simulated_and_flags_override_it(
    simulate: Simulate, tmp_path: Path
) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text(
        '[experiment]\nname = "trial"\narms = ["a", "b"]\nhorizon = 4000\n'
        '[privacy]\nmechanism = "dist-rdp"\nepsilon = 0.5\n'
        '[policy]\nname = "elimination"\nfirst-batch = 50\n'
        '[rewards]\nmodel = "bernoulli"\nmeans = [0.2, 0.9]\n'
    )
    found = report(simulate, str(path), "--epsilon", "1/4")
    settings = found["settings"]
    assert settings["mechanism"] == "dist-rdp"
    assert settings["epsilon"] == "1/4"
    assert settings["first_batch"] == 50
    assert [arm["true_mean"] for arm in found["arms"]] == pytest.approx([0.2, 0.9])


def test_a_table_of_outcomes_is_replayed(simulate: Simulate, tmp_path: Path) -> None:
    path = tmp_path / "outcomes.csv"
    path.write_text("user,old,new\nu1,0.2,0.9\nu2,0.4,0.7\n")
    changes = (
        "rewards.source=table",
        f"rewards.table={path}",
        'experiment.arms=["old", "new"]',
        "nodes.count=2",
    )
    words = [word for change in changes for word in ("--set", change)]
    found = report(simulate, *words, "--horizon", "5000", "--instances", "2")
    assert [arm["arm"] for arm in found["arms"]] == ["old", "new"]
    assert [arm["true_mean"] for arm in found["arms"]] == pytest.approx([0.3, 0.8])


def test_drawn_means_take_the_model_that_is_set(simulate: Simulate) -> None:
    found = report(simulate, *SMALL, "--set", "rewards.model=beta")
    assert found["settings"]["rewards"] == "beta"
    assert [arm["arm"] for arm in found["arms"]] == ["rank 1", "rank 2", "rank 3"]


def test_the_users_engine_gives_the_same_kind_of_report(simulate: Simulate) -> None:
    fast = report(simulate, *TWO, "--horizon", "3000")
    users = report(simulate, *TWO, "--horizon", "3000", "--engine", "users")
    assert fast.keys() == users.keys()
    assert users["settings"]["engine"] == "users"
    assert users["arms"][1]["status"] == "active"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["--mechanism", "dist-pd"],
            'mechanism is "dist-pd" (did you mean "dist-dp"?)',
        ),
        (["--policy", "eliminate"], 'did you mean "elimination"?'),
        (
            ["--set", "rewards.means=[0.5, 1.5]"],
            "--set rewards: means is 1.5; allowed: within rewards.range, 0 to 1",
        ),
        (
            ["--set", 'rewards.means=[0.5, "half"]'],
            '--set rewards.means[1]: expected a number, got the text "half"',
        ),
        (["--arms", "1"], "arms is 1; allowed: a whole number of at least 2"),
        (["--set", "rewards.means=[0.5]"], "arms is 1 name; allowed: at least two"),
        ([*TWO, "--arms", "3"], "arms is 3; allowed: 2, as many as there are means"),
        (["--horizon", "19"], "horizon is 19; allowed: at least two users an arm (20)"),
        (["--set", "rewards.model=bernouli"], 'did you mean "bernoulli"?'),
        (["--set", "rewards.modl=bernoulli"], 'did you mean "model"?'),
        (["--epsilon", "0"], "epsilon is 0; allowed: greater than 0"),
        (["--engine", "quick"], "engine is"),
        (["--set", "policy.radius=tigt"], 'did you mean "tight"?'),
        (["--set", "policy.radius=pair"], 'radius is "pair"'),
        (["--format", "yaml"], "format is"),
        (
            ["--set", "experiment.failure-probability=1"],
            "--set experiment: failure-probability is 1",
        ),
        (["nowhere.toml"], "nowhere.toml: no such file"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_one_line_and_exit_code_2(
    simulate: Simulate, flags: list[str], message: str
) -> None:
    done = simulate(*flags)
    assert done.code == 2
    assert message in done.error
    assert done.error.count("\n") == 1
    assert done.out == ""


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        (("", "?"), 'arm "b": 2 of 3 cells hold no outcome (1 empty, 1 no number)'),
        (("0", "1.5"), "the outcome is outside rewards.range, 0 to 1."),
    ],
)
def test_a_cell_that_is_no_reward_is_named_with_its_column(
    cells: tuple[str, str], why: str, simulate: Simulate, tmp_path: Path
) -> None:
    (tmp_path / "users.csv").write_text(
        f"user,a,b\nu1,1,0\nu2,0,{cells[0]}\nu3,1,{cells[1]}\n"
    )
    path = tmp_path / "experiment.toml"
    path.write_text(
        '[experiment]\nname = "x"\narms = ["a", "b"]\n'
        '[rewards]\nsource = "table"\ntable = "users.csv"\n'
    )
    done = simulate(str(path))
    assert done.code == 2
    line = 3 if not cells[0] else 4
    place = f'{tmp_path / "users.csv"}:{line}, column "b"'
    assert done.error.startswith(f"wallflower: {place}: {why}")


def test_how_the_runs_ended_is_said_in_words(simulate: Simulate) -> None:
    said = simulate(*TWO, "--horizon", "2000", "--instances", "3").out
    assert "3 of 3 with one arm left" in said
    said = simulate(*EQUAL, "--horizon", "200").out
    assert "with everybody asked" in said


@pytest.mark.slow  # a long simulation
def test_ctrl_c_ends_cleanly_with_what_is_known_so_far() -> None:
    flags = ["--engine", "users", "--horizon", "1e11", *EQUAL]
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    process = subprocess.Popen(
        [*COMMAND, *flags, "--format", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        # Wait until it has worked for a while: its own processor time says so.
        clock = Path(f"/proc/{process.pid}/stat")
        while int(clock.read_text().rsplit(")", 1)[1].split()[11]) < 250:
            assert process.poll() is None
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 130
    assert error == "wallflower: interrupted\n"
    found = json.loads(out)
    assert found["interrupted"]
    assert found["finished"] == {"interrupted": 1}
    assert 0 < found["users"] < 1e11


def test_it_says_how_many_users_it_took_to_decide(simulate: Simulate) -> None:
    found = report(simulate, *TWO, "--instances", "20", "--horizon=2e4")
    until = found["users_until_decided"]
    assert until["undecided"] == 0
    assert 0 < until["low"] <= until["median"] <= until["high"] < 20_000
    assert until["high"] <= until["percentile_99"] < 20_000
    assert until["low"] <= until["mean"] <= until["high"]
    assert found["regret"]["percentile_99"] <= found["regret"]["largest"]


def test_runs_without_a_winner_are_counted_as_undecided(simulate: Simulate) -> None:
    sure = ("--set", "experiment.failure-probability=0.001")
    found = report(simulate, *EQUAL, *sure, "--instances", "5", "--horizon=500")
    assert found["users_until_decided"] == {
        "mean": None,
        "median": None,
        "low": None,
        "high": None,
        "percentile_99": None,
        "rounds": None,
        "undecided": 5,
    }


def test_a_simulation_from_flags_loads_nothing_that_it_does_not_use() -> None:
    # Each of these takes 10 ms or more of a command of less than a second; numpy.ma is
    # loaded by np.unique and np.quantile.
    code = (
        "import sys; sys.argv = ['wallflower', 'simulate', '--horizon', '2000']\n"
        "import wallflower.cli\n"
        "try:\n    wallflower.cli.main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'scipy.special', 'cryptography', 'google.protobuf', 'grpc', 'flwr',"
        " 'matplotlib', 'dp_accounting', 'numpy.ma', 'rich.console',"
        " 'rich.progress', 'tomllib', 'wallflower.strategy.config'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "regret" in done.stdout
