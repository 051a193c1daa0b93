"""`shuffle`, a node's side: seal every message to the server, all to the shuffler.

The node takes its messages to the shuffler itself, or hands them to the server, which
carries them and cannot open them: they are sealed to the shuffler's key, which the
node's users have pinned. The shuffler cannot open the single messages inside. See
docs/shuffling.md.
"""

from __future__ import annotations

import hashlib
import secrets

from wallflower.clients.secure_sum.machine import ClientMachine, SessionParams
from wallflower.protocol.errors import MalformedMessageError, RefusalError
from wallflower.protocol.noise.bits import OsBits
from wallflower.protocol.secure_sum.backends import SHUFFLE
from wallflower.protocol.secure_sum.envelope import parse
from wallflower.protocol.secure_sum.session import (
    Contribution,
    Destination,
    ShufflerUpload,
)
from wallflower.protocol.secure_sum.shuffle.deposits import (
    TICKET_BYTES,
    deposit_info,
    greeting_of,
    receipt,
    reference,
)
from wallflower.protocol.secure_sum.shuffle.plan import (
    ShufflePlan,
    batch_info,
    batch_statement,
    names_are_told,
    unnamed_info,
)
from wallflower.protocol.secure_sum.shuffle.seals import HYBRID, SealingKey, seal_info
from wallflower.protocol.secure_sum.stages import SUBMIT, stages_of
from wallflower.protocol.wire.secure_sum_pb2 import Envelope
from wallflower.protocol.wire.shuffle_pb2 import (
    DepositRequest,
    SubmitAnswer,
    SubmitRequest,
)


class ShuffleClient(ClientMachine):
    """A contributor; nobody else is needed."""

    # The other stage is the shuffler's, and no node's.
    stages = {SUBMIT: stages_of(SHUFFLE)[SUBMIT]}  # noqa: RUF012

    def __init__(self, setting: SessionParams) -> None:
        super().__init__(setting)
        self._upload: ShufflerUpload | None = None
        self._destination: Destination | None = None

    def _inspect(self, envelope: Envelope) -> None:
        request = parse(SubmitRequest, envelope.payload)
        self.check_roster(request.roster, envelope)
        address = self._address(request)
        if address:
            self._destination = Destination(address, request.authority)
        self._keys(request)

    def _address(self, request: SubmitRequest) -> str:
        """Say where the node takes its messages; empty where the server carries them.

        A pinned address is believed, the server's only where none is.
        """
        pinned = self.setting.limits.shufflers
        name = hashlib.sha256(request.shuffler_key).hexdigest()
        places = [pin.partition("@")[2] for pin in pinned if pin[:64] == name]
        if not places:
            raise RefusalError(
                "shuffler-not-known",
                f"the shuffler {name[:16]} is not among the {len(pinned)} agreed to",
            )
        if places[0] and not request.address:
            raise RefusalError(
                "shuffler-not-direct", "this node lets no server carry its messages"
            )
        return places[0] or request.address

    def _keys(self, request: SubmitRequest) -> tuple[SealingKey, SealingKey]:
        plan = ShufflePlan.of(self.setting.spec, self.roster_size)
        single = SealingKey(plan.seal, request.sealing_key)
        return single, SealingKey(HYBRID, request.shuffler_key)

    def _answer(self, envelope: Envelope, contribution: Contribution | None) -> bytes:
        assert contribution is not None
        setting, users = self.setting, contribution.users
        request = parse(SubmitRequest, envelope.payload)
        plan = ShufflePlan.of(setting.spec, self.roster_size)
        single, together = self._keys(request)
        info = seal_info(self.context, request.shuffler_key)
        messages = plan.write(contribution.value, OsBits())
        key, named = request.sealing_key, names_are_told(setting.spec)
        place = unnamed_info(self.context, key)
        if named:
            place = batch_info(self.context, setting.party, users, key)
        answer = SubmitAnswer(users=users)
        batch = b"".join(single.seal(message, info) for message in messages)
        address = self._address(request)
        if address:
            ticket = secrets.token_bytes(TICKET_BYTES)
            sealed = together.seal(ticket + batch, deposit_info(self.context))
            greeting = greeting_of(
                setting.spec.run_id, self.context, self.roster_size, plan.batch_bytes
            )
            greeting.admission = request.admission
            self._upload = ShufflerUpload(
                address,
                request.authority,
                greeting.SerializeToString(),
                DepositRequest(sealed=sealed).SerializeToString(),
                receipt(ticket),
            )
            answer.batch = reference(ticket, self.context, key)
        else:
            answer.batch = together.seal(batch, place)
        identity = setting.identity
        if named and identity is not None and identity.certificate is not None:
            answer.certificate = identity.certificate.to_bytes()
            answer.signature = identity.sign(batch_statement(place, answer.batch))
        return answer.SerializeToString()

    def destination(self) -> Destination | None:
        """Return the shuffler's place, where the node takes its messages itself."""
        return self._destination

    def upload(self) -> ShufflerUpload | None:
        """Give the node's messages, to be taken to the shuffler."""
        upload, self._upload = self._upload, None
        return upload

    def _forget(self) -> None:
        self._upload = None

    def _own_state(self) -> bytes:
        return b""

    def _resume_own(self, body: bytes) -> None:
        if body:
            raise MalformedMessageError("a shuffled session keeps nothing of its own")
