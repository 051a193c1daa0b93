"""``wallflower trustee``: one home serves one run, also when another one is offered."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from wallflower.cli import command_line
from wallflower.clients.host import invitations
from wallflower.clients.transport.grpc_client import Invitation
from wallflower.protocol.errors import InputError
from wallflower.protocol.identity.tokens import RunTokens


def invitation(run_id: str) -> Invitation:
    token = RunTokens(run_id, b"s" * 32).issue("ann", expiry=int(time.time()) + 3600)
    return Invitation("server:9000", b"PEM", run_id, token)


def test_a_second_runs_invitation_is_refused_and_not_kept(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text('[node]\nname = "ann"\nusers = 0\n')
    invitations.save(tmp_path, invitation("first"))
    other = tmp_path / "other.json"
    invitations.write(other, invitation("second"))
    words = ["trustee", str(tmp_path), "--invitation", str(other)]
    with pytest.raises(InputError, match="for first, second; allowed: one"):
        CliRunner().invoke(command_line(), words, catch_exceptions=False)
    assert [one.run_id for one in invitations.kept(tmp_path)] == ["first"]


def test_a_home_without_an_invitation_says_what_it_needs(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text('[node]\nname = "ann"\nusers = 0\n')
    with pytest.raises(InputError, match="missing; allowed: one: give the operator's"):
        CliRunner().invoke(
            command_line(), ["trustee", str(tmp_path)], catch_exceptions=False
        )
