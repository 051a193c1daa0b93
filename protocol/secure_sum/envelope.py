"""What is around every message of a secure sum, and the first checks on it."""

from __future__ import annotations

import hashlib
from typing import TypeVar, cast

from google.protobuf.message import DecodeError, Message

from wallflower.protocol.errors import MalformedMessageError, WrongContextError
from wallflower.protocol.wire.secure_sum_pb2 import Envelope, Stage

LARGEST_MESSAGE = 64 * 2**20
Payload = TypeVar("Payload", bound=Message)


def wrap(
    stage: int, context: bytes, sender: str, receiver: str, payload: bytes
) -> bytes:
    """Put a payload into its envelope."""
    return Envelope(
        stage=cast(Stage, stage),
        context=context,
        sender=sender,
        receiver=receiver,
        payload=payload,
        checksum=_checksum(stage, context, sender, receiver, payload),
    ).SerializeToString()


def unwrap(body: bytes, *, largest: int = LARGEST_MESSAGE) -> Envelope:
    """Open an envelope: refuses what is oversized, truncated, garbled or altered."""
    if len(body) > largest:
        raise MalformedMessageError(
            f"a message of {len(body)} bytes; at most {largest} are read"
        )
    try:
        envelope = Envelope.FromString(body)
    except DecodeError:
        raise MalformedMessageError("a message is not an envelope") from None
    expected = _checksum(
        envelope.stage,
        envelope.context,
        envelope.sender,
        envelope.receiver,
        envelope.payload,
    )
    if envelope.checksum != expected:
        raise MalformedMessageError("a message was altered or cut short on its way")
    return envelope


def check_place(
    envelope: Envelope, *, stage: int, context: bytes, sender: str, receiver: str
) -> None:
    """Raise WrongContextError unless the envelope belongs exactly here."""
    if envelope.context != context:
        raise WrongContextError("a message of another cohort or roster")
    if envelope.stage != stage:
        raise WrongContextError(
            f"a message of stage {envelope.stage} where {stage} is due"
        )
    if envelope.sender != sender or envelope.receiver != receiver:
        raise WrongContextError("a message between other parties")


def parse(kind: type[Payload], payload: bytes) -> Payload:
    """Parse a payload, or raise MalformedMessageError."""
    try:
        return kind.FromString(payload)
    except DecodeError:
        raise MalformedMessageError(f"a garbled {kind.__name__}") from None


def _checksum(
    stage: int, context: bytes, sender: str, receiver: str, payload: bytes
) -> bytes:
    # Lengths first, so that the concatenation is unambiguous.
    header = f"{stage},{len(context)},{len(sender)},{len(receiver)},{sender}{receiver}"
    return hashlib.sha256(header.encode() + context + payload).digest()[:8]
