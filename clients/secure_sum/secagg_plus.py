"""`secagg-plus` (Bell et al. 2020), a node's side: four stages, any modulus.

The node's value is hidden twice: by a seed of its own and by a seed with every
neighbour. It shares its own seed and its mask key among its neighbours, so that the
survivors can take away exactly one of the two from each node: the own seed of those
who are in the sum, the mask key of those who vanished. Never both.
"""

from __future__ import annotations

import secrets

from wallflower.clients.secure_sum.keyring import OwnKey
from wallflower.clients.secure_sum.machine import (
    ClientMachine,
    Reply,
    SessionParams,
)
from wallflower.clients.secure_sum.plus_checks import (
    PlusMemory,
    check_confirmations,
    check_neighbours,
    check_roster_shrank,
    check_sharers,
    check_survivors,
    check_unmask,
)
from wallflower.protocol.errors import (
    AuthenticationError,
    RefusalError,
    WrongContextError,
)
from wallflower.protocol.identity.enrolment import Certificate
from wallflower.protocol.refusals import RefusalCode
from wallflower.protocol.secure_sum.backends import (
    ADVERTISE,
    CONFIRM,
    MASK,
    SECAGG_PLUS,
    SHARE,
    stages_of,
)
from wallflower.protocol.secure_sum.context import parse
from wallflower.protocol.secure_sum.keys import (
    SALT_BYTES,
    pair_key,
    seal,
    signed,
    split,
    unseal,
)
from wallflower.protocol.secure_sum.secagg_plus import (
    PLUS_SEAL_BYTES,
    confirmation,
    mask_info,
    mask_value,
    pack,
    read_survivors,
    share_head,
    share_info,
    unpack,
)
from wallflower.protocol.secure_sum.secret_shares import (
    SECRET_BYTES,
    SHARE_BYTES,
    share_secrets,
)
from wallflower.protocol.secure_sum.session import Contribution
from wallflower.protocol.secure_sum.threat import Sizes, Threat, graph_size
from wallflower.protocol.wire.secure_sum_pb2 import (
    AdvertiseRequest,
    ConfirmAnswer,
    ConfirmRequest,
    Envelope,
    MaskAnswer,
    MaskRequest,
    PartyKey,
    ShareAnswer,
    ShareRequest,
    SurvivorSet,
    UnmaskAnswer,
    UnmaskRequest,
)


class SecaggPlusClient(ClientMachine):
    """A party of a secagg-plus cohort."""

    stages = stages_of(SECAGG_PLUS)

    def __init__(self, setting: SessionParams) -> None:
        super().__init__(setting)
        self.memory = PlusMemory()

    def _inspect(self, envelope: Envelope) -> Reply:
        stage, payload = envelope.stage, envelope.payload
        if stage == ADVERTISE:
            self.check_roster(parse(AdvertiseRequest, payload).invited, envelope)
            return lambda value: self._advertise()
        if stage == SHARE:
            return self._inspect_share(parse(ShareRequest, payload), envelope)
        if stage == MASK:
            self._demand(SHARE)
            request = parse(MaskRequest, payload)
            check_sharers(
                request,
                self.memory.request.neighbours,
                self._sizes().threshold,
                self._stands(request.sharers),
            )
            return lambda value: self._mask(request)
        if stage == CONFIRM:
            self._demand(MASK)
            survivors = parse(ConfirmRequest, payload).survivors
            self._stands(survivors)
            return lambda value: self._confirm(survivors)
        unmask = parse(UnmaskRequest, payload)
        self._inspect_unmask(unmask)
        return lambda value: self._unmask(unmask)

    def _inspect_share(self, request: ShareRequest, envelope: Envelope) -> Reply:
        self._demand(ADVERTISE)
        own = self.memory.mask_key
        if own is None or request.own_mask_key != own.public:
            # Of an earlier process of this node: its masks would not cancel.
            raise WrongContextError("the server knows another key of this node")
        if self.memory.invited is None:
            # The roster of those who advertised replaces the roster of the invited.
            self.memory.invited, self.roster, self.context = (
                self.roster or {},
                None,
                b"",
            )
            self.memory.invited_size = self.roster_size
        self.check_roster(request.roster, envelope)
        check_roster_shrank(self.memory.invited or None, self.roster)
        check_neighbours(
            request, self.setting.party, self._sizes(), self.context, self.roster
        )
        self.check_keys(request.neighbours, request.keys, mask=True)

        def reply(value: Contribution | None) -> bytes:
            assert value is not None
            return self._share(request, value)

        return reply

    def _inspect_unmask(self, request: UnmaskRequest) -> None:
        self._demand(MASK)
        survivors = self._stands(request.survivors)
        threshold = self._sizes().threshold
        check_unmask(
            request=request,
            senders=self.memory.senders,
            neighbours=list(self.memory.request.neighbours),
            threshold=threshold,
            sharers=read_survivors(self.memory.sharers),
            survivors=survivors,
        )
        if self.threat.malicious_server:
            self._demand(CONFIRM)
            if request.survivors != self.memory.survivors:
                raise WrongContextError("the survivors are not those confirmed")
            keys = [
                Certificate.from_bytes(key.certificate).public_key
                for key in self.memory.request.keys
            ]
            check_confirmations(request, self.context, keys, threshold)

    def _demand(self, stage: int) -> None:
        if not self.has_answered(stage):
            raise WrongContextError("a stage was skipped")

    def _stands(self, survivor_set: SurvivorSet) -> dict[str, int] | None:
        return check_survivors(
            survivor_set,
            self.setting,
            self._threat_now(),
            self.roster,
            self.roster_size,
        )

    def _threat_now(self) -> Threat:
        """As many colluders as among the invited, in a roster that has shrunk."""
        return self.threat.among(self.memory.invited_size, self.roster_size)

    def _sizes(self) -> Sizes:
        """Derive k and t from the threat; the server is never asked for them."""
        return graph_size(self._threat_now(), self.roster_size)

    def _advertise(self) -> bytes:
        """Announce two keys; the mask key may be rebuilt, so it is never reused."""
        setting = self.setting
        self.memory.mask_key = OwnKey.generate(whole_run=False)
        key = PartyKey(key=self.own.public, mask_key=self.memory.mask_key.public)
        return signed(
            key,
            setting.spec.run_id,
            setting.spec.cohort_id,
            setting.party,
            setting.identity,
        ).SerializeToString()

    def _share(self, request: ShareRequest, contribution: Contribution) -> bytes:
        assert self.memory.mask_key is not None
        setting, users = self.setting, contribution.users
        self.memory.request, self.memory.value, self.memory.users = (
            request,
            contribution.value,
            users,
        )
        self.memory.self_seed = secrets.token_bytes(SECRET_BYTES)
        sizes = self._sizes()
        private = self.memory.mask_key.private.private_bytes_raw()
        shares = share_secrets(
            [self.memory.self_seed, private], sizes.threshold, sizes.helpers
        )
        salt, head = secrets.token_bytes(SALT_BYTES), share_head(self.context)
        sealed = [
            seal(
                setting.keyring.pair(self.own, key.key),
                share_info(head, setting.party, neighbour, salt),
                pack(both, users),
            )
            for neighbour, key, both in zip(
                request.neighbours, request.keys, shares, strict=True
            )
        ]
        return ShareAnswer(
            salt=salt, users=users, sealed=b"".join(sealed)
        ).SerializeToString()

    def _mask(self, request: MaskRequest) -> bytes:
        self.memory.senders = list(request.senders)
        self.memory.sharers = request.sharers
        salts = split(request.salts, len(self.memory.senders), SALT_BYTES)
        seals = split(request.sealed, len(self.memory.senders), PLUS_SEAL_BYTES)
        head = share_head(self.context)
        for position, salt, users, sealed in zip(
            self.memory.senders, salts, request.users, seals, strict=True
        ):
            neighbour = self.memory.request.neighbours[position]
            info = share_info(head, neighbour, self.setting.party, salt)
            self._open_shares(position, neighbour, info, users, sealed)
        return MaskAnswer(masked=self._mask_value()).SerializeToString()

    def _open_shares(
        self, position: int, neighbour: str, info: bytes, users: int, sealed: bytes
    ) -> None:
        """Keep a neighbour's shares; one whose seal does not open is not helped."""
        key = self.memory.request.keys[position]
        try:
            plain = unseal(self.setting.keyring.pair(self.own, key.key), info, sealed)
        except AuthenticationError:
            return
        both, sworn = unpack(plain)
        if sworn != users:
            raise WrongContextError(f"{neighbour} has other users than the server says")
        (capacity,) = self.check_keys([neighbour], [key], mask=True)
        self.check_claim(neighbour, users, capacity)
        self.memory.shares[position] = both

    def _mask_value(self) -> int:
        assert self.memory.mask_key is not None
        modulus, me = self.setting.spec.modulus, self.setting.party
        total = self.memory.value + mask_value(
            self.memory.self_seed, mask_info(self.context, "self"), modulus
        )
        info = mask_info(self.context, "pair")
        for position in self.memory.senders:
            theirs = self.memory.request.keys[position].mask_key
            seed = pair_key(
                self.memory.mask_key.private,
                self.memory.mask_key.public,
                theirs,
                b"mask",
            )
            mask = mask_value(seed, info, modulus)
            total += mask if me < self.memory.request.neighbours[position] else -mask
        return total % modulus

    def _confirm(self, survivors: SurvivorSet) -> bytes:
        """Sign who is in the sum; only one such set is ever signed."""
        if self.setting.identity is None:
            raise RefusalError(RefusalCode.ENROLMENT_REQUIRED, "this node cannot sign")
        self.memory.survivors = survivors
        text = confirmation(self.context, survivors)
        return ConfirmAnswer(
            signature=self.setting.identity.sign(text)
        ).SerializeToString()

    def _unmask(self, request: UnmaskRequest) -> bytes:
        answer = UnmaskAnswer(
            self_shares=[
                self.memory.shares.get(position, b"")[:SHARE_BYTES]
                for position in request.present
            ],
            mask_shares=[
                self.memory.shares.get(position, b"")[SHARE_BYTES:]
                for position in request.dropped
            ],
        ).SerializeToString()
        self._forget()
        return answer

    def _forget(self) -> None:
        self.memory.forget()

    def _own_state(self) -> bytes:
        return self.memory.to_bytes()

    def _resume_own(self, body: bytes) -> None:
        shared = self.has_answered(SHARE)
        self.memory = PlusMemory.from_bytes(body, shared=shared)
