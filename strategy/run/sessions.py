"""Open the server's halves of secure sums for one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wallflower.protocol.identity.enrolment import Trust
from wallflower.protocol.messages.port import NodeId
from wallflower.protocol.secure_sum.session import ServerSession
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.strategy.secure_sum import (
    ServerKeyring,
    restore_session,
    server_session,
)
from wallflower.strategy.secure_sum.shared_key import SharedKey
from wallflower.strategy.transport.shuffler import ShufflerPlace


@dataclass(frozen=True, slots=True)
class SessionFactory:
    """Opens sessions that share one keyring for the run."""

    trust: Trust | None
    keyring: ServerKeyring

    def __call__(
        self, spec: CohortSpec, parties: Mapping[NodeId, int]
    ) -> ServerSession:
        """Open a session for a new cohort."""
        return server_session(spec, parties, trust=self.trust, keyring=self.keyring)

    @property
    def dealt(self) -> SharedKey | None:
        """The key that sealed sums of the run are made under, if there is one."""
        return self.keyring.dealt

    def restore(self, snapshot: bytes) -> ServerSession:
        """Go on with a session from its snapshot."""
        return restore_session(snapshot, trust=self.trust, keyring=self.keyring)


def make_session_factory(
    run_id: str, trust: Trust | None, place: ShufflerPlace | None = None
) -> SessionFactory:
    """Give an opener for one run; `place` where sums go through a shuffler."""
    keyring = ServerKeyring(run_id)
    if place is not None:
        keyring.shuffler = place.files.public_key
    return SessionFactory(trust, keyring)
