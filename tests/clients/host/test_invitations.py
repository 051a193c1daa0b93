"""An invitation outlives the process that got it, and nobody else may read it."""

from __future__ import annotations

import stat
import time
from pathlib import Path

import pytest

from wallflower.clients.host.invitations import drop, kept, save
from wallflower.clients.transport.grpc_client import Invitation
from wallflower.protocol.errors import ConfigError
from wallflower.protocol.identity.tokens import RunToken, RunTokens


def invitation(
    run_id: str = "run/1", *, expiry: int | None = None, pinned: bytes | None = None
) -> Invitation:
    until = int(time.time()) + 3600 if expiry is None else expiry
    token = RunTokens(run_id, b"s" * 32).issue_to("flower/7", expiry=until)
    return Invitation("server:9000", b"PEM", run_id, token, pinned)


def test_an_invitation_comes_back_as_it_was_kept(tmp_path: Path) -> None:
    plain, pinned = invitation(), invitation("run-2", pinned=b"f" * 32)
    save(tmp_path, plain)
    save(tmp_path, pinned)
    assert sorted(kept(tmp_path), key=lambda one: one.run_id) == [pinned, plain]


def test_a_newer_invitation_to_the_same_run_takes_the_olders_place(
    tmp_path: Path,
) -> None:
    save(tmp_path, invitation(expiry=int(time.time()) + 60))
    newer = invitation()
    save(tmp_path, newer)
    assert list(kept(tmp_path)) == [newer]


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    path = save(tmp_path, invitation())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_it_is_gone_when_the_run_is_over_or_its_token_expired(tmp_path: Path) -> None:
    save(tmp_path, invitation("over"))
    path = save(tmp_path, invitation("late", expiry=1))
    drop(tmp_path, "over")
    assert not kept(tmp_path)
    assert not path.exists()


def test_a_damaged_one_is_refused_by_its_name(tmp_path: Path) -> None:
    path = save(tmp_path, invitation())
    path.write_text("{}")
    with pytest.raises(ConfigError, match="no invitation"):
        kept(tmp_path)


def test_its_token_is_in_no_repr() -> None:
    token: RunToken = invitation().token
    assert token.key.hex() not in repr(invitation())
