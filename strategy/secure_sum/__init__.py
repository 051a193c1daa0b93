"""The server's half of a secure sum, by the name of the back-end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from wallflower.protocol.identity.enrolment import Trust
from wallflower.protocol.secure_sum.backends import (
    SEALED,
    SECAGG_PLUS,
    SHUFFLE,
    backend_modulus,
    check_backend,
)
from wallflower.protocol.secure_sum.context import parse
from wallflower.protocol.secure_sum.sealed.committee import is_dealing
from wallflower.protocol.secure_sum.session import PartyId, ServerSession
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.protocol.wire.sum_state_pb2 import ServerState
from wallflower.strategy.secure_sum.dealing import DealingServer
from wallflower.strategy.secure_sum.keyring import ServerKeyring
from wallflower.strategy.secure_sum.machine import ServerMachine, SessionParams
from wallflower.strategy.secure_sum.sealed import SealedServer
from wallflower.strategy.secure_sum.secagg_plus import SecaggPlusServer
from wallflower.strategy.secure_sum.shuffle import ShuffleServer

__all__ = [
    "ServerKeyring",
    "backend_modulus",
    "restore_session",
    "server_session",
]

REGISTRY: dict[str, Callable[[SessionParams], ServerMachine]] = {
    SEALED: SealedServer,
    SECAGG_PLUS: SecaggPlusServer,
    SHUFFLE: ShuffleServer,
}


def server_session(
    spec: CohortSpec,
    parties: Mapping[PartyId, int],
    *,
    trust: Trust | None = None,
    keyring: ServerKeyring | None = None,
    contributions: Callable[[], Iterable[tuple[PartyId, bytes]]] | None = None,
) -> ServerSession:
    """Open the server's session for one cohort.

    Parameters
    ----------
    spec : CohortSpec
        The cohort's public description; `modulus` as of `backend_modulus`.
    parties : Mapping[PartyId, int]
        The cohort's nodes and how many users of each are invited.
    trust : Trust, optional
        The enrolment key: parties whose keys it does not vouch for are left out at
        once, rather than making every other node refuse.
    keyring : ServerKeyring, optional
        What the server knows for the run: the key that sums are sealed under, the
        shuffler's. The same object for all cohorts of a run.
    contributions : Callable, optional
        Reads what people who arrived answered, by visitor; each was checked before.
    """
    known = keyring if keyring is not None else ServerKeyring(spec.run_id)
    return _machine(SessionParams(spec, parties, trust, known, contributions))


def restore_session(
    snapshot: bytes,
    *,
    trust: Trust | None = None,
    keyring: ServerKeyring | None = None,
) -> ServerSession:
    """Go on with a session from its `snapshot`.

    `start` gives the messages of its stage for the parties not heard; answers received
    after the snapshot may be handed to `receive` before that.
    """
    state = parse(ServerState, snapshot)
    parties = dict(zip(state.roster.parties, state.roster.users, strict=True))
    known = keyring if keyring is not None else ServerKeyring(state.spec.run_id)
    machine = _machine(SessionParams(state.spec, parties, trust, known))
    machine.resume(state)
    return machine


def _machine(opening: SessionParams) -> ServerMachine:
    if opening.spec.backend == SEALED and is_dealing(opening.spec):
        return DealingServer(opening)
    check_backend("backend", opening.spec.backend)
    return REGISTRY[opening.spec.backend](opening)
