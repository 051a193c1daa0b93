"""The key that signs invitations: a shop's or a panel's, and not the operator's.

::

    inviter.key    stays with whoever invites; the server never sees it
    inviter.pub    to the operator (`visitors.inviter`) and to every trustee
    revoked.txt    serials of invitations that are no longer good; beside inviter.pub

Who holds ``inviter.key`` decides who may come: were it on the server, a lying server
could invent people.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path

from wallflower.protocol.files.keyfiles import (
    REVOKED,
    private_key_pem,
    public_key_pem,
    read_seed,
    write_private,
)
from wallflower.protocol.files.private import private_directory
from wallflower.protocol.identity.enrolment import EnrolmentKey
from wallflower.protocol.visitors import Invitation

INVITER_KEY, INVITER_PUBLIC = "inviter.key", "inviter.pub"


class Inviter:
    """Signs invitations with the key of a folder; the first use makes the key."""

    def __init__(self, folder: Path) -> None:
        path = folder / INVITER_KEY
        self.is_new = not path.exists()
        if self.is_new:
            key = EnrolmentKey.generate()
            private_directory(folder)
            write_private(path, private_key_pem(key.private_bytes()))
            (folder / INVITER_PUBLIC).write_bytes(public_key_pem(key.public_key))
            (folder / REVOKED).write_text("# serials of revoked invitations\n")
        self._key = EnrolmentKey.from_private_bytes(read_seed(path))

    def invite(
        self, count: int, *, days: int, now: datetime.datetime
    ) -> Iterator[Invitation]:
        """Make so many invitations; each lets one person come once."""
        until = int((now + datetime.timedelta(days=days)).timestamp())
        for _ in range(count):
            yield Invitation.issue(self._key, not_after=until)
