from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from wallflower.cli import command_line
from wallflower.keys import store
from wallflower.protocol.errors import ConfigError, InputError, UnavailableError


def run(*arguments: str) -> str:
    done = CliRunner().invoke(
        command_line(), ["keys", *arguments], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture
def keys(tmp_path: Path) -> str:
    folder = str(tmp_path / "keys")
    run("init", "--address", "10.0.0.1", "--keys", folder)
    return folder


def test_init_says_where_each_folder_goes(tmp_path: Path) -> None:
    said = run("init", "--address", "10.0.0.1", "--keys", str(tmp_path / "k"))
    assert "keep offline" in said
    assert "wallflower keys node" in said


def test_listing_names_nodes_capacities_and_revocations(keys: str) -> None:
    run("node", "clinic-a", "clinic-b", "--capacity", "300", "--keys", keys)
    run("revoke", "clinic-b", "--keys", keys)
    listed = json.loads(run("list", "--keys", keys, "--format", "json"))
    assert listed["schema_version"] == 1
    shown = [
        (node["name"], node["capacity"], node["revoked"]) for node in listed["nodes"]
    ]
    assert shown == [("clinic-a", 300, False), ("clinic-b", 300, True)]


def test_no_output_shows_a_private_key(keys: str) -> None:
    said = run("node", "clinic-a", "--keys", keys, "--format", "json")
    said += run("list", "--keys", keys)
    for path in Path(keys).rglob("*.key"):
        for line in path.read_text().splitlines()[1:-1]:
            assert line not in said


def test_revoking_a_stranger_says_which_file_is_missing(keys: str) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        run("revoke", "nobody", "--keys", keys)


def test_registering_a_stranger_names_the_known_nodes(keys: str) -> None:
    run("node", "clinic-a", "--keys", keys)
    with pytest.raises(InputError, match="one of clinic-a"):
        run("register", "nobody", "--keys", keys)


def test_an_unknown_format_is_refused(keys: str) -> None:
    with pytest.raises(InputError, match="human, json"):
        run("list", "--keys", keys, "--format", "yaml")


@pytest.mark.parametrize("command", ["list", "server"])
def test_a_folder_without_keys_is_named(command: str, tmp_path: Path) -> None:
    words = ("--address", "10.0.0.1") if command == "server" else ()
    with pytest.raises(ConfigError, match=r"nope.*: (holds no keys|no such file)"):
        run(command, *words, "--keys", str(tmp_path / "nope"))


@pytest.mark.parametrize("left", ["authority", "operator", "nodes"])
def test_keys_are_not_made_over_what_is_left_of_others(
    left: str, tmp_path: Path
) -> None:
    (tmp_path / left).mkdir()
    with pytest.raises(ConfigError, match="holds keys already"):
        run("init", "--address", "10.0.0.1", "--keys", str(tmp_path))


def test_keys_are_not_made_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="no folder can be made"):
        run("init", "--address", "10.0.0.1", "--keys", str(tmp_path / "file"))


@pytest.mark.parametrize(
    "address",
    [
        "",
        "two words",
        "köln.example",
        "centre.example:443",
        "https://centre.example",
        "a" * 64,
        "300.1.1.1",
    ],
)
def test_an_address_that_no_node_could_dial_is_refused(
    address: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="a host name or an IP address, no port"):
        run("init", "--address", address, "--keys", str(tmp_path / "keys"))
    assert not (tmp_path / "keys").exists()


@pytest.mark.parametrize("name", ["", "x" * 65])
def test_a_name_that_no_certificate_holds_is_refused(name: str, tmp_path: Path) -> None:
    words = ("init", "--address", "10.0.0.1", "--keys", str(tmp_path / "keys"))
    with pytest.raises(InputError, match="1 to 64 characters"):
        run(*words, "--name", name)
    assert not (tmp_path / "keys").exists()


@pytest.mark.parametrize("bad", ["a/b", "clinic-a"])
def test_either_all_nodes_are_made_or_none(bad: str, keys: str) -> None:
    with pytest.raises(InputError):
        run("node", "clinic-a", bad, "--keys", keys)
    assert list((Path(keys) / "nodes").iterdir()) == []


def test_a_certificate_that_is_none_is_named(keys: str) -> None:
    (Path(keys) / "operator" / "server.crt").write_text("")
    with pytest.raises(ConfigError, match=r"server\.crt: is no certificate"):
        run("list", "--keys", keys)
    (Path(keys) / "authority" / "ca.crt").write_text("")
    with pytest.raises(ConfigError, match=r"ca\.crt: is no certificate"):
        run("server", "--address", "10.0.0.1", "--keys", keys)


@pytest.mark.parametrize("words", [("keys", "init"), ("keys", "node"), ("invite",)])
def test_a_full_disk_leaves_no_half_of_keys(
    words: tuple[str, ...], keys: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(path: Path, content: bytes) -> None:
        path.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    made = {
        ("keys", "init"): (tmp_path / "new", ("--address", "10.0.0.1", "--keys")),
        ("keys", "node"): (Path(keys) / "nodes" / "clinic", ("clinic", "--keys")),
        ("invite",): (tmp_path / "new", ("1", "--keys")),
    }
    folder, more = made[words]
    where = keys if words == ("keys", "node") else str(folder)
    monkeypatch.setattr(store, "write_private", fill)
    with pytest.raises(UnavailableError, match=r"cannot be filled \(No space left"):
        CliRunner().invoke(
            command_line(), [*words, *more, where], catch_exceptions=False
        )
    assert not list(folder.rglob("*"))
