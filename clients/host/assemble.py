"""Put a node together from its settings: what every engine and the ClientApp call."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from wallflower.clients.consent import ClientPolicy
from wallflower.clients.node.ledger import Ledger
from wallflower.clients.node.node import Node, NodeParts
from wallflower.clients.node.randomizer import real_randomizer, seeded_randomizer
from wallflower.clients.node.sessions import Sessions
from wallflower.clients.rewards.source import Patience, Rewards
from wallflower.clients.secure_sum import (
    ClientKeyring,
    ClientLimits,
    client_session,
    restore_session,
)
from wallflower.protocol.identity.enrolment import NodeIdentity, Trust
from wallflower.protocol.secure_sum.backends import MOST_USERS
from wallflower.protocol.secure_sum.envelope import parse
from wallflower.protocol.secure_sum.session import ClientSession
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.protocol.wire.sum_state_pb2 import ClientState

# Runs whose keys a node keeps at a time; an older run's are made anew if it comes back.
_MOST_RUNS = 8


class SessionOpener:
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
    """

    def __init__(
        self,
        node_id: str,
        policy: ClientPolicy,
        identity: NodeIdentity | None = None,
        trust: Trust | None = None,
    ) -> None:
        self._node_id = node_id
        self._identity = identity
        self._trust = trust
        self._limits = ClientLimits(
            minimum_parties=policy.smallest_nodes,
            minimum_corrupt=policy.smallest_corrupt,
            require_malicious=bool(policy.malicious_server),
            shufflers=policy.shufflers,
        )
        self._keyrings: dict[str, ClientKeyring] = {}
        # Makes the keyring of a run; replaced where several processes serve one node.
        self.new_keyring: Callable[[str], ClientKeyring] = ClientKeyring

    def open(self, spec: CohortSpec) -> ClientSession:
        """Begin a cohort."""
        return client_session(
            spec=spec,
            party=self._node_id,
            identity=self._identity,
            trust=self._trust,
            limits=self._limits,
            keyring=self._keyring(spec.run_id),
        )

    def restore(self, snapshot: bytes) -> ClientSession:
        """Go on with a cohort that another process of this node began."""
        run_id = parse(ClientState, snapshot).spec.run_id
        return restore_session(
            snapshot, self._identity, self._trust, self._limits, self._keyring(run_id)
        )

    def forget(self, run_id: str, cohort_id: str) -> None:
        """Erase this node's share of a key, if that is what has come to its end."""
        self._keyring(run_id).forget_dealing(cohort_id)

    def _keyring(self, run_id: str) -> ClientKeyring:
        keyring = self._keyrings.get(run_id)
        if keyring is None:
            while len(self._keyrings) >= _MOST_RUNS:
                del self._keyrings[next(iter(self._keyrings))]
            keyring = self._keyrings[run_id] = self.new_keyring(run_id)
        return keyring


@dataclass(frozen=True, slots=True)
class NodeSetup:
    """What the nodes of one process share.

    `source` gives the reward source of a node (one object may serve many); `identity`
    its identity or None. `noise_seed` is for tests only.
    """

    policy: ClientPolicy
    ledger: Ledger
    source: Callable[[str], Rewards]
    identity: Callable[[str], NodeIdentity | None] = lambda node_id: None
    enrolment_key: bytes | None = None
    noise_seed: int | None = None
    patience: Patience = field(default_factory=Patience)

    def trust(self) -> Trust | None:
        """Whom the nodes believe, as of now."""
        if self.enrolment_key is None:
            return None
        return Trust(self.enrolment_key, time.time)


def make_node(
    setup: NodeSetup,
    node_id: str,
    users: Sequence[str],
    trust: Trust | None = None,
    sessions: Callable[[SessionOpener], Sessions] | None = None,
) -> Node:
    """Build one node.

    Parameters
    ----------
    setup : NodeSetup
        What it shares with the other nodes of the process.
    node_id : str
        Its stable name.
    users : Sequence[str]
        Its users' pseudonyms.
    trust : Trust, optional
        Whom to believe; by default what `setup` says. One object for many nodes
        verifies each certificate once.
    sessions : Callable[[SessionOpener], Sessions], optional
        Where open cohorts are kept between stages; memory by default.
    """
    believed = trust if trust is not None else setup.trust()
    identity = setup.identity(node_id)
    opener = SessionOpener(node_id, setup.policy, identity, believed)
    certificate = None if identity is None else identity.certificate
    randomizer = (
        _OS_RANDOMIZER
        if setup.noise_seed is None
        else seeded_randomizer(setup.noise_seed, node_id)
    )
    parts = NodeParts(
        source=setup.source(node_id),
        policy=setup.policy,
        ledger=setup.ledger,
        open_session=opener.open,
        forget=opener.forget,
        randomize=randomizer,
        patience=setup.patience,
        capacity=MOST_USERS if certificate is None else certificate.capacity,
    )
    return Node(node_id, users, parts, sessions(opener) if sessions else None)


_OS_RANDOMIZER = real_randomizer()
