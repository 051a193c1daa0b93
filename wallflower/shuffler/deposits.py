"""What nodes brought: in memory, under tickets, without names, addresses or times."""

from __future__ import annotations

import hmac
import threading
from collections import Counter
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
from wallflower.protocol.secure_sum.shuffle.seals import (
    HYBRID,
    OpeningKey,
    sealed_bytes,
)
from wallflower.protocol.wire.shuffle_pb2 import DepositHandshake, DepositRequest
from wallflower.shuffler.given import Given

FULL = "full"


@dataclass(frozen=True, slots=True)
class _Cohort:
    """What deposits of one cohort are held against, and the messages by ticket."""

    greeting: bytes
    run: bytes
    nodes: int
    batch_bytes: int
    info: bytes
    messages: dict[bytes, bytes] = field(default_factory=dict)


class Deposits:
    """Holds messages until their cohort is released, or destroys them.

    A cohort has room for one deposit a node, of the length that all have, as its
    admission says. A run has three quarters of the whole: whatever its nodes bring,
    there is room for those of other runs.

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
        self._most_of_run = most_bytes * 3 // 4
        self._most_nodes = most_nodes
        self._mutex = threading.Lock()
        self._held: dict[bytes, _Cohort] = {}
        self._of_run: Counter[bytes] = Counter()
        self.held_bytes = 0

    def admit(self, raw: bytes) -> bytes:
        """Check the headers of a deposit, before it is read; give its cohort."""
        greeting = parse(DepositHandshake, raw)
        context = greeting.context
        known = self._held.get(context)
        if known is None or known.greeting != raw:
            fits = hmac.compare_digest(
                greeting.admission, admission(self._token, greeting)
            )
            if len(context) != DIGEST_BYTES or not fits:
                raise AuthenticationError("a deposit without admission")
        self._require_open(context)
        return context

    def put(self, raw: bytes, body: bytes) -> tuple[bytes, bytes | None]:
        """Take a deposit; give the receipt, and the cohort if this is its first.

        The same deposit again has the same receipt and counts once.
        """
        context = self.admit(raw)  # before the costly opening, and again below
        cohort = self._held.get(context) or _cohort_of(raw)
        sealed = parse(DepositRequest, body).sealed
        size = TICKET_BYTES + cohort.batch_bytes
        if not cohort.batch_bytes or len(sealed) != sealed_bytes(HYBRID, size):
            raise MalformedMessageError("a deposit of another length")
        opened = self._key.open(sealed, cohort.info)
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
            self._require_room(cohort)
            held[ticket] = messages
            self._held[context] = cohort
            self._count(cohort.run, len(messages))
        return receipt(ticket), context if first else None

    def _require_room(self, cohort: _Cohort) -> None:
        size = cohort.batch_bytes
        if (
            len(cohort.messages) >= min(cohort.nodes, self._most_nodes)
            or self.held_bytes + size > self._most_bytes
            or self._of_run[cohort.run] + size > self._most_of_run
        ):
            raise RefusalError(FULL, "no more deposits are held")

    def _count(self, run: bytes, size: int) -> None:
        self.held_bytes += size
        self._of_run[run] += size
        if not self._of_run[run]:
            del self._of_run[run]

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
            if ended is None:
                return {}
            self._count(ended.run, -sum(map(len, ended.messages.values())))
            return ended.messages

    def give_up(self, context: bytes) -> None:
        """Let a cohort that was never released be over, and destroy it."""
        self._given.claim(context)
        self.end(context)


def _cohort_of(raw: bytes) -> _Cohort:
    said = parse(DepositHandshake, raw)
    info = deposit_info(said.context)
    return _Cohort(raw, said.run, said.nodes, said.batch_bytes, info)
