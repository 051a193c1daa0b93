"""A node's halves of secure sums: opened by the name of the back-end, or restored."""

from __future__ import annotations

from collections.abc import Callable

from wallflower.clients.consent import ClientPolicy
from wallflower.clients.secure_sum.keyring import ClientKeyring
from wallflower.clients.secure_sum.limits import ClientLimits
from wallflower.clients.secure_sum.machine import ClientMachine, SessionParams
from wallflower.clients.secure_sum.sealed import SealedClient
from wallflower.clients.secure_sum.secagg_plus import SecaggPlusClient
from wallflower.clients.secure_sum.shuffle import ShuffleClient
from wallflower.protocol.errors import TermsError
from wallflower.protocol.identity.enrolment import NodeIdentity, Trust
from wallflower.protocol.refusals import RefusalCode
from wallflower.protocol.secure_sum.backends import (
    SEALED,
    SECAGG_PLUS,
    SHUFFLE,
    check_backend,
)
from wallflower.protocol.secure_sum.context import parse
from wallflower.protocol.secure_sum.session import ClientSession
from wallflower.protocol.visitors import INVITED
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.protocol.wire.sum_state_pb2 import ClientState

# Runs whose keys a node keeps at a time; an older run's are made anew if it comes back.
_MOST_RUNS = 8
REGISTRY: dict[str, Callable[[SessionParams], ClientMachine]] = {
    SEALED: SealedClient,
    SECAGG_PLUS: SecaggPlusClient,
    SHUFFLE: ShuffleClient,
}


def open_session(setting: SessionParams) -> ClientMachine:
    """Open a node's half of one cohort's sum."""
    check_backend("backend", setting.spec.backend)
    return REGISTRY[setting.spec.backend](setting)


class SessionFactory:
    """Opens and restores a node's halves of secure sums, with one keyring per run.

    Parameters
    ----------
    node_id : str
        This node.
    policy : ClientPolicy
        What the node insists on.
    identity : NodeIdentity | None
        Signs the node's keys.
    trust : Trust | None
        The enrolment key to believe; None assumes a semi-honest server.
    new_keyring : Callable[[str], ClientKeyring]
        Makes the keyring of a run; another where several processes serve one node.
    inviter : Trust | None
        The invitation key to believe where people arrive by invitation.
    """

    def __init__(
        self,
        node_id: str,
        policy: ClientPolicy,
        identity: NodeIdentity | None = None,
        trust: Trust | None = None,
        new_keyring: Callable[[str], ClientKeyring] = ClientKeyring,
        inviter: Trust | None = None,
    ) -> None:
        self._node_id = node_id
        self._identity = identity
        self._trust = trust
        self._inviter = inviter
        self._limits = ClientLimits(
            minimum_parties=policy.smallest_nodes,
            minimum_trustees=policy.smallest_trustees,
            trustees=frozenset(policy.trustees),
            minimum_corrupt=policy.smallest_corrupt,
            require_malicious=bool(policy.malicious_server),
            shufflers=policy.shufflers,
        )
        self._keyrings: dict[str, ClientKeyring] = {}
        self._new_keyring = new_keyring

    def open(self, spec: CohortSpec) -> ClientMachine:
        """Begin a cohort."""
        return open_session(
            SessionParams(
                spec=spec,
                party=self._node_id,
                identity=self._identity,
                trust=self._trust,
                limits=self._limits,
                keyring=self._keyring(spec.run_id),
                inviter=self._inviter,
            )
        )

    def check_trust(self, spec: CohortSpec) -> None:
        """Refuse a sum of people whom nobody known here vouches for."""
        checked_here = spec.threat.malicious_server and spec.admission == INVITED
        if checked_here and self._inviter is None:
            raise TermsError(
                RefusalCode.ENROLMENT_REQUIRED, "no invitation key is configured"
            )

    def restore(self, snapshot: bytes) -> ClientSession:
        """Go on with a cohort that another process of this node began."""
        state = parse(ClientState, snapshot)
        machine = self.open(state.spec)
        machine.resume(state)
        return machine

    def forget(self, run_id: str, cohort_id: str) -> None:
        """Erase this node's share of a key, if that is what has come to its end."""
        self._keyring(run_id).forget_dealing(cohort_id)

    def _keyring(self, run_id: str) -> ClientKeyring:
        keyring = self._keyrings.get(run_id)
        if keyring is None:
            while len(self._keyrings) >= _MOST_RUNS:
                del self._keyrings[next(iter(self._keyrings))]
            keyring = self._keyrings[run_id] = self._new_keyring(run_id)
        return keyring
