"""A node's sessions as tests open them: without the factory that a node has."""

from __future__ import annotations

from wallflower.clients.secure_sum.keyring import ClientKeyring
from wallflower.clients.secure_sum.limits import ClientLimits
from wallflower.clients.secure_sum.machine import SessionParams
from wallflower.clients.secure_sum.opener import open_session
from wallflower.protocol.identity.enrolment import NodeIdentity, Trust
from wallflower.protocol.secure_sum.context import parse
from wallflower.protocol.secure_sum.session import ClientSession
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.protocol.wire.sum_state_pb2 import ClientState


def client_session(
    spec: CohortSpec,
    party: str,
    identity: NodeIdentity | None,
    trust: Trust | None,
    limits: ClientLimits,
    keyring: ClientKeyring,
) -> ClientSession:
    return open_session(
        SessionParams(
            spec, party, identity, trust=trust, limits=limits, keyring=keyring
        )
    )


def restore_session(
    snapshot: bytes,
    identity: NodeIdentity | None,
    trust: Trust | None,
    limits: ClientLimits,
    keyring: ClientKeyring,
) -> ClientSession:
    """Go on with a session from its snapshot, maybe in another process."""
    state = parse(ClientState, snapshot)
    machine = open_session(
        SessionParams(
            state.spec,
            state.party,
            identity,
            trust=trust,
            limits=limits,
            keyring=keyring,
        )
    )
    machine.resume(state)
    return machine
