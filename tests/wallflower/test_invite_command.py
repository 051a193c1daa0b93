"""Invitations: made by whoever invites, each good for one person."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from wallflower.cli import command_line
from wallflower.keys.store import INVITER_KEY, INVITER_PUBLIC, Inviter
from wallflower.protocol.errors import AuthenticationError, ConfigError
from wallflower.protocol.files.keyfiles import read_public
from wallflower.protocol.identity.enrolment import Trust
from wallflower.protocol.visitors import Invitation


def invite(*arguments: str) -> str:
    done = CliRunner().invoke(
        command_line(), ["invite", *arguments], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    return done.stdout


def test_invitations_are_lines_that_the_operators_public_key_vouches_for(
    tmp_path: Path,
) -> None:
    texts = invite("3", "--keys", str(tmp_path)).splitlines()
    texts += invite("2", "--keys", str(tmp_path)).splitlines()
    trust = Trust(read_public(tmp_path / INVITER_PUBLIC), lambda: 0.0)
    invited = [Invitation.read(text).identity for text in texts]
    for identity in invited:
        assert identity.certificate is not None
        shown = identity.certificate.to_bytes()
        assert trust.verify(identity.node_id, shown).capacity == 1
    assert len({identity.public_key for identity in invited}) == 5


def test_an_invitation_ends_on_its_day(tmp_path: Path) -> None:
    now = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
    (invitation,) = Inviter(tmp_path).invite(1, days=2, now=now)
    certificate = invitation.identity.certificate
    assert certificate is not None
    later = now.timestamp() + 3 * 86_400
    trust = Trust(read_public(tmp_path / INVITER_PUBLIC), lambda: later)
    with pytest.raises(AuthenticationError, match="expired"):
        trust.verify(certificate.node_id, certificate.to_bytes())


def test_the_inviters_key_is_private_and_made_once(tmp_path: Path) -> None:
    invite("1", "--keys", str(tmp_path / "shop"))
    key = tmp_path / "shop" / INVITER_KEY
    before = key.read_bytes()
    assert key.stat().st_mode & 0o077 == 0
    invite("1", "--keys", str(tmp_path / "shop"))
    assert key.read_bytes() == before


def test_json_has_the_serial_by_which_an_invitation_is_revoked(tmp_path: Path) -> None:
    said = json.loads(invite("2", "--keys", str(tmp_path), "--format", "json"))
    assert said["command"] == "invite"
    for row in said["invitations"]:
        certificate = Invitation.read(row["invitation"]).identity.certificate
        assert certificate is not None
        assert certificate.serial == row["serial"]


def test_invitations_are_not_made_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="no folder can be made there"):
        invite("1", "--keys", str(tmp_path / "file"))
