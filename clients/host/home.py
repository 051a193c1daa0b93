"""A deployed node's home: who it is, who lives there, on which terms.

The folder named by ``wallflower-home`` in the SuperNode's ``--node-config`` holds
``node.toml`` and the node's state (ledger, sessions). The keys lie beside it or in the
folder that the file names; the ledger's counter in the folder that
``wallflower-counter`` names, the home by default. Relative paths in the file start at
its folder. Nothing in it comes from the server.

::

    [node]
    users = 250                # or a list of pseudonyms
    keys = "/etc/wallflower/nodes/clinic-7"
    [policy]
    largest-epsilon = 1
    [rewards]
    source = "grpc"
    address = "127.0.0.1:7000"
"""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from flwr.app import Context
from google.protobuf.message import DecodeError

from wallflower.clients.consent import ClientPolicy
from wallflower.clients.host import invitations
from wallflower.clients.host.assemble import NodeSetup, make_node
from wallflower.clients.host.outcome_counts import add_counts
from wallflower.clients.node.ledger import Ledger
from wallflower.clients.node.node import Node
from wallflower.clients.node.rollback_counter import RollbackCounter
from wallflower.clients.node.sessions import SessionStore
from wallflower.clients.node.spends import OneTimeAnswer
from wallflower.clients.rewards.local import TableRewards, reward_source
from wallflower.clients.rewards.ready import check_test_users
from wallflower.clients.rewards.source import NoRewards, Rewards, RewardsOf
from wallflower.clients.transport.grpc_client import Invitation, connect_node
from wallflower.clients.transport.polling import PollingClient, PollingSettings
from wallflower.protocol.errors import (
    ConfigError,
    InputError,
    MalformedMessageError,
    RefusalError,
)
from wallflower.protocol.files import keyfiles
from wallflower.protocol.files.sections import LARGEST_NODE, RewardSettings
from wallflower.protocol.files.settings import read_toml, settings_from
from wallflower.protocol.identity.enrolment import NodeIdentity, Trust
from wallflower.protocol.identity.tokens import INSTANCE_BYTES
from wallflower.protocol.numbers import whole
from wallflower.protocol.refusals import RefusalCode
from wallflower.protocol.rewards.outcome_window import NO_WINDOW
from wallflower.protocol.rewards.reward_range import DEFAULT_RANGE
from wallflower.protocol.wire.node_pb2 import NodeRequest

FILE_NAME = "node.toml"
STREAM, POLLING, CRON = "stream", "polling", "cron"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NodeSection:
    """``[node]``: who the node is and who lives there.

    Attributes
    ----------
    name : only without an enrolment certificate, which has the name.
    users : how many, or their pseudonyms; a table source brings its own. A node with
        none is a trustee: it holds a share of the key where people arrive.
    arms : names of the arms, in the experiment's order; for a table source.
    keys : folder with identity.key, identity.certificate, enrolment.pub, ca.crt;
        the home itself by default.
    connection : ``stream`` keeps a stream to the gRPC server. ``polling`` asks it for
        work now and then; such a node is never on a committee. ``cron`` leaves the
        polling to `wallflower poll`.
    """

    name: str = ""
    users: int | tuple[str, ...] = 1
    arms: tuple[str, ...] = ()
    keys: Path | None = None
    connection: str = STREAM

    def __post_init__(self) -> None:
        if isinstance(self.users, int):
            whole("users", self.users, at_least=0, at_most=LARGEST_NODE)
        elif not self.users or len(set(self.users)) != len(self.users):
            raise InputError("users", "an empty or repeating list", "different names")
        if self.connection not in (STREAM, POLLING, CRON):
            raise InputError(
                "connection", self.connection, f"{STREAM}, {POLLING} or {CRON}"
            )


@dataclass(frozen=True, slots=True)
class NodeFile:
    """All that ``node.toml`` says."""

    rewards: RewardSettings | None = None
    node: NodeSection = field(default_factory=NodeSection)
    policy: ClientPolicy = field(default_factory=ClientPolicy)


class NodeHome:
    """One home, read once: makes the node for a message or for a run.

    Parameters
    ----------
    path : Path
        The folder.
    counter : Path, optional
        Where the ledger's counter lies; the home by default, better a place that is
        not restored together with it.
    rewards : RewardsOf, optional
        Where outcomes come from; ``[rewards]`` of the file by default.
    """

    def __init__(
        self,
        path: Path,
        counter: Path | None = None,
        rewards: RewardsOf | None = None,
    ) -> None:
        self.path = path
        self._counter = (path if counter is None else counter) / "ledger.counter"
        where = path / FILE_NAME
        stated = settings_from(NodeFile, read_toml(where), str(where))
        settings = stated.rewards and stated.rewards.beside(path)
        self.file = replace(stated, rewards=settings)
        section = self.file.node
        self.keys = path if section.keys is None else path / section.keys
        self.policy = self._policy()
        self.identity = self._identity()
        self.name = self.identity.node_id
        self._rewards = rewards
        if rewards is None:
            self._check_rewards(str(where))

    def _check_rewards(self, where: str) -> None:
        settings = self.file.rewards
        if self.file.node.users == 0:
            if settings is not None:
                raise ConfigError(where, '"rewards" needs at least 1 user')
            return
        if settings is None:
            raise ConfigError(where, '"rewards" is missing')
        if settings.source == "table" and not self.file.node.arms:
            raise ConfigError(f"{where}.node", '"arms" is missing for a table source')

    def _policy(self) -> ClientPolicy:
        """Return the users' terms; the node's log says what they do not withstand."""
        policy = self.file.policy
        if (self.keys / keyfiles.ENROLMENT_PUBLIC).exists():
            policy, why = (
                policy.enrolled(),
                "its node.toml says malicious-server = false",
            )
        else:
            why = f"there is no {keyfiles.ENROLMENT_PUBLIC} in {self.keys}"
        if not policy.malicious_server:
            _log.warning(
                "this node believes that the server keeps to the protocol: %s",
                why,
                extra={"event": "server-believed", "detail": why},
            )
        return policy

    def _identity(self) -> NodeIdentity:
        if (self.keys / keyfiles.IDENTITY_CERTIFICATE).exists():
            return keyfiles.read_identity(self.keys)
        name, key = self.file.node.name, self.keys / keyfiles.IDENTITY_KEY
        if not name:
            raise ConfigError(
                str(self.path / FILE_NAME),
                f"no name, and no {keyfiles.IDENTITY_CERTIFICATE} in {self.keys}",
            )
        if not key.exists():
            seed = NodeIdentity.generate(name).private_bytes()
            keyfiles.write_private(key, keyfiles.private_key_pem(seed))
        return NodeIdentity.from_private_bytes(name, keyfiles.read_seed(key))

    def ledger(self) -> Ledger:
        """Open the node's ledger; refused if it is not where its counter says."""
        return Ledger(self.path / "ledger.sqlite", RollbackCounter(self._counter))

    def trust(self) -> Trust | None:
        """Return whom this node believes, as of now; None without an enrolment key."""
        if not (self.keys / keyfiles.ENROLMENT_PUBLIC).exists():
            return None
        return keyfiles.read_trust(self.keys)

    def _inviter_key(self) -> bytes | None:
        """Return the key of whoever invites people, if this node was given it."""
        path = self.keys / keyfiles.INVITER_PUBLIC
        return keyfiles.read_public(path) if path.exists() else None

    def authority(self, given: bytes) -> bytes:
        """Return the root certificate for the gRPC server: the node's own before a
        given one.
        """
        own = self.keys / keyfiles.AUTHORITY_CERTIFICATE
        return own.read_bytes() if own.exists() else given

    def node(self, ledger: Ledger, store: SessionStore | None = None) -> Node:
        """Make the node; with a `store` its sessions survive the process."""
        section, trust = self.file.node, self.trust()
        settings = self.file.rewards
        source: Rewards
        if self._rewards is not None:
            source = self._rewards(self.name)
        elif settings is None:
            source = NoRewards()
        else:
            source = reward_source(settings, self.name, section.arms)
        users = self._users_of(source)
        if settings is not None:
            check_test_users(settings.test_users, users)
        setup = NodeSetup(
            policy=self.policy,
            ledger=ledger,
            source=lambda name: source,
            identity=lambda name: self.identity,
            enrolment_key=None if trust is None else trust.enrolment_key,
            inviter_key=self._inviter_key(),
            window=NO_WINDOW if settings is None else settings.window,
            count=partial(add_counts, self.path),
            reward_range=DEFAULT_RANGE if settings is None else settings.reward_range,
        )
        return make_node(setup, self.name, users, trust, store)

    def find_users(self) -> tuple[str, ...]:
        """Return the pseudonyms of those who live here; a table brings its own."""
        settings = self.file.rewards
        if self._rewards is not None or settings is None or settings.source != "table":
            return self._users_of(None)
        return self._users_of(reward_source(settings, self.name, self.file.node.arms))

    def _users_of(self, source: Rewards | None) -> tuple[str, ...]:
        if isinstance(source, TableRewards):
            return source.users
        stated = self.file.node.users
        if isinstance(stated, int):
            return tuple(f"u{number}" for number in range(stated))
        return stated


async def poll_server(
    home: NodeHome,
    invitation: Invitation,
    *,
    stay: bool,
    settings: PollingSettings | None = None,
) -> str | None:
    """Poll a gRPC server once, or until the run is over; give why it is over, if it
    is.

    Answers are remembered in the node's store: whichever process comes next gives the
    same ones. From the first poll on no Flower message does work for the run.
    """
    run_id = invitation.run_id
    with node_lock(home.path), home.ledger() as ledger:
        await ledger.record_answer(OneTimeAnswer.connection(home.name, run_id))
        store = SessionStore(home.path)
        try:
            node = home.node(ledger, store)
            node.only_run, node.polls = run_id, True
            fresh = secrets.token_bytes(INSTANCE_BYTES)
            client = PollingClient(
                invitation,
                home.identity,
                node,
                instance=store.write_once("instance", home.name, run_id, fresh),
                settings=settings,
            )
            over = await (client.keep() if stay else client.once())
            if over is not None:
                invitations.drop(home.path, run_id)
                for kind in ("instance", "run-key"):
                    store.delete(kind, home.name, run_id)
            return over
        finally:
            store.close()


class HomeProvider:
    """A `NodeProvider` for SuperNodes that have a home; homes are read once."""

    def __init__(self, rewards: RewardsOf | None = None) -> None:
        self._rewards = rewards
        self._homes: dict[Path, NodeHome] = {}

    def name(self, context: Context) -> str:
        """Return the name on the node's certificate, or in its file."""
        return self._home(context).name

    async def work(self, context: Context, body: bytes) -> bytes:
        """Answer one request; a second one at the same time is turned away."""
        home = self._home(context)
        with node_lock(home.path), home.ledger() as ledger:
            await _check_route(ledger, home.name, body)
            store = SessionStore(home.path)
            try:
                return await home.node(ledger, store).handle(body)
            finally:
                store.close()

    async def connect_node(self, context: Context, invitation: Invitation) -> str:
        """Connect to the gRPC server with sessions that never leave memory, or poll
        it.

        From now on no Flower message does work for this run, in whatever process.
        """
        home = self._home(context)
        root = home.authority(invitation.root_certificate)
        invitation = replace(invitation, root_certificate=root)
        if home.file.node.connection != STREAM:
            invitations.save(home.path, invitation)
            if home.file.node.connection == CRON:
                return "invited"
            return await poll_server(home, invitation, stay=True) or "left"
        with home.ledger() as ledger:
            await ledger.record_answer(
                OneTimeAnswer.connection(home.name, invitation.run_id)
            )
            node = home.node(ledger)
            node.only_run = invitation.run_id
            return await connect_node(invitation, home.identity, node)

    def _home(self, context: Context) -> NodeHome:
        path = Path(str(context.node_config["wallflower-home"]))
        if path not in self._homes:
            counter = context.node_config.get("wallflower-counter")
            where = None if counter is None else Path(str(counter))
            self._homes[path] = NodeHome(path, where, self._rewards)
        return self._homes[path]


async def _check_route(ledger: Ledger, name: str, body: bytes) -> None:
    """Refuse work for a run to whose gRPC server this node is or was connected."""
    try:
        run_id = NodeRequest.FromString(body).run_id
    except DecodeError:
        raise MalformedMessageError("a request is not a NodeRequest") from None
    if await ledger.has_connected(name, run_id):
        raise RefusalError(
            RefusalCode.RUN_CONNECTED,
            "this node is connected to the run's gRPC server and takes no messages",
        )


@contextmanager
def node_lock(home: Path) -> Iterator[None]:
    """Hold a node's lock; RefusalError ``node-busy`` if another message has it.

    The kernel frees the lock when its process dies.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(home / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RefusalError(
                RefusalCode.NODE_BUSY,
                "this node is still working on an earlier message",
            ) from None
        yield
    finally:
        os.close(lock)
