"""What a secagg-plus node holds between stages: secrets, and what it was told."""

from __future__ import annotations

from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from wallflower.clients.secure_sum.keyring import OwnKey
from wallflower.protocol.secure_sum.context import parse, read_roster, roster_bytes
from wallflower.protocol.wire.secure_sum_pb2 import ShareRequest, SurvivorSet
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
