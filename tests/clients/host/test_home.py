from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict

from wallflower.clients.client_app import app
from wallflower.clients.host.home import NodeHome, node_lock
from wallflower.clients.host.invitations import kept
from wallflower.clients.node.ledger import Ledger
from wallflower.clients.rewards.local import CallableRewards
from wallflower.engines.in_process_grid import InProcessGrid, partitions
from wallflower.protocol.errors import (
    ConfigError,
    MalformedMessageError,
    RefusalError,
    UnavailableError,
)
from wallflower.protocol.files.keyfiles import public_key_pem
from wallflower.protocol.identity.enrolment import EnrolmentKey
from wallflower.protocol.identity.tokens import RunTokens
from wallflower.protocol.messages import flower as flower_record
from wallflower.protocol.rewards.outcome_window import OutcomeWindow
from wallflower.protocol.wire.node_pb2 import Describe, NodeAnswer, NodeRequest, Task

REWARDS = "[rewards]\nmeans = [0.1, 0.9]\n"


def home(folder: Path, text: str) -> NodeHome:
    folder.mkdir(exist_ok=True)
    (folder / "node.toml").write_text(text)
    return NodeHome(folder)


def call(
    message_type: str,
    node_config: dict[str, str],
    fields: dict[str, str | bytes] | None = None,
    run_config: dict[str, str] | None = None,
) -> ConfigRecord:
    """Hand one message to the ClientApp, as Flower does."""
    with InProcessGrid(app, {}):  # gives this process an identity at Flower
        record = ConfigRecord(dict(fields or {}))
        message = Message(RecordDict({flower_record.RECORD: record}), 7, message_type)
        said = dict(run_config or {})
        context = Context(1, 7, dict(node_config), RecordDict(), dict(said))
        reply = app(message=message, context=context)
    return reply.content.config_records[flower_record.RECORD]


def test_a_node_without_certificate_makes_a_key_once_and_keeps_it(
    tmp_path: Path,
) -> None:
    text = '[node]\nname = "clinic-7"\n' + REWARDS
    first, second = home(tmp_path, text), home(tmp_path, text)
    assert first.name == second.name == "clinic-7"
    assert first.identity.public_key == second.identity.public_key
    mode = (tmp_path / "identity.key").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600


def test_a_node_has_the_window_of_its_own_file(tmp_path: Path) -> None:
    text = '[node]\nname = "a"\n' + REWARDS + "window-s = 7\nif-unknown = 0.5\n"
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        node = home(tmp_path, text).node(ledger)
    assert node._parts.window == OutcomeWindow(7, 0.5)


def test_a_table_is_looked_for_beside_the_node_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "t.csv").write_text("user,a,b\nstranger,0,1\n")
    monkeypatch.chdir(elsewhere)
    text = (
        '[node]\nname = "n"\narms = ["a", "b"]\n'
        '[rewards]\nsource = "table"\ntable = "t.csv"\n'
    )
    made = home(tmp_path / "home", text)
    (made.path / "t.csv").write_text("user,a,b\nresident,1,0\n")
    with Ledger(made.path / "ledger.sqlite") as ledger:
        assert made.node(ledger).users == ("resident",)


def test_a_folder_of_functions_starts_at_the_node_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place, reward in (("elsewhere/code", 0.0), ("home/code", 1.0)):
        (tmp_path / place).mkdir(parents=True)
        code = f"def outcome(arm: str, user: str) -> float:\n    return {reward}\n"
        (tmp_path / place / "outcomes_of_home.py").write_text(code)
    monkeypatch.chdir(tmp_path / "elsewhere")
    text = (
        '[node]\nname = "n"\n[rewards]\nsource = "callable"\n'
        'function = "outcomes_of_home:outcome"\nfolder = "code"\n'
    )
    made = home(tmp_path / "home", text)
    with Ledger(made.path / "ledger.sqlite") as ledger:
        source = made.node(ledger)._parts.source
    assert isinstance(source, CallableRewards)
    assert source._function("a", "u") == 1.0


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (REWARDS, "no name"),
        ('[node]\nname = "a"\nuser = 3\n' + REWARDS, 'did you mean "users"'),
        ('[node]\nname = "a"\nusers = 0\n' + REWARDS, "at least 1"),
        ('[node]\nname = "a"\nusers = ["x", "x"]\n' + REWARDS, "different names"),
        ('[node]\nname = "a"\n', '"rewards" is missing'),
        (
            '[node]\nname = "a"\n[rewards]\nsource = "table"\ntable = "t.csv"\n',
            '"arms" is missing',
        ),
        ('[node]\nname = "a"\n[policy]\nlargest-epsilon = 0\n' + REWARDS, "epsilon"),
    ],
)
def test_a_bad_node_file_is_refused_in_one_line(
    text: str, complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=complaint) as refused:
        home(tmp_path, text)
    assert "\n" not in str(refused.value)


def test_a_home_without_a_file_says_which_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"node\.toml"):
        NodeHome(tmp_path)


ENROLLED = '[node]\nname = "clinic-7"\n'


@pytest.mark.parametrize(
    ("terms", "enrolled", "insists"),
    [
        ("", True, True),
        ("[policy]\nmalicious-server = false\n", True, False),
        ("[policy]\nmalicious-server = true\n", True, True),
        ("", False, False),
    ],
)
def test_a_node_with_an_enrolment_key_insists_on_withstanding_a_lying_server(
    terms: str,
    enrolled: bool,
    insists: bool,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if enrolled:
        key = EnrolmentKey.generate().public_key
        (tmp_path / "enrolment.pub").write_bytes(public_key_pem(key))
    made = home(tmp_path, ENROLLED + terms + REWARDS)
    assert bool(made.policy.malicious_server) is insists
    # A node that believes the server says so itself, wherever its owner looks.
    assert ("believes that the server" in caplog.text) is not insists


def test_hello_tells_the_name(tmp_path: Path) -> None:
    home(tmp_path, '[node]\nname = "clinic-7"\n' + REWARDS)
    reply = call(flower_record.HELLO, {"wallflower-home": str(tmp_path)})
    assert reply[flower_record.NAME] == "clinic-7"


def test_work_answers_for_the_users_of_the_home(tmp_path: Path) -> None:
    text = '[node]\nname = "a"\nusers = ["ann", "bob"]\n' + REWARDS
    home(tmp_path, text)
    task = Task(task_id="t", describe=Describe())
    body = NodeRequest(run_id="r", tasks=[task]).SerializeToString()
    reply = call(
        flower_record.WORK,
        {"wallflower-home": str(tmp_path)},
        {flower_record.BODY: body},
    )
    answer = reply[flower_record.BODY]
    assert isinstance(answer, bytes)
    [described] = NodeAnswer.FromString(answer).answers
    assert list(described.description.users) == ["ann", "bob"]


def test_a_home_whose_ledger_lost_its_counter_does_no_work(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home(tmp_path / "home", '[node]\nname = "a"\n' + REWARDS)
    places = {
        "wallflower-home": str(tmp_path / "home"),
        "wallflower-counter": str(tmp_path / "apart"),
    }
    task = Task(task_id="t", describe=Describe())
    body = NodeRequest(run_id="r", tasks=[task]).SerializeToString()
    assert call(flower_record.WORK, places, {flower_record.BODY: body})
    (tmp_path / "apart" / "ledger.counter").unlink()
    with pytest.raises(UnavailableError, match="its log says more") as told:
        call(flower_record.WORK, places, {flower_record.BODY: body})
    # Flower sends the text on: where the ledger lies stays on the node.
    assert str(tmp_path) not in str(told.value)
    assert "ledger-rolled-back" in caplog.text


def test_a_second_message_at_the_same_time_is_turned_away(tmp_path: Path) -> None:
    home(tmp_path, '[node]\nname = "a"\n' + REWARDS)
    with node_lock(tmp_path), pytest.raises(RefusalError, match="node-busy"):
        call(
            flower_record.WORK,
            {"wallflower-home": str(tmp_path)},
            {flower_record.BODY: b""},
        )


def test_a_node_with_a_home_is_never_a_simulated_one(tmp_path: Path) -> None:
    home(tmp_path, '[node]\nname = "a"\n' + REWARDS)
    config = {"wallflower-home": str(tmp_path), "partition-id": "3"}
    assert call(flower_record.HELLO, config)[flower_record.NAME] == "a"


def test_a_supernode_without_home_is_told_what_to_do() -> None:
    with pytest.raises(MalformedMessageError, match="--node-config"):
        call(flower_record.HELLO, {})


@pytest.mark.parametrize(
    ("message_type", "fields"),
    [
        (flower_record.HELLO, {}),
        (flower_record.WORK, {flower_record.BODY: b""}),
    ],
)
def test_a_supernode_with_a_partition_and_no_home_never_obeys_the_servers_file(
    message_type: str, fields: dict[str, str | bytes], tmp_path: Path
) -> None:
    """All that a server can say of a simulation, it says."""
    said = {"config": "[nodes]", "run-dir": str(tmp_path), "engine": "simulation"}
    config = {"partition-id": "0", "num-partitions": "1"}
    with pytest.raises(RefusalError, match="no-home"):
        call(message_type, config, fields, said)
    assert list(tmp_path.iterdir()) == []


def test_a_supernode_without_home_connects_to_no_server() -> None:
    fields: dict[str, str | bytes] = {
        flower_record.ADDRESS: "127.0.0.1:1",
        flower_record.CERTIFICATE: b"",
        flower_record.RUN_ID: "r",
        flower_record.TOKEN: RunTokens("r", b"s" * 32).issue("n", expiry=1).to_text(),
    }
    reply = call(flower_record.CONNECT, {"partition-id": "0"}, fields)
    assert reply[flower_record.REASON] == "RefusalError"


def test_a_grid_in_this_process_may_simulate_nodes_without_home() -> None:
    with InProcessGrid(app, partitions(1)) as grid:
        content = RecordDict({flower_record.RECORD: ConfigRecord()})
        [node] = grid.get_node_ids()
        message = Message(content, node, flower_record.HELLO)
        [reply] = grid.send_and_receive([message])
    record = reply.content.config_records[flower_record.RECORD]
    assert record[flower_record.NAME] == "node-0"


def test_a_message_without_body_is_malformed(tmp_path: Path) -> None:
    with pytest.raises(MalformedMessageError, match='no "body"'):
        call(flower_record.WORK, {"wallflower-home": str(tmp_path)})


def test_the_text_of_an_unexpected_error_stays_on_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home(tmp_path, '[node]\nname = "a"\n' + REWARDS)

    def broken(self: object, *_: object) -> None:
        raise KeyError("the secret is 42")

    monkeypatch.setattr("wallflower.clients.host.home.NodeHome.node", broken)
    with pytest.raises(RuntimeError, match="KeyError") as failed:
        call(
            flower_record.WORK,
            {"wallflower-home": str(tmp_path)},
            {flower_record.BODY: b""},
        )
    assert "42" not in str(failed.value)
    assert failed.value.__cause__ is None
    assert failed.value.__suppress_context__


def test_the_nodes_own_authority_comes_before_a_given_one(tmp_path: Path) -> None:
    made = home(tmp_path, '[node]\nname = "a"\n' + REWARDS)
    assert made.authority(b"given") == b"given"
    (tmp_path / "ca.crt").write_bytes(b"own")
    assert made.authority(b"given") == b"own"


def test_a_node_of_real_rewards_loads_nothing_that_only_simulations_need() -> None:
    # Flower starts a process for every message, and every import is paid each time.
    code = (
        "import sys, wallflower.clients.client_app, wallflower.clients.host.home\n"
        "heavy = {'scipy', 'dp_accounting', 'matplotlib', 'pyarrow', 'ray', 'jinja2'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_node_that_comes_by_cron_keeps_its_invitation_and_ends(
    tmp_path: Path,
) -> None:
    home(tmp_path, '[node]\nname = "phone"\nconnection = "cron"\n' + REWARDS)
    token = RunTokens("run-1", b"s" * 32).issue_to("flower/7", expiry=2**40)
    fields: dict[str, str | bytes] = {
        flower_record.ADDRESS: "server:9000",
        flower_record.CERTIFICATE: b"PEM",
        flower_record.RUN_ID: "run-1",
        flower_record.TOKEN: token.to_text(),
    }
    reply = call(flower_record.CONNECT, {"wallflower-home": str(tmp_path)}, fields)
    assert reply[flower_record.REASON] == flower_record.RUN_OVER  # not sent for again
    (invitation,) = kept(tmp_path)
    assert (invitation.address, invitation.run_id) == ("server:9000", "run-1")
    assert invitation.token == token


def test_an_unknown_connection_is_refused_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="stream, polling or cron"):
        home(tmp_path, '[node]\nname = "a"\nconnection = "never"\n' + REWARDS)
