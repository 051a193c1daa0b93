"""`shuffle`, a node's side: encrypt every message to the server, all to the shuffler.

The server carries the node's messages and cannot decrypt them: they are encrypted to
the shuffler's key, which the node's users have pinned. The shuffler cannot decrypt the
single messages inside. See docs/shuffling.md.
"""

from __future__ import annotations

import hashlib

from wallflower.clients.secure_sum.machine import ClientMachine, Reply
from wallflower.protocol.errors import MalformedMessageError, RefusalError
from wallflower.protocol.noise.bits import OsBits
from wallflower.protocol.refusals import RefusalCode
from wallflower.protocol.secure_sum.backends import SHUFFLE, SUBMIT, stages_of
from wallflower.protocol.secure_sum.context import parse
from wallflower.protocol.secure_sum.session import Contribution
from wallflower.protocol.secure_sum.shuffle.plan import (
    ShufflePlan,
    are_names_told,
    batch_info,
    batch_statement,
    unnamed_info,
)
from wallflower.protocol.secure_sum.shuffle.seals import HYBRID, SealingKey, seal_info
from wallflower.protocol.wire.secure_sum_pb2 import Envelope
from wallflower.protocol.wire.shuffle_pb2 import SubmitAnswer, SubmitRequest


class ShuffleClient(ClientMachine):
    """A contributor; nobody else is needed."""

    # The other stage is the shuffler's, and no node's.
    stages = {SUBMIT: stages_of(SHUFFLE)[SUBMIT]}  # noqa: RUF012

    def _inspect(self, envelope: Envelope) -> Reply:
        request = parse(SubmitRequest, envelope.payload)
        self.check_roster(request.roster, envelope)
        self._check_pinned(request.shuffler_key)
        self._keys(request)

        def reply(value: Contribution | None) -> bytes:
            assert value is not None
            return self._submit(request, value)

        return reply

    def _check_pinned(self, shuffler_key: bytes) -> None:
        """Raise RefusalError if the users have not agreed to this shuffler."""
        pinned = self.setting.limits.shufflers
        name = hashlib.sha256(shuffler_key).hexdigest()
        if name not in pinned:
            raise RefusalError(
                RefusalCode.SHUFFLER_NOT_KNOWN,
                f"the shuffler {name[:16]} is not among the {len(pinned)} agreed to",
            )

    def _keys(self, request: SubmitRequest) -> tuple[SealingKey, SealingKey]:
        plan = ShufflePlan.of(self.setting.spec, self.roster_size)
        single = SealingKey(plan.seal, request.sealing_key)
        return single, SealingKey(HYBRID, request.shuffler_key)

    def _submit(self, request: SubmitRequest, contribution: Contribution) -> bytes:
        setting, users = self.setting, contribution.users
        plan = ShufflePlan.of(setting.spec, self.roster_size)
        single, together = self._keys(request)
        info = seal_info(self.context, request.shuffler_key)
        messages = plan.write(contribution.value, OsBits())
        key, named = request.sealing_key, are_names_told(setting.spec)
        place = unnamed_info(self.context, key)
        if named:
            place = batch_info(self.context, setting.party, users, key)
        answer = SubmitAnswer(users=users)
        batch = b"".join(single.seal(message, info) for message in messages)
        answer.batch = together.seal(batch, place)
        identity = setting.identity
        if named and identity is not None and identity.certificate is not None:
            answer.certificate = identity.certificate.to_bytes()
            answer.signature = identity.sign(batch_statement(place, answer.batch))
        return answer.SerializeToString()

    def _forget(self) -> None:
        """Do nothing: no secret outlives the answer."""

    def _own_state(self) -> bytes:
        return b""

    def _resume_own(self, body: bytes) -> None:
        if body:
            raise MalformedMessageError("a shuffled session keeps nothing of its own")
