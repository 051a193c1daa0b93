"""A node's half of a secure sum, by the name of the back-end."""

from __future__ import annotations

from collections.abc import Callable

from wallflower.clients.secure_sum.keyring import ClientKeyring
from wallflower.clients.secure_sum.limits import ClientLimits
from wallflower.clients.secure_sum.machine import ClientMachine, Setting
from wallflower.clients.secure_sum.sealed import SealedClient
from wallflower.clients.secure_sum.secagg_plus import SecaggPlusClient
from wallflower.clients.secure_sum.shuffle import ShuffleClient
from wallflower.protocol.identity.enrolment import NodeIdentity, Trust
from wallflower.protocol.secure_sum.backends import (
    SEALED,
    SECAGG_PLUS,
    SHUFFLE,
    check_backend,
)
from wallflower.protocol.secure_sum.envelope import parse
from wallflower.protocol.secure_sum.session import ClientSession, PartyId
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.protocol.wire.sum_state_pb2 import ClientState

__all__ = ["ClientKeyring", "ClientLimits", "client_session", "restore_session"]

REGISTRY: dict[str, Callable[[Setting], ClientMachine]] = {
    SEALED: SealedClient,
    SECAGG_PLUS: SecaggPlusClient,
    SHUFFLE: ShuffleClient,
}


def client_session(
    spec: CohortSpec,
    party: PartyId,
    identity: NodeIdentity | None,
    trust: Trust | None,
    limits: ClientLimits,
    keyring: ClientKeyring,
) -> ClientSession:
    """Open a node's session for one cohort.

    Parameters
    ----------
    spec : CohortSpec
        The cohort's public description.
    party : PartyId
        This node's id, as on the roster and in its certificate.
    identity : NodeIdentity, optional
        Signs this node's keys where it has a certificate.
    trust : Trust, optional
        The enrolment key to believe; None makes the server semi-honest by assumption.
    limits : ClientLimits
        What the node insists on.
    keyring : ClientKeyring
        The node's keys for the run; the same object for all of its sessions.
    """
    return _machine(
        Setting(spec, party, identity, trust=trust, limits=limits, keyring=keyring)
    )


def restore_session(
    snapshot: bytes,
    identity: NodeIdentity | None,
    trust: Trust | None,
    limits: ClientLimits,
    keyring: ClientKeyring,
) -> ClientSession:
    """Go on with a session from its `snapshot`, maybe in another process."""
    state = parse(ClientState, snapshot)
    machine = _machine(
        Setting(
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


def _machine(setting: Setting) -> ClientMachine:
    check_backend("backend", setting.spec.backend)
    return REGISTRY[setting.spec.backend](setting)
