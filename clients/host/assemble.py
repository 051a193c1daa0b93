"""Build a node from its settings: what every engine and the ClientApp call."""

from __future__ import annotations

import contextlib
import contextvars
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from wallflower.clients.consent import ClientPolicy
from wallflower.clients.node.node import CountOutcomes, Node, NodeParts
from wallflower.clients.node.randomizer import real_randomizer, seeded_randomizer
from wallflower.clients.node.sessions import SessionStore, StoredSessions
from wallflower.clients.node.spends import NodeLedger
from wallflower.clients.rewards.source import Rewards
from wallflower.clients.secure_sum.keyring import ClientKeyring, OwnKey
from wallflower.clients.secure_sum.opener import SessionFactory
from wallflower.protocol.identity.canonical import canonical
from wallflower.protocol.identity.enrolment import NodeIdentity, Trust
from wallflower.protocol.rewards.outcome_window import NO_WINDOW, OutcomeWindow
from wallflower.protocol.rewards.reward_range import DEFAULT_RANGE, RewardRange
from wallflower.protocol.secure_sum.backends import MOST_USERS


@dataclass(frozen=True, slots=True)
class NodeSetup:
    """What the nodes of one process share.

    `source` gives the reward source of a node (one object may serve many); `identity`
    its identity or None; `inviter_key` vouches for people who arrive by invitation, in
    cohorts that this node opens as a trustee; `window` and `reward_range` are what the
    users agreed to. `count` keeps how many outcomes are not known, on the node.
    `noise_seed` is for tests only.
    """

    policy: ClientPolicy
    ledger: NodeLedger
    source: Callable[[str], Rewards]
    identity: Callable[[str], NodeIdentity | None] = lambda node_id: None
    enrolment_key: bytes | None = None
    inviter_key: bytes | None = None
    noise_seed: int | None = None
    window: OutcomeWindow = NO_WINDOW
    count: CountOutcomes = lambda shown, unknown: None
    reward_range: RewardRange = DEFAULT_RANGE

    def trust(self) -> Trust | None:
        """Return whom the nodes believe, as of now."""
        if self.enrolment_key is None:
            return None
        return Trust(self.enrolment_key, time.time)

    def inviter(self) -> Trust | None:
        """Return whose invitations the nodes believe, as of now."""
        if self.inviter_key is None:
            return None
        return Trust(self.inviter_key, time.time)


def make_node(
    setup: NodeSetup,
    node_id: str,
    users: Sequence[str],
    trust: Trust | None = None,
    store: SessionStore | None = None,
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
    store : SessionStore, optional
        Where open cohorts and the run's keys are kept between stages, for whichever
        process serves the node next; memory by default.
    """
    believed = trust if trust is not None else setup.trust()
    identity = setup.identity(node_id)
    new_keyring = ClientKeyring if store is None else stored_keyring(store, node_id)
    opener = SessionFactory(
        node_id,
        setup.policy,
        identity,
        trust=believed,
        new_keyring=new_keyring,
        inviter=setup.inviter(),
    )
    sessions = None if store is None else StoredSessions(store, node_id, opener.restore)
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
        check_trust=opener.check_trust,
        forget=opener.forget,
        randomize=randomizer,
        window=setup.window,
        count=setup.count,
        reward_range=setup.reward_range,
        capacity=MOST_USERS if certificate is None else certificate.capacity,
    )
    return Node(node_id, users, parts, sessions)


_OS_RANDOMIZER = real_randomizer()


class _StoredKeyShares:
    """Shares of a run's keys in the node's own sealed store."""

    def __init__(self, store: SessionStore, node_id: str, run_id: str) -> None:
        self._store = store
        self._node_id = node_id
        self._run_id = run_id

    def get(self, name: str) -> bytes | None:
        return self._store.read(*self._place(name))

    def __setitem__(self, name: str, secret: bytes) -> None:
        self._store.write(*self._place(name), secret)

    def __delitem__(self, name: str) -> None:
        self._store.delete(*self._place(name))

    def _place(self, name: str) -> tuple[str, str, str]:
        return "share", self._node_id, canonical(self._run_id, name).hex()


def stored_keyring(store: SessionStore, node_id: str) -> Callable[[str], ClientKeyring]:
    """Return a maker of keyrings that are the same in every process of a node.

    The server remembers the public key that a node announced and does not ask again, so
    a second process must not come with another one: the run key lies in the store.
    """

    def keyring(run_id: str) -> ClientKeyring:
        fresh = X25519PrivateKey.generate().private_bytes_raw()
        kept = store.write_once("run-key", node_id, run_id, fresh)
        shares = _StoredKeyShares(store, node_id, run_id)
        made = ClientKeyring(run_id, key_shares=shares)
        private = X25519PrivateKey.from_private_bytes(kept)
        made.adopt(OwnKey.of(private, whole_run=True))
        return made

    return keyring


# Whether this process simulates nodes; nothing a server says has a part in it.
#
# A simulated node takes policy, rewards and noise seed from the experiment's file, that
# is from the server. That is right where all nodes are in one hand and wrong on
# anybody's own machine, so it is decided by what runs the ClientApp: an actor of
# Flower's simulation, or a grid in this very process. A SuperNode runs it in a process
# of its own, and whatever its node config, run config and messages say, that is no
# simulation.


_here = contextvars.ContextVar("wallflower-simulated", default=False)


@contextlib.contextmanager
def simulated_here() -> Iterator[None]:
    """Say that the nodes served inside are simulated by this process."""
    token = _here.set(True)
    try:
        yield
    finally:
        _here.reset(token)


def in_simulation() -> bool:
    """Return whether the ClientApp is run by a simulation."""
    return _here.get() or _in_an_actor()


def _in_an_actor() -> bool:
    # Flower's simulation has imported Ray before it calls; nobody else needs it.
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return False
    return ray.get_runtime_context().get_actor_id() is not None
