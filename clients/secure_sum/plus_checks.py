"""What a secagg-plus party holds between stages, and what it checks before it answers.

No check changes anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from wallflower.clients.secure_sum.keyring import OwnKey
from wallflower.clients.secure_sum.machine import SessionParams
from wallflower.protocol.errors import (
    AuthenticationError,
    MalformedMessageError,
    RefusalError,
    WrongContextError,
)
from wallflower.protocol.identity.enrolment import verify_signature
from wallflower.protocol.refusals import RefusalCode
from wallflower.protocol.secure_sum.context import (
    draw_order,
    parse,
    read_roster,
    roster_bytes,
)
from wallflower.protocol.secure_sum.secagg_plus import (
    confirmation,
    read_survivors,
    ring_neighbours,
)
from wallflower.protocol.secure_sum.threat import (
    COMPLETE_UP_TO,
    Sizes,
    Threat,
    least_contributors,
)
from wallflower.protocol.wire.secure_sum_pb2 import (
    MaskRequest,
    ShareRequest,
    SurvivorSet,
    UnmaskRequest,
)
from wallflower.protocol.wire.sum_state_pb2 import PlusState


@dataclass(slots=True, repr=False)
class PlusMemory:
    """The state of one node in one cohort.

    Attributes
    ----------
    invited : the roster before anybody vanished; None until keys are shared, empty
        where the list was not told.
    invited_size : how many were invited.
    mask_key, self_seed, value : the secrets.
    users : how many users stand behind the value.
    request : neighbours and their keys.
    senders : positions of neighbours that shared.
    shares : position → that neighbour's shares of its seed and of its mask key.
    sharers, survivors : what the server said of who is in.
    """

    invited: dict[str, int] | None = None
    invited_size: int = 0
    mask_key: OwnKey | None = None
    self_seed: bytes = b""
    value: int = 0
    users: int = 0
    request: ShareRequest = field(default_factory=ShareRequest)
    senders: list[int] = field(default_factory=list)
    shares: dict[int, bytes] = field(default_factory=dict)
    sharers: SurvivorSet = field(default_factory=SurvivorSet)
    survivors: SurvivorSet = field(default_factory=SurvivorSet)

    def forget(self) -> None:
        """Drop the secrets."""
        self.mask_key = None
        self.self_seed = b""
        self.value = 0
        self.shares = {}

    def to_bytes(self) -> bytes:
        """Write everything down, secrets included."""
        key = self.mask_key
        return PlusState(
            mask_key=b"" if key is None else key.private.private_bytes_raw(),
            self_seed=self.self_seed,
            value=self.value,
            users=self.users,
            share_request=self.request,
            senders=self.senders,
            shares=self.shares,
            sharers=self.sharers.SerializeToString(),
            survivors=self.survivors.SerializeToString(),
            invited=roster_bytes(self.invited) if self.invited else b"",
            invited_size=self.invited_size,
        ).SerializeToString(deterministic=True)

    @classmethod
    def from_bytes(cls, body: bytes, *, shared: bool) -> PlusMemory:
        """Read what `to_bytes` wrote; `shared` if the share stage was answered."""
        state = parse(PlusState, body)
        memory = cls(
            invited_size=state.invited_size,
            self_seed=state.self_seed,
            value=state.value,
            users=state.users,
            request=state.share_request,
            senders=list(state.senders),
            shares=dict(state.shares),
            sharers=parse(SurvivorSet, state.sharers),
            survivors=parse(SurvivorSet, state.survivors),
        )
        if shared:
            memory.invited = read_roster(state.invited) if state.invited else {}
        if state.mask_key:
            private = X25519PrivateKey.from_private_bytes(state.mask_key)
            memory.mask_key = OwnKey.of(private, whole_run=False)
        return memory


def check_neighbours(
    request: ShareRequest,
    party: str,
    sizes: Sizes,
    context: bytes,
    roster: dict[str, int] | None,
) -> None:
    """Refuse a neighbourhood that is not the one drawn for this party."""
    neighbours = list(request.neighbours)
    if len(neighbours) != len(request.keys) or len(set(neighbours)) != len(neighbours):
        raise MalformedMessageError("the neighbours are incomplete or repeated")
    if party in neighbours or len(neighbours) != sizes.helpers:
        raise RefusalError(
            RefusalCode.GRAPH_DEGREE,
            f"{len(neighbours)} neighbours; the threat asks for {sizes.helpers}",
        )
    if roster is not None:
        order = draw_order(context, list(roster))
        drawn = ring_neighbours(order, order.index(party), sizes.helpers)
        if drawn != neighbours:
            raise WrongContextError("the neighbours are not the ones that were drawn")
    keys = {key.key for key in request.keys} | {key.mask_key for key in request.keys}
    if len(keys) != 2 * len(neighbours):
        raise WrongContextError("two neighbours share a key")


def check_roster_shrank(
    invited: dict[str, int] | None, roster: dict[str, int] | None
) -> None:
    """Refuse nodes that were not invited, or invited with other users."""
    if invited is None or roster is None:
        return
    if any(invited.get(party) != users for party, users in roster.items()):
        raise WrongContextError("the roster has nodes that were not invited")


def check_sharers(
    request: MaskRequest,
    neighbours: Sequence[str],
    threshold: int,
    sharers: dict[str, int] | None,
) -> None:
    """Refuse a list of senders that repeats, exceeds or falls short.

    The quorum is counted over the sharers, and it binds only because a node masks with
    every neighbour among them: a listed neighbour whose mask were left out could be
    missing from the sum without anybody noticing.
    """
    senders = list(request.senders)
    if len(set(senders)) != len(senders) or len(senders) != len(request.users):
        raise MalformedMessageError("the senders are incomplete or repeated")
    if any(position >= len(neighbours) for position in senders):
        raise WrongContextError("a sender is not a neighbour")
    if len(senders) < threshold:
        raise RefusalError(
            RefusalCode.TOO_FEW_NEIGHBOURS, f"{len(senders)} shared; {threshold} needed"
        )
    if sharers is None:
        return
    sent = {
        neighbours[position]: users
        for position, users in zip(senders, request.users, strict=True)
    }
    if sent != {party: sharers[party] for party in neighbours if party in sharers}:
        raise WrongContextError(
            "the neighbours that sent shares are not those listed, with their users"
        )


def check_survivors(
    survivor_set: SurvivorSet,
    setting: SessionParams,
    threat: Threat,
    roster: dict[str, int] | None,
    roster_size: int,
) -> dict[str, int] | None:
    """Refuse a set that leaves this node out, is too small or misses the quorum."""
    listed = read_survivors(survivor_set)
    if listed is None:
        if roster_size <= COMPLETE_UP_TO or threat.malicious_server:
            raise MalformedMessageError("the list of parties is missing")
    else:
        if setting.party not in listed:
            raise WrongContextError("this node is listed as dropped")
        if roster is not None:
            for party, users in listed.items():
                if not 1 <= users <= roster.get(party, 0):
                    raise WrongContextError(f"{party} cannot stand for {users} users")
    needed = least_contributors(threat, roster_size)
    if survivor_set.parties < needed:
        raise RefusalError(
            RefusalCode.SET_TOO_SMALL,
            f"{survivor_set.parties} nodes; at least {needed}",
        )
    quorum = setting.spec.quorum
    if survivor_set.users < quorum:
        raise RefusalError(
            RefusalCode.QUORUM_NOT_MET, f"{survivor_set.users} users; at least {quorum}"
        )
    return listed


def check_unmask(
    request: UnmaskRequest,
    senders: list[int],
    neighbours: list[str],
    threshold: int,
    sharers: dict[str, int] | None,
    survivors: dict[str, int] | None,
) -> None:
    """Refuse to give both kinds of share of one neighbour, or shares of a stranger."""
    present, dropped = list(request.present), list(request.dropped)
    if len(set(present)) != len(present) or len(set(dropped)) != len(dropped):
        raise MalformedMessageError("a neighbour is listed twice")
    if set(present) & set(dropped):
        raise WrongContextError("both kinds of share of one neighbour are asked for")
    if set(present) | set(dropped) != set(senders):
        raise WrongContextError("the neighbours are not those that shared")
    if len(present) < threshold:
        raise RefusalError(
            RefusalCode.TOO_FEW_NEIGHBOURS,
            f"{len(present)} are left; {threshold} needed",
        )
    if survivors is None:
        return
    if any((neighbours[p] in survivors) != (p in set(present)) for p in senders):
        raise WrongContextError("the survivors and the neighbours asked for differ")
    if sharers is not None and any(
        sharers.get(party) != users for party, users in survivors.items()
    ):
        raise WrongContextError("a survivor did not share, or changed its users")


def check_confirmations(
    request: UnmaskRequest,
    context: bytes,
    public_keys: list[bytes],
    threshold: int,
) -> None:
    """Demand that at least t neighbours signed the very same survivors."""
    confirmed = list(request.confirmed)
    if len(set(confirmed)) != len(confirmed) or len(confirmed) != len(
        request.signatures
    ):
        raise MalformedMessageError("the confirmations are incomplete or repeated")
    if not set(confirmed) <= set(request.present):
        raise WrongContextError("a confirmation of a neighbour that is not present")
    if len(confirmed) < threshold:
        raise AuthenticationError(
            f"{len(confirmed)} neighbours confirmed the survivors; {threshold} needed"
        )
    text = confirmation(context, request.survivors)
    for position, signature in zip(confirmed, request.signatures, strict=True):
        verify_signature(public_keys[position], signature, text)
