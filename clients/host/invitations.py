"""Invitations to runs' gRPC servers that a node keeps, for polls from whatever
process.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

from wallflower.clients.transport.grpc_client import Invitation
from wallflower.protocol.errors import ConfigError
from wallflower.protocol.files import keyfiles
from wallflower.protocol.files.private import private_directory
from wallflower.protocol.identity.canonical import digest
from wallflower.protocol.identity.tokens import RunToken

_FOLDER = "invitations"


def save(home: Path, invitation: Invitation) -> Path:
    """Keep an invitation; it holds the run token, so nobody else may read it."""
    path = _place(home, invitation.run_id)
    write(path, invitation)
    return path


def write(path: Path, invitation: Invitation) -> None:
    """Write an invitation to a file of its own, or over an older one."""
    pinned = invitation.server_fingerprint
    fields = {
        "address": invitation.address,
        "certificate": invitation.root_certificate.decode(),
        "run-id": invitation.run_id,
        "token": invitation.token.to_text(),
        "fingerprint": "" if pinned is None else pinned.hex(),
    }
    private_directory(path.parent)
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    keyfiles.write_private(draft, json.dumps(fields).encode())
    draft.replace(path)


def kept(home: Path) -> Sequence[Invitation]:
    """Return all invitations; those whose token has expired are dropped."""
    found = []
    for path in sorted((home / _FOLDER).glob("*.json")):
        invitation = read(path)
        if invitation.token.expiry < time.time():
            path.unlink(missing_ok=True)
        else:
            found.append(invitation)
    return found


def drop(home: Path, run_id: str) -> None:
    """Forget the invitation to a run that is over."""
    _place(home, run_id).unlink(missing_ok=True)


def _place(home: Path, run_id: str) -> Path:
    name = digest("wallflower/v1/invitation", run_id).hex()[:32]
    return home / _FOLDER / f"{name}.json"


def read(path: Path) -> Invitation:
    """Read an invitation; raises ConfigError for any other file."""
    if not path.exists():
        raise ConfigError(str(path), "no such file")
    try:
        fields = json.loads(keyfiles.read_private(path))
        pinned = bytes.fromhex(fields["fingerprint"])
        return Invitation(
            fields["address"],
            fields["certificate"].encode(),
            fields["run-id"],
            RunToken.from_text(fields["token"]),
            pinned or None,
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ConfigError(
            str(path), "is no invitation; delete it, the run sends another one"
        ) from None
