"""An experiment to start from, and one file for plan, simulate and run."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from tests.support.run_fixtures import as_json, wallflower
from tests.wallflower.test_run_commands import invoke
from wallflower.engines.population import node_names, reward_sources, users_of
from wallflower.protocol.errors import ConfigError
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.strategy.config import load_config
from wallflower.strategy.store.journal import Journal

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("rewards", ["function", "table"])
def test_a_new_experiment_is_ready_runs_and_verifies_as_it_is(
    rewards: str, tmp_path: Path
) -> None:
    with contextlib.chdir(tmp_path):
        code, said = invoke("new", "signup", "--rewards", rewards)
        assert (code, "Next: wallflower check signup/experiment.toml" in said) == (
            0,
            True,
        )
        code, said = invoke("check", "signup/experiment.toml")
        assert (code, "Ready. " in said) == (0, True), said
        code, said = invoke("run", "signup/experiment.toml", "--run-dir", "run")
        assert code == 0
        # The best arm is dropped with probability at most 1/20 by its own promise; at
        # a gap of 0.12 in 1 of 2,000 simulated runs.
        assert '"with-photo" is the best' in said
        assert invoke("verify", "run")[0] == 0


def test_what_is_there_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "signup").mkdir()
    (tmp_path / "signup" / "experiment.toml").write_text("mine")
    with contextlib.chdir(tmp_path):
        code, said = invoke("new", "signup")
    assert (code, "nothing was written" in said) == (2, True)
    assert [p.name for p in (tmp_path / "signup").iterdir()] == ["experiment.toml"]
    assert (tmp_path / "signup" / "experiment.toml").read_text() == "mine"


def test_a_name_that_no_run_can_have_is_refused(tmp_path: Path) -> None:
    with contextlib.chdir(tmp_path):
        assert invoke("new", "sign up")[0] == 2
    assert list(tmp_path.iterdir()) == []


def test_the_next_command_can_be_copied_whatever_the_folder_is_called(
    tmp_path: Path,
) -> None:
    with contextlib.chdir(tmp_path):
        said = invoke("new", "my tests/signup")[1]
    assert "Next: wallflower check 'my tests/signup/experiment.toml'" in said


@pytest.fixture
def table(tmp_path: Path) -> Path:
    with contextlib.chdir(tmp_path):
        invoke("new", "shop", "--rewards", "table")
    return tmp_path / "shop" / "experiment.toml"


def test_a_node_column_says_who_lives_where(table: Path) -> None:
    config = load_config(table)
    source = reward_sources(config)
    rows = (table.parent / "users.csv").read_text().splitlines()[1:]
    sites = sorted({row.split(",")[1] for row in rows})
    assert config.nodes.count == len(sites) == 32
    for name, site in zip(node_names(config), sites, strict=True):
        at_home = {row.split(",")[0] for row in rows if row.split(",")[1] == site}
        assert set(users_of(source(name), 0)) == at_home


def test_without_a_node_column_users_are_dealt_out_evenly(table: Path) -> None:
    text = table.read_text()
    line = next(line for line in text.splitlines() if line.startswith("node-column"))
    table.write_text(text.replace(line, "") + "\n[nodes]\ncount = 7\n")
    config = load_config(table)
    assert config.nodes.population == 6000
    assert max(config.nodes.sizes) - min(config.nodes.sizes) <= 1
    source = reward_sources(config)
    names = Counter(u for n in node_names(config) for u in users_of(source(n), 0))
    assert set(names.values()) == {1}


def test_a_table_and_a_number_of_users_cannot_both_say_who_is_there(
    table: Path,
) -> None:
    table.write_text(table.read_text() + "\n[nodes]\nusers = 7\n")
    with pytest.raises(ConfigError, match="follows from users"):
        load_config(table)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("user,site,current,shorter,with-photo\n", "holds no users"),
        (
            "user,site,current,shorter,with-photo\nu1,here,1,0,1\n",
            "users on 1 node; an experiment needs at least 2",
        ),
        ("user;site;current\n", "fields are separated by semicolons"),
        ("", 'no column "site"; it has none'),
    ],
)
def test_a_table_that_cannot_serve_says_what_it_has(
    text: str, why: str, table: Path
) -> None:
    (table.parent / "users.csv").write_text(text)
    with pytest.raises(ConfigError, match=re.escape(why)):
        load_config(table)


def test_one_table_serves_simulate_and_run_with_empty_cells_too(table: Path) -> None:
    users = table.parent / "users.csv"
    lines = users.read_text().splitlines()
    lines[1] = lines[1].rpartition(",")[0] + ","  # nobody knows how it went
    users.write_text("\n".join(lines) + "\n")
    code, said = invoke("simulate", table, "--format", "json")
    assert code == 0
    arms = {row["arm"]: row["true_mean"] for row in json.loads(said)["arms"]}
    assert arms["with-photo"] == pytest.approx(0.36, abs=0.02)  # as the file was made
    assert invoke("check", table)[0] == 0


@pytest.mark.slow  # several commands and a run
@pytest.mark.parametrize("name", ["headline", "phones", "dose"])
def test_plan_simulate_and_run_say_the_same_floors(name: str, tmp_path: Path) -> None:
    """Of the first batch, which all arms take part in; dose has uneven nodes."""
    file = ROOT / "examples" / f"{name}.toml"
    planned = json.loads(invoke("plan", file, "--format", "json")[1])["batches"][0]
    simulated = json.loads(invoke("simulate", file, "--format", "json")[1])
    size, floor = planned["cohort_size"], planned["honest_floor"]
    invoke("run", file, "--engine", "fast", "--run-dir", tmp_path / "run")
    with Journal.read(tmp_path / "run") as journal:
        specs = [c for c in journal.cohorts() if c.batch == 1]
    asked = [CohortSpec.FromString(cohort.spec) for cohort in specs]
    if name != "dose":
        assert {(one.cohort_size, one.honest_floor) for one in asked} == {(size, floor)}
    assert all(one.honest_floor >= floor for one in asked)
    assert simulated["settings"]["first_batch"] == size
    assert f"{floor} of {size}" in simulated["guarantee"]["sentence"]


def test_a_function_beside_its_file_is_found_from_anywhere(tmp_path: Path) -> None:
    """Here by a resumed run, whose journal alone says where it was."""
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    for folder in (home, elsewhere):
        folder.mkdir()
    with contextlib.chdir(home):
        invoke("new", "signup")
    # What lies where one happens to work is not taken for it, nor imported.
    (elsewhere / "rewards.py").write_text("raise SystemExit(9)\n")
    (home / "signup" / "more.py").write_text("PART = 1.0\n")
    module = home / "signup" / "rewards.py"
    module.write_text(f"from more import PART\n{module.read_text()}")
    run_dir = elsewhere / "run"
    config = load_config(home / "signup" / "experiment.toml")
    Journal.create(run_dir, "run", config, "local").close()  # begun, then cut short
    told = as_json(wallflower("resume", run_dir, "--format", "json", cwd=elsewhere))
    assert told["winner"] == "with-photo"


def test_two_experiments_may_each_have_a_module_of_one_name(tmp_path: Path) -> None:
    for name in ("one", "two"):
        with contextlib.chdir(tmp_path):
            invoke("new", name)
        module = tmp_path / name / "rewards.py"
        module.write_text(
            f"{module.read_text()}\nasync def {name}(a, u):\n    return 1\n"
        )
        text = (tmp_path / name / "experiment.toml").read_text()
        (tmp_path / name / "experiment.toml").write_text(
            text.replace("rewards:outcome", f"rewards:{name}")
        )
    for name in ("one", "two"):
        assert invoke("check", tmp_path / name / "experiment.toml")[0] == 0


def test_a_new_flower_app_is_complete_and_its_experiment_is_sound(
    tmp_path: Path,
) -> None:
    with contextlib.chdir(tmp_path):
        code, said = invoke("new", "sign-up", "--flower")
        assert (code, "Next: sign-up/README.md" in said) == (0, True)
    app = tomllib.loads((tmp_path / "sign-up" / "pyproject.toml").read_text())
    names = app["tool"]["flwr"]["app"]["components"].values()
    for name in names:
        module, _, attribute = name.partition(":")
        text = (tmp_path / "sign-up" / f"{module.replace('.', '/')}.py").read_text()
        assert f"\n{attribute} = " in text
    config = load_config(tmp_path / "sign-up" / "experiment.toml")
    assert config.experiment.name == "sign-up"
    assert "@" not in (tmp_path / "sign-up" / "README.md").read_text()


@pytest.mark.parametrize("name", ["7up", "sign.up", "sign_up", "class"])
def test_a_name_that_no_flower_app_can_have_is_refused(
    name: str, tmp_path: Path
) -> None:
    with contextlib.chdir(tmp_path):
        code, said = invoke("new", name, "--flower")
    assert (code, "letters, digits and hyphens" in said) == (2, True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("more", [(), ("--flower",)])
def test_where_the_disk_is_full_no_half_of_an_experiment_is_left(
    more: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Path.write_text

    def write_the_first(path: Path, text: str, **settings: str) -> int:
        if list(path.parent.iterdir()):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(path, text, **settings)

    monkeypatch.setattr(Path, "write_text", write_the_first)
    with contextlib.chdir(tmp_path):
        code, said = invoke("new", "signup", *more)
    assert (code, "No space left on device" in said) == (4, True), said
    assert list(tmp_path.iterdir()) == []
