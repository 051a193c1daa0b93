"""`shuffle`, a node's side: seal every message to the server, all to the shuffler.

The node hands its messages to the server, which carries them to the shuffler and cannot
open them: they are sealed to the shuffler's key, which the node's users have pinned.
The shuffler cannot open the single messages inside. See docs/shuffling.md.
"""

from __future__ import annotations

import hashlib

from wallflower.clients.secure_sum.machine import ClientMachine
from wallflower.protocol.errors import InputError, MalformedMessageError, RefusalError
from wallflower.protocol.noise.bits import OsBits
from wallflower.protocol.secure_sum.backends import SHUFFLE
from wallflower.protocol.secure_sum.committee_seals import MOST_USERS
from wallflower.protocol.secure_sum.envelope import parse
from wallflower.protocol.secure_sum.session import Contribution
from wallflower.protocol.secure_sum.shuffle.plan import (
    ShufflePlan,
    batch_info,
    batch_statement,
)
from wallflower.protocol.secure_sum.shuffle.seals import HYBRID, SealingKey, seal_info
from wallflower.protocol.secure_sum.stages import SUBMIT, stages_of
from wallflower.protocol.wire.secure_sum_pb2 import Envelope
from wallflower.protocol.wire.shuffle_pb2 import SubmitAnswer, SubmitRequest


class ShuffleClient(ClientMachine):
    """A contributor; nobody else is needed."""

    # The other stage is the shuffler's, and no node's.
    stages = {SUBMIT: stages_of(SHUFFLE)[SUBMIT]}  # noqa: RUF012

    def _inspect(self, envelope: Envelope) -> None:
        request = parse(SubmitRequest, envelope.payload)
        self.check_roster(request.roster, envelope)
        pinned = self.setting.limits.shufflers
        name = hashlib.sha256(request.shuffler_key).hexdigest()
        if name not in pinned:
            raise RefusalError(
                "shuffler-not-known",
                f"the shuffler {name[:16]} is not among the {len(pinned)} agreed to",
            )
        self._keys(request)

    def _keys(self, request: SubmitRequest) -> tuple[SealingKey, SealingKey]:
        plan = ShufflePlan.of(self.setting.spec, self.roster_size)
        single = SealingKey(plan.seal, request.sealing_key)
        return single, SealingKey(HYBRID, request.shuffler_key)

    def _answer(self, envelope: Envelope, contribution: Contribution | None) -> bytes:
        assert contribution is not None
        setting, users = self.setting, contribution.users
        if users > MOST_USERS:
            raise InputError("users", users, f"at most {MOST_USERS}")
        if self.roster is not None and users > self.roster[setting.party]:
            raise RefusalError("too-many-users", "more users than were invited")
        request = parse(SubmitRequest, envelope.payload)
        plan = ShufflePlan.of(setting.spec, self.roster_size)
        single, together = self._keys(request)
        info = seal_info(self.context, request.shuffler_key)
        messages = plan.write(contribution.value, OsBits())
        place = batch_info(self.context, setting.party, users)
        sealed = together.seal(
            b"".join(single.seal(message, info) for message in messages), place
        )
        answer = SubmitAnswer(users=users, sealed=sealed)
        identity = setting.identity
        if identity is not None and identity.certificate is not None:
            answer.certificate = identity.certificate.to_bytes()
            answer.signature = identity.sign(batch_statement(place, sealed))
        return answer.SerializeToString()

    def _forget(self) -> None:
        """Nothing is held: one message, one answer."""

    def _own_state(self) -> bytes:
        return b""

    def _resume_own(self, body: bytes) -> None:
        if body:
            raise MalformedMessageError("a shuffled session keeps nothing of its own")
