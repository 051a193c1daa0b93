"""Open the server's halves of secure sums for one run."""

from __future__ import annotations

from collections.abc import Mapping

from protocol.identity import Trust
from protocol.port import NodeId
from protocol.session import ServerSession
from protocol.wire.cohort_pb2 import CohortSpec
from strategy.orchestrator import OpenSession
from strategy.secure_sum import ServerKeyring, server_session


def session_opener(run_id: str, trust: Trust | None) -> OpenSession:
    """Give an opener whose sessions share one keyring for the run."""
    keyring = ServerKeyring(run_id)

    def opened(spec: CohortSpec, parties: Mapping[NodeId, int]) -> ServerSession:
        return server_session(spec, parties, trust=trust, keyring=keyring)

    return opened
