"""What nodes brought: in memory, under tickets, without names, addresses or times."""

from __future__ import annotations

import hmac
import threading
from dataclasses import dataclass, field, replace

from wallflower.protocol.errors import (
    AuthenticationError,
    MalformedMessageError,
    RefusalError,
    ReplayedMessageError,
    WrongContextError,
)
from wallflower.protocol.secure_sum.context import DIGEST_BYTES
from wallflower.protocol.secure_sum.envelope import parse
from wallflower.protocol.secure_sum.shuffle.deposits import (
    TICKET_BYTES,
    admission,
    deposit_info,
    receipt,
    reference,
)
from wallflower.protocol.secure_sum.shuffle.seals import OpeningKey
from wallflower.protocol.wire.shuffle_pb2 import DepositRequest
from wallflower.shuffler.given import Given

FULL = "full"


@dataclass(frozen=True, slots=True)
class _Cohort:
    """What deposits of one cohort are held against, and the messages by ticket."""

    admission: bytes
    info: bytes
    messages: dict[bytes, bytes] = field(default_factory=dict)


class Deposits:
    """Holds messages until their cohort is released, or destroys them.

    Parameters
    ----------
    key : OpeningKey
        To which nodes seal their deposits.
    given : Given
        Cohorts that are over: nothing is taken for them any more.
    token : bytes
        The operator's; admissions are made from it.
    most_bytes : int
        Held at the same time, of all cohorts.
    most_nodes : int
        Deposits of one cohort.
    """

    def __init__(
        self,
        key: OpeningKey,
        given: Given,
        token: bytes,
        most_bytes: int = 1 << 30,
        most_nodes: int = 1 << 17,
    ) -> None:
        self._key = key
        self._given = given
        self._token = token
        self._most_bytes = most_bytes
        self._most_nodes = most_nodes
        self._mutex = threading.Lock()
        self._held: dict[bytes, _Cohort] = {}
        self.held_bytes = 0

    def put(self, body: bytes) -> tuple[bytes, bytes | None]:
        """Take a deposit; give the receipt, and the cohort if this is its first.

        The same deposit again has the same receipt and counts once.
        """
        request = parse(DepositRequest, body)
        context = request.context
        cohort = self._held.get(context) or _Cohort(
            admission(self._token, context), deposit_info(context)
        )
        if len(context) != DIGEST_BYTES or not hmac.compare_digest(
            request.admission, cohort.admission
        ):
            raise AuthenticationError("a deposit without admission")
        self._require_open(context)  # before the costly opening, and again below
        opened = self._key.open(request.sealed, cohort.info)
        if len(opened) <= TICKET_BYTES:
            raise MalformedMessageError("a deposit of nothing")
        ticket, messages = opened[:TICKET_BYTES], opened[TICKET_BYTES:]
        with self._mutex:
            self._require_open(context)
            first = context not in self._held
            # Never one that was handed out in the meantime.
            cohort = self._held.get(context) or replace(cohort, messages={})
            held = cohort.messages
            if ticket in held:
                if held[ticket] != messages:
                    raise WrongContextError("another deposit under a ticket")
                return receipt(ticket), None
            if (
                len(held) >= self._most_nodes
                or self.held_bytes + len(messages) > self._most_bytes
            ):
                raise RefusalError(FULL, "no more deposits are held")
            held[ticket] = messages
            self._held[context] = cohort
            self.held_bytes += len(messages)
        return receipt(ticket), context if first else None

    def _require_open(self, context: bytes) -> None:
        """Refuse a cohort that is over; nothing of such a one is held."""
        if context not in self._held and self._given.over(context):
            raise ReplayedMessageError("this cohort is over")

    def take(self, context: bytes, sealing_key: bytes) -> dict[bytes, bytes]:
        """Hand out all of a cohort, each under what the server knows it by, once."""
        return {
            reference(ticket, context, sealing_key): messages
            for ticket, messages in self.end(context).items()
        }

    def end(self, context: bytes) -> dict[bytes, bytes]:
        """Keep nothing of a cohort any more; give what lay there."""
        with self._mutex:
            ended = self._held.pop(context, None)
            left = {} if ended is None else ended.messages
            self.held_bytes -= sum(map(len, left.values()))
            return left

    def give_up(self, context: bytes) -> None:
        """Let a cohort that was never released be over, and destroy it."""
        self._given.claim(context)
        self.end(context)
