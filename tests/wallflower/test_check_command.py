"""What can be known to be wrong is known before anybody is invited."""

from __future__ import annotations

import contextlib
import datetime
import importlib.metadata
import json
import logging
import resource
import shutil
import socket
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement

from deploy.harness.processes import free_port
from tests.integration import test_flower_homes
from tests.integration.failing_rewards import TELLING_REWARD, TELLING_WORDS
from tests.support.run_fixtures import SMALL, wallflower, write
from tests.wallflower.test_run_commands import invoke
from wallflower.clients.host.outcome_counts import add_counts
from wallflower.engines.flower import _show_failure
from wallflower.engines.process import write_connection
from wallflower.keys.store import KeyStore
from wallflower.protocol.identity.certificates import (
    make_authority,
    make_server_certificate,
)

keys = test_flower_homes.keys  # the fixture
WITHOUT_REWARDS = SMALL.partition("[rewards]")[0]


def nobody_listens() -> str:
    return f"127.0.0.1:{free_port()}"


def with_service(folder: Path, address: str, more: str = "") -> Path:
    rewards = f'[rewards]\nsource = "grpc"\naddress = "{address}"\n'
    return write(folder, WITHOUT_REWARDS + rewards + more)


def with_function(folder: Path, name: str, more: str = "") -> Path:
    function = f"tests.integration.failing_rewards:{name}"
    rewards = f'[rewards]\nsource = "callable"\nfunction = "{function}"\n'
    return write(folder, WITHOUT_REWARDS + rewards + more)


def test_a_fit_experiment_is_ready_and_nothing_is_written(tmp_path: Path) -> None:
    with contextlib.chdir(tmp_path):
        code, said = invoke("check", write(tmp_path))
    assert code == 0
    assert "Ready. Nobody was asked" in said
    assert all(line.startswith("ok ") for line in said.splitlines()[:-1])
    assert [path.name for path in tmp_path.iterdir()] == ["experiment.toml"]


def test_programs_get_the_same_lines(tmp_path: Path) -> None:
    code, said = invoke(
        "check", with_service(tmp_path, nobody_listens()), "--format", "json"
    )
    told = json.loads(said)
    assert (code, told["command"], told["ready"]) == (4, "check", False)
    levels = {line["name"]: line["level"] for line in told["checks"]}
    assert levels["rewards"] == "fail"
    assert levels["users"] == levels["versions"] == "ok"


@pytest.mark.parametrize("engine", ["local", "simulation", "fast"])
def test_a_run_does_not_begin_while_its_reward_server_is_down(
    engine: str, tmp_path: Path
) -> None:
    address = nobody_listens()
    with contextlib.chdir(tmp_path):
        code, said = invoke("run", with_service(tmp_path, address), "--engine", engine)
    assert code == 4
    assert f"the reward service at {address} cannot serve" in said
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("function", "why"),
    [("some_fail", "reward-not-a-number"), ("all_fail", "reward-source-failed")],
)
def test_a_function_is_tried_on_test_users_and_its_values_are_not_shown(
    function: str, why: str, tmp_path: Path
) -> None:
    # some_fail gives its seventh user no reward of [0, 1]; "u7" is nobody here.
    path = with_function(tmp_path, function, 'test-users = ["u77", "u7"]\n')
    path.write_text(path.read_text().replace("users = 60", "users = 7", 1))
    path.write_text(path.read_text().replace("first-batch = 40", "first-batch = 15"))
    code, said = invoke("check", path)
    assert code == 4
    assert why in said
    assert str(TELLING_REWARD) not in said
    assert TELLING_WORDS not in said


def test_nobody_real_serves_as_a_test_user(tmp_path: Path) -> None:
    path = with_function(tmp_path, "some_fail", 'test-users = ["u7"]\n')
    code, said = invoke("check", path)
    assert (code, '"u7" is a real user' in said) == (2, True)


def test_a_function_without_test_users_is_not_called(tmp_path: Path) -> None:
    code, said = invoke("check", with_function(tmp_path, "all_fail"))
    assert code == 0
    assert "no value was looked at" in said
    assert "people are named u0 to u59 on every node" in " ".join(said.split())


def test_a_function_that_takes_other_arguments_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("def outcome(user):\n    return 1.0\n")
    rewards = '[rewards]\nsource = "callable"\nfunction = "other:outcome"\n'
    code, said = invoke("check", write(tmp_path, WITHOUT_REWARDS + rewards))
    assert code == 2
    assert "is called with (arm, user)" in " ".join(said.split())


FAILING = """
KNOWN = {"anna": 0.7654321}


def outcome(arm, user):
    return KNOWN[user]
"""


@pytest.mark.parametrize("engine", ["local", "fast"])
def test_an_engine_that_hosts_nodes_shows_where_a_function_fails(
    engine: str, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(FAILING)
    rewards = '[rewards]\nsource = "callable"\nfunction = "shop:outcome"\n'
    text = WITHOUT_REWARDS + rewards
    path = write(tmp_path, text.replace('name = "small"', 'name = "s"\nhorizon = 120'))
    done = wallflower("run", path, "--engine", engine, "--run-dir", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = "reward function outcome: KeyError in shop.py:6; counted as"
    assert done.stderr.count(said) == 1
    kept = [p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()]
    assert b"KeyError" not in b"".join(kept)


def test_failures_of_simulated_nodes_are_shown_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shown: set[str] = set()
    for line in (
        "(Actor pid=1) reward function outcome: KeyError in shop.py:6; counted",
        "(Actor pid=2) reward function outcome: KeyError in shop.py:6; counted",
        "(Actor pid=2) something else",
    ):
        _show_failure(line, shown)
    (record,) = caplog.records
    assert record.getMessage() == (
        "reward function outcome: KeyError in shop.py:6; counted"
    )


def test_a_hole_in_the_one_table_of_all_users_is_found_by_its_line(
    tmp_path: Path,
) -> None:
    cells = ["0,1,0"] * 720
    cells[400] = "0,1,2.571828"
    rows = "".join(f"u{user},{cell}\n" for user, cell in enumerate(cells))
    (tmp_path / "all.csv").write_text(f"user,a,b,c\n{rows}")
    text = WITHOUT_REWARDS.replace("users = 60\n", "")
    rewards = '[rewards]\nsource = "table"\ntable = "all.csv"\n'
    code, said = invoke("check", write(tmp_path, text + rewards))
    assert code == 2
    assert 'Arm "c" has 1 such cell of 720 (0 below, 1 above)' in " ".join(said.split())
    assert f'{tmp_path / "all.csv"}:402, column "c"' in said
    assert "2.571828" not in said


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ("def outcome(arm, user):\n    return {}[arm]", "KeyError in rewards.py:2"),
        (
            "async def outcome(arm, user):\n    1 / 0",
            "ZeroDivisionError in rewards.py:2",
        ),
        ("def outcome(arm):\n    return 1", "is called with (arm, user): too many"),
        ("def outcome(arm, user):\n  return (", "SyntaxError in rewards.py:2"),
        ("import json\njson.loads('')", "JSONDecodeError in rewards.py:2"),
        ("\nimport not_installed", "rewards.py fails on import: ModuleNotFoundError"),
    ],
)
def test_a_function_that_fails_is_named_by_kind_and_line(
    lines: str, why: str, tmp_path: Path
) -> None:
    (tmp_path / "rewards.py").write_text(f"{lines}\n")
    rewards = '[rewards]\nsource = "callable"\nfunction = "rewards:outcome"\n'
    path = write(tmp_path, f'{WITHOUT_REWARDS}{rewards}test-users = ["nobody"]\n')
    code, said = invoke("check", path)
    assert code in (2, 4)
    assert why in said, said


class Unfit(NamedTuple):
    """A file with one thing wrong."""

    old: str
    new: str
    code: int
    said: str


UNFIT = {
    "users": Unfit("users = 60", "users = 3", 2, "at least 120 users"),
    "one node holds almost everybody": Unfit(
        "users = 60",
        f"users = [600{', 1' * 11}]",
        2,
        "cannot fill the first round",
    ),
    "function": Unfit(
        "means = [0.1, 0.9, 0.2]",
        'source = "callable"\nfunction = "no_such_module:f"',
        2,
        "cannot import",
    ),
    "policy file": Unfit(
        "count = 12", 'count = 12\npolicy = "none.toml"', 2, "no such file"
    ),
}


@pytest.mark.parametrize("what", UNFIT)
def test_what_is_wrong_is_named_and_a_run_refuses_it_too(
    what: str, tmp_path: Path
) -> None:
    unfit = UNFIT[what]
    path = write(tmp_path, SMALL.replace(unfit.old, unfit.new))
    with contextlib.chdir(tmp_path):
        code, said = invoke("check", path)
        assert (code, unfit.said in said) == (unfit.code, True), said
        assert "Not ready: 1 of" in said
        code, said = invoke("run", path)
    assert (code, unfit.said in said) == (unfit.code, True), said
    assert not (tmp_path / "runs").exists()


def test_users_of_a_table_that_is_not_there_are_not_counted(tmp_path: Path) -> None:
    text = WITHOUT_REWARDS.replace("users = 60\n", "")
    rewards = '[rewards]\nsource = "table"\ntable = "none.csv"\n'
    code, said = invoke("check", write(tmp_path, text + rewards))
    assert (code, "none.csv: no such file" in said) == (2, True), said
    assert "users on" not in said


def test_what_is_told_apart_is_told_with_its_probability(tmp_path: Path) -> None:
    said = invoke("check", write(tmp_path))[1]
    assert "are told apart with probability 95 %" in said
    assert "for sure" not in said


def test_terms_that_the_users_refuse_are_known_beforehand(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text("largest-epsilon = 0.1\n")
    text = SMALL.replace("count = 12", 'count = 12\npolicy = "policy.toml"')
    code, said = invoke("check", write(tmp_path, text))
    assert (code, "epsilon-too-large" in said) == (4, True), said


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        text = f'{SMALL}[transport]\nkind = "grpc"\nport = {port}\n'
        code, said = invoke("check", write(tmp_path, text))
    assert (code, f"cannot listen on 127.0.0.1:{port}" in said) == (4, True)


def test_too_few_file_descriptors_for_hosted_nodes_are_known_beforehand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (256, 256))

    def refuse(kind: int, limits: tuple[int, int]) -> None:
        raise OSError

    monkeypatch.setattr(resource, "setrlimit", refuse)
    text = SMALL.replace("count = 12\nusers = 60", "count = 450\nusers = 1")
    over_grpc = write(tmp_path, f'{text}[transport]\nkind = "grpc"\n')
    code, said = invoke("check", over_grpc)
    assert (code, "fail engine: 482 streams need" in said) == (4, True), said
    assert invoke("check", write(tmp_path, text))[0] == 0


@pytest.mark.parametrize(
    ("days", "code", "said"),
    [(90, 0, "ok   certificates"), (5, 0, "warn certificates"), (-1, 2, "is expired")],
)
def test_a_certificate_is_looked_at_before_it_expires(
    days: int, code: int, said: str, tmp_path: Path
) -> None:
    made = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days - 90)
    authority = make_authority("test", now=made, days=90)
    pair = make_server_certificate(authority, ["127.0.0.1"], now=made, days=90)
    (tmp_path / "server.crt").write_bytes(pair.certificate)
    (tmp_path / "server.key").write_bytes(pair.private_key)
    (tmp_path / "server.key").chmod(0o600)
    files = 'certificate = "server.crt"\nprivate-key = "server.key"\n'
    text = f'{SMALL}[transport]\nkind = "grpc"\n{files}'
    found = invoke("check", write(tmp_path, text))
    assert (found[0], said in found[1]) == (code, True), found


def test_a_full_disk_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = shutil.disk_usage(tmp_path)._replace(free=1_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
    code, said = invoke("check", write(tmp_path), "--run-dir", tmp_path / "a" / "b")
    assert (code, "fail disk: 1 MB free in" in said) == (4, True)


@pytest.mark.parametrize("command", ["check", "run"])
def test_a_run_directory_that_cannot_be_made_is_noticed(
    command: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    code, said = invoke(command, write(tmp_path), "--run-dir", tmp_path / "file" / "a")
    assert (code, "file is not a folder; give --run-dir elsewhere" in said) == (4, True)


def test_a_folder_that_is_not_ours_to_write_to_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Root may write everywhere, so the answer is made up.
    monkeypatch.setattr("os.access", lambda path, mode: Path(path) != tmp_path)
    code, said = invoke("check", write(tmp_path), "--run-dir", tmp_path / "a")
    assert (code, f"{tmp_path} cannot be written to; give" in said) == (4, True)


@pytest.mark.parametrize(
    ("engine", "allowed"),
    [("local", "none on engine local"), ("simulation", "processors")],
)
@pytest.mark.parametrize("command", ["check", "run"])
def test_an_option_that_an_engine_does_not_know_is_refused_first(
    command: str, engine: str, allowed: str, tmp_path: Path
) -> None:
    words = ("--engine", engine, "-o", "processor=4")
    with contextlib.chdir(tmp_path):
        code, said = invoke(command, write(tmp_path), *words)
    assert code == 2
    assert 'option is "processor"' in said
    assert f"allowed: {allowed}" in said
    assert "experiment.toml" not in said  # it says nothing of options
    assert not (tmp_path / "runs").exists()


def test_a_dependency_of_another_version_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.metadata.version
    monkeypatch.setattr(
        importlib.metadata,
        "version",
        lambda name: "0.9" if name == "flwr" else found(name),
    )
    wanted = importlib.metadata.requires("wallflower") or []
    every = [Requirement(line) for line in wanted]
    (flower,) = (one for one in every if one.name == "flwr" and one.marker is None)
    code, said = invoke("check", write(tmp_path))
    assert (code, f"flwr 0.9 instead of {flower.specifier}" in said) == (4, True)


def test_users_who_tell_nothing_apart_are_warned_of(tmp_path: Path) -> None:
    text = SMALL.replace("first-batch = 40", "first-batch = 10")
    text = text.replace("users = 60", "users = 5")
    code, said = invoke("check", write(tmp_path, text))
    assert (code, "warn plan:" in said) == (0, True), said


def test_a_deployment_is_not_begun_without_its_superlink(
    keys: KeyStore, tmp_path: Path
) -> None:
    address = nobody_listens()
    code, said = invoke(
        *("check", write(tmp_path), "--engine", "deployment"),
        *("-o", f"address={address}"),
    )
    assert code == 4
    assert f"the SuperLink at {address} cannot be reached" in said
    assert "warn keys: no secure-sum.enrolment" in said


def test_a_nodes_home_is_checked_on_its_own_machine(
    keys: KeyStore, tmp_path: Path
) -> None:
    test_flower_homes.homes(keys, tmp_path)
    file = tmp_path / "clinic-0" / "node.toml"
    code, said = invoke("check", file)
    assert (code, "clinic-0" in said) == (0, True), said
    assert "warn keys: certificate" in said  # the test's are good for a day
    assert "outcomes" not in said
    add_counts(file.parent, 90, {"reward-late": 9})
    assert "ok   outcomes: 9 of 90 outcomes not known" in invoke("check", file)[1]
    add_counts(file.parent, 10, {"reward-source-failed": 2})
    code, said = invoke("check", file)
    flat = " ".join(said.split())
    assert "warn outcomes: 11 of 100 outcomes not known so far" in flat
    assert "(9 reward-late, 2 reward-source-failed)" in flat
    assert code == 0
    address = nobody_listens()
    text = file.read_text().partition("[rewards]")[0]
    file.write_text(f'{text}[rewards]\nsource = "grpc"\naddress = "{address}"\n')
    code, said = invoke("check", file)
    assert (code, "fail rewards: the reward service" in said) == (4, True)
    file.write_text("[node]\nusers = 0\n")
    assert invoke("check", file)[0] == 2


def test_a_deployment_is_told_which_superlink_to_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Flower's own default is its simulation, where no node ever comes.
    home = tmp_path / "flower"
    monkeypatch.setenv("FLWR_HOME", str(home))
    words = ("check", write(tmp_path), "--engine", "deployment")
    without = invoke(*words)
    write_connection(home, ":local:", [])
    flowers_own = invoke(*words)
    for code, said in (without, flowers_own):
        assert code == 2
        assert "-o connection=NAME or -o address=HOST:PORT" in " ".join(said.split())


def test_a_database_that_nobody_serves_fails_the_check(tmp_path: Path) -> None:
    url = f"postgresql://nobody@{nobody_listens()}/none"
    code, said = invoke("check", write(tmp_path, f'{SMALL}[store]\nurl = "{url}"\n'))
    assert code == 4
    assert "fail store: " in said
    assert "start PostgreSQL" in said


def test_a_first_batch_of_one_user_names_the_key(tmp_path: Path) -> None:
    file = write(tmp_path, SMALL.replace("first-batch = 40", "first-batch = 1"))
    code, said = invoke("check", file)
    assert (code, "fail users: policy.first-batch" in said) == (2, True)


def test_a_trustee_is_checked_although_nobody_lives_there(tmp_path: Path) -> None:
    file = write(tmp_path, '[node]\nname = "t"\nusers = 0\n', "node.toml")
    code, said = invoke("check", file)
    assert (code, "ok   rewards: none: a trustee" in said) == (0, True)


def test_a_node_that_was_revoked_or_speaks_for_too_many_is_told(
    tmp_path: Path,
) -> None:
    store = KeyStore(tmp_path / "keys")
    store.create("Test", ["10.0.0.1"], days=30)
    now = datetime.datetime.now(datetime.UTC)
    folder = store.add_node("clinic", capacity=5, days=30, now=now)
    file = write(
        tmp_path,
        f'[node]\nusers = 6\nkeys = "{folder}"\narms = ["a", "b"]\n'
        "[rewards]\nmeans = [0.5, 0.5]\n",
        "node.toml",
    )
    code, said = invoke("check", file)
    assert (code, "warn keys: " in said, "6 users live here" in said) == (0, True, True)
    store.revoke("clinic")
    code, said = invoke("check", file)
    assert (code, "fail keys: " in said, "is revoked" in said) == (4, True, True)


def test_a_poll_without_an_invitation_is_not_silent(tmp_path: Path) -> None:
    write(tmp_path, '[node]\nname = "t"\nusers = 0\n', "node.toml")
    code, said = invoke("poll", tmp_path)
    assert (code, "no run has invited this node" in said) == (0, True)


def test_an_invitation_that_is_not_there_is_not_to_be_deleted(tmp_path: Path) -> None:
    write(tmp_path, '[node]\nname = "t"\nusers = 0\n', "node.toml")
    code, said = invoke("trustee", tmp_path, "--invitation", tmp_path / "nope")
    assert (code, "nope: no such file" in said, "delete" in said) == (2, True, False)


@pytest.mark.parametrize("listen", ["x", "127.0.0.1:99999", "127.0.0.1:"])
def test_a_shuffler_listens_on_no_other_port_than_it_was_told(
    listen: str, tmp_path: Path
) -> None:
    code, said = invoke("shuffler", "--home", tmp_path / "home", "--listen", listen)
    assert (code, f'listen is "{listen}"' in said) == (2, True)
    assert not (tmp_path / "home").exists()


def test_a_rehearsal_whose_outcomes_were_often_unknown_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = with_function(tmp_path, "often_unknown")
    assert invoke("run", file, "--run-dir", tmp_path / "run")[0] == 0
    # Another test of this process may have let nodes log each pull.
    warned = [one.message for one in caplog.records if one.levelno == logging.WARNING]
    (warning,) = (one for one in warned if "rewards.if-unknown" in one)
    assert "of this rehearsal were not known in time" in warning
