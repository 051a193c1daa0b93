"""What every secure-sum back-end looks like from outside: bytes in, bytes out.

A *party* is a node; its contribution is the sum mod m of the randomized integers of
its users in the cohort (one user on a phone, many in a hospital), together with how
many users it holds. The server machine hands out messages stage by stage; the client
machine answers each. Neither does I/O, sleeps or reads a clock: a deadline is an event.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from wallflower.protocol.wire.cohort_pb2 import CohortSpec

PartyId = str


@dataclass(frozen=True, slots=True)
class Contribution:
    """A node's share in a cohort's sum: Σ y mod m over `users` users."""

    value: int
    users: int

    def __repr__(self) -> str:
        """Hide the value: it is one user's randomized reward."""
        return f"Contribution(users={self.users})"


@dataclass(frozen=True, slots=True)
class Ask:
    """Send these messages (one per party) and collect answers until the deadline."""

    stage: str
    messages: Mapping[PartyId, bytes]


@dataclass(frozen=True, slots=True)
class SecureSum:
    """The end of a good session: Σ mod m over exactly the surviving parties."""

    total: int
    modulus: int
    survivors: tuple[PartyId, ...]
    users: int


@dataclass(frozen=True, slots=True)
class KeyReady:
    """The end of a good dealing: the run has a key that nobody holds.

    `dealers` made it, `members` hold shares of it.
    """

    dealing_id: str
    dealers: tuple[PartyId, ...]
    members: tuple[PartyId, ...]


@dataclass(frozen=True, slots=True)
class Void:
    """The end of a bad session: no sum is released. `code` is kebab-case."""

    code: str
    detail: str


# What is known of a party's part in how a session went.
SENT = "sent"  # it sent what no honest party sends
OUT = "out"  # it refused, failed or was silent
SUSPECT = "suspect"  # it, or another party: which cannot be known
UNKNOWN = "unknown"  # nobody can be named
SERVER = "server"  # no party: the server stopped or gave it up


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing the server knows about who caused what; `word` is kebab-case."""

    party: PartyId  # empty for UNKNOWN and SERVER
    kind: str
    word: str


Step = Ask | SecureSum | KeyReady | Void


class ServerSession(Protocol):
    """The server's half of one cohort's secure sum."""

    def start(self) -> Step:
        """Return the first messages.

        A session restored from a snapshot gives the messages of the stage it was in,
        for the parties it has not heard. `receive` and `lose` may be called on it
        before: that is how answers spooled after the snapshot come back.
        """
        ...

    def receive(self, party: PartyId, body: bytes) -> None:
        """Take one answer of the current stage.

        Raises ProtocolError for one that must not be acted upon: that party is out,
        the session goes on.
        """
        ...

    def lose(self, party: PartyId, code: str) -> None:
        """Note that a party refused or is gone; it is out of this stage."""
        ...

    @property
    def out(self) -> Mapping[PartyId, str]:
        """Why parties are out, as far as it is known: refusals, losses, bad answers."""
        ...

    @property
    def findings(self) -> Sequence[Finding]:
        """Who caused what so far, as far as the server can know."""
        ...

    @property
    def stage_complete(self) -> bool:
        """True when no awaited party of this stage is left unheard."""
        ...

    def advance(self) -> Step:
        """End the stage (deadline, or complete) and give the next step."""
        ...

    def snapshot(self) -> bytes:
        """Return all that is needed to go on from here after a restart.

        Asked for whenever `start` or `advance` gave an Ask, and kept before its first
        message leaves, so that a closed set never closes a second time. The back-end's
        registry has the way back (`strategy.secure_sum.restore_session`).
        """
        ...


@runtime_checkable
class ChoosingSession(Protocol):
    """A server's half that chooses which of the contributors are in the sum.

    Its choice ends with the stage that takes the contributions. What nodes accept does
    not change: they check quorum and contributors as ever.
    """

    @property
    def chosen(self) -> Set[PartyId] | None:
        """Who is in the sum, once that is fixed."""
        ...

    def contributors(self) -> Set[PartyId]:
        """Return who contributed so far and can be in the sum."""
        ...

    def can_close_without(self, parties: Set[PartyId]) -> bool:
        """Return whether there is a sum if these contributors are left out."""
        ...

    def leave_out(self, parties: Set[PartyId], code: str) -> None:
        """Leave contributors out of the sum, for the reason `code`."""
        ...


@dataclass(frozen=True, slots=True)
class StageAnswer:
    """A node's answer to one stage.

    Attributes
    ----------
    body : for the server.
    one_time_stage : the stage's name where a second, different answer would give people
        away. The ledger has such an answer on disk before it leaves the node. None
        where giving it again is harmless, or the spend itself stands in the way.
    """

    body: bytes
    one_time_stage: str | None = None


class InspectedRequest(Protocol):
    """A server's message that passed every check and waits for its answer.

    A refusal before `answer` costs nobody anything. Afterwards only chance may keep a
    contribution from being sent.
    """

    @property
    def needs_value(self) -> bool:
        """True if the answer needs the node's value, which may take hours to get."""
        ...

    def check_users(self, users: int) -> None:
        """Refuse a contribution of so many users, before any of them is charged."""
        ...

    def answer(self, value: Contribution | None = None) -> StageAnswer:
        """Return the answer; the same request always has the same one.

        Raises RefusalError or ProtocolError; after either the session is dead and its
        secrets are gone.
        """
        ...


class ClientSession(Protocol):
    """A node's half of one cohort's secure sum."""

    @property
    def spec(self) -> CohortSpec:
        """The description the session was opened with; it never changes."""
        ...

    def inspect(self, body: bytes) -> InspectedRequest:
        """Check one server message completely, before anybody is asked for a value.

        Raises RefusalError (the user's policy or the protocol forbids an answer) or
        ProtocolError; after either the session is dead and its secrets are gone.
        """
        ...

    def snapshot(self) -> bytes:
        """Return all that is needed to go on in another process, secrets included.

        Where Flower carries the work, every message may reach a new process of the
        node, so between two stages the session lives in the node's own sealed store
        and nowhere else. Called after an answer; `SessionFactory.restore`
        is the way back. A restored session refuses what it already answered.
        """
        ...

    def close(self) -> None:
        """Forget all secrets."""
        ...
