"""What every key and signature of a cohort is bound to.

The *context* is a digest of the whole public description of a cohort and of its roster.
It stands in every envelope, in every HKDF `info` and under every signature, so that
nothing said in one cohort means anything in another.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TypeVar, cast

from google.protobuf.message import DecodeError, Message

from wallflower.protocol.errors import MalformedMessageError, WrongContextError
from wallflower.protocol.identity.canonical import check_name, digest
from wallflower.protocol.wire import cohort_pb2, secure_sum_pb2
from wallflower.protocol.wire.secure_sum_pb2 import Envelope, Stage

# --- What is around every message of a secure sum, and the first checks on it.


LARGEST_MESSAGE = 64 * 2**20
Payload = TypeVar("Payload", bound=Message)


def wrap(
    stage: int, context: bytes, sender: str, receiver: str, payload: bytes
) -> bytes:
    """Wrap a payload in its envelope."""
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


_LIST = json.JSONEncoder(separators=(",", ":")).encode


def roster_bytes(parties: Mapping[str, int]) -> bytes:
    """Serialize a roster; the digest is taken over exactly these bytes."""
    order = sorted(parties)
    return secure_sum_pb2.Roster(
        parties=order, users=[parties[party] for party in order]
    ).SerializeToString(deterministic=True)


def roster_digest(body: bytes) -> bytes:
    """Digest of a serialized roster."""
    return hashlib.sha256(b"wallflower/v1/roster" + body).digest()


def read_roster(body: bytes) -> dict[str, int]:
    """Parse a roster; parties must ascend strictly, so none is listed twice."""
    try:
        message = secure_sum_pb2.Roster.FromString(body)
    except DecodeError:
        raise MalformedMessageError("the roster is garbled") from None
    parties, users = list(message.parties), list(message.users)
    if len(parties) != len(users):
        raise MalformedMessageError("the roster is incomplete")
    for party in parties:
        check_name(party)
    if parties != sorted(set(parties)):
        raise MalformedMessageError("the roster is unsorted or names a party twice")
    return dict(zip(parties, users, strict=True))


def spec_digest(spec: cohort_pb2.CohortSpec) -> bytes:
    """Digest of every field of a cohort's public description.

    Written as a JSON list of names and integers: unambiguous, and the same anywhere.
    """
    threat = spec.threat
    fields: list[str | int] = [spec.run_id, spec.cohort_id, spec.arm_name]
    fields += (spec.mechanism, spec.backend)
    fields += (spec.batch, spec.arm, spec.cohort_size, spec.honest_floor)
    fields += (spec.quorum, spec.modulus, int(threat.malicious_server))
    fields.append(int(spec.proved_inputs))
    measured = spec.reward_range
    fields += (measured.low, measured.high, measured.unit, spec.window_ms)
    fields.append(spec.admission)
    for part in (
        spec.epsilon,
        spec.scale,
        spec.wrap_probability,
        threat.corrupt,
        threat.dropout,
    ):
        fields += (part.numerator, part.denominator)
    return hashlib.sha256(b"wallflower/v1/cohort" + _LIST(fields).encode()).digest()


def context_of(spec: cohort_pb2.CohortSpec, roster: bytes, size: int) -> bytes:
    """Bind a cohort's description to its roster, by digest and size.

    Nodes of one process that ask about the same description share the answer.
    """
    return _context_of(spec.SerializeToString(deterministic=True), roster, size)


@lru_cache(maxsize=256)
def _context_of(body: bytes, roster: bytes, size: int) -> bytes:
    spec = cohort_pb2.CohortSpec.FromString(body)
    return digest("wallflower/v1/context", spec_digest(spec), roster, size)


def draw_order(context: bytes, parties: Sequence[str]) -> list[str]:
    """Order parties by hash: who sits on a committee, how a graph is shuffled.

    Nobody picks: the order follows from the roster and the cohort's description. What
    a server gains by trying many descriptions is in `threat.GRINDING_BITS`.
    """
    prefix = b"wallflower/v1/draw" + context
    return sorted(
        parties, key=lambda party: hashlib.sha256(prefix + party.encode()).digest()
    )
