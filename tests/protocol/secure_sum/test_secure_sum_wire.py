"""Golden bytes: what goes over the wire must not change by accident."""

from __future__ import annotations

import pytest
from google.protobuf.message import Message

from wallflower.protocol.errors import MalformedMessageError, WrongContextError
from wallflower.protocol.identity.canonical import canonical
from wallflower.protocol.secure_sum.context import (
    check_place,
    context_of,
    parse,
    read_roster,
    roster_bytes,
    roster_digest,
    spec_digest,
    unwrap,
    wrap,
)
from wallflower.protocol.wire import secure_sum_pb2 as wire
from wallflower.protocol.wire.cohort_pb2 import (
    CohortSpec,
    Rational,
    RewardRange,
    Threat,
)

SPEC = CohortSpec(
    run_id="run-1",
    batch=2,
    arm=3,
    arm_name="blue",
    cohort_id="cohort-4",
    mechanism="dist-dp",
    epsilon=Rational(numerator=1, denominator=2),
    scale=Rational(numerator=10, denominator=1),
    wrap_probability=Rational(numerator=1, denominator=1000),
    cohort_size=20,
    honest_floor=10,
    quorum=15,
    backend="sealed",
    modulus=1009,
    threat=Threat(
        corrupt=Rational(numerator=1, denominator=10),
        dropout=Rational(numerator=1, denominator=20),
        malicious_server=True,
    ),
    proved_inputs=True,
    reward_range=RewardRange(low="0", high="200", unit="€"),
    window_ms=60_000,
    admission="invited",
)
NOTE = wire.RosterNote(digest=b"\x01" * 4, size=3, roster=b"r")
KEY = wire.PartyKey(key=b"\x02" * 4, certificate=b"c", signature=b"s", mask_key=b"m")
SURVIVORS = wire.SurvivorSet(parties=2, users=5, roster=b"r")
GOLDEN: list[tuple[Message, str]] = [
    (wire.Roster(parties=["a", "b"], users=[1, 300]), "0a01610a01621203 01ac02"),
    (NOTE, "0a04010101011003 1a0172"),
    (KEY, "0a0402020202 1a0163 220173 2a016d"),
    (wire.AdvertiseRequest(invited=NOTE), "0a0b 0a04010101011003 1a0172"),
    (
        wire.ShareRequest(
            roster=NOTE,
            neighbours=["a"],
            keys=[wire.PartyKey(key=b"k")],
            own_mask_key=b"o",
        ),
        "0a0b 0a04010101011003 1a0172 120161 1a030a016b 22016f",
    ),
    (wire.ShareAnswer(salt=b"s", users=1, sealed=b"x"), "0a0173 1001 1a0178"),
    (SURVIVORS, "0802 1005 1a0172"),
    (
        wire.MaskRequest(
            sharers=SURVIVORS, senders=[0, 1], salts=b"s", users=[2, 3], sealed=b"x"
        ),
        "0a07 0802 1005 1a0172 12020001 1a0173 22020203 2a0178",
    ),
    (wire.MaskAnswer(masked=300), "08ac02"),
    (wire.ConfirmRequest(survivors=SURVIVORS), "0a07 0802 1005 1a0172"),
    (wire.ConfirmAnswer(signature=b"s"), "0a0173"),
    (
        wire.UnmaskRequest(
            survivors=SURVIVORS,
            present=[0],
            dropped=[1],
            confirmed=[0],
            signatures=[b"s"],
        ),
        "0a07 0802 1005 1a0172 120100 1a0101 220100 2a0173",
    ),
    (wire.UnmaskAnswer(self_shares=[b"a"], mask_shares=[b"b"]), "0a0161 120162"),
]


@pytest.mark.parametrize(
    ("message", "expected"), GOLDEN, ids=[type(m).__name__ for m, _ in GOLDEN]
)
def test_messages_have_their_golden_bytes(message: Message, expected: str) -> None:
    assert message.SerializeToString(deterministic=True) == bytes.fromhex(expected)


def test_an_envelope_has_its_golden_bytes() -> None:
    body = wrap(wire.STAGE_ADVERTISE, b"\x05" * 4, "a", "", b"payload")
    assert body.hex() == ENVELOPE
    assert unwrap(body).payload == b"payload"


ENVELOPE = "08041204050505051a01612a077061796c6f61643208a191e03dcf457b49"
SPEC_DIGEST = "f5d4a44d14faadc1b275e16c1183c3a25cb0899eaa4d810b2e64dcc457cfa290"
CONTEXT = "efc9d693b6a72d676aefb2b226a170eeb4c03ba8687dc6cf8352020bdf2c4b9b"


def test_digests_of_spec_and_context_are_golden() -> None:
    assert spec_digest(SPEC).hex() == SPEC_DIGEST
    roster = roster_digest(roster_bytes({"b": 2, "a": 1}))
    assert context_of(SPEC, roster, 2).hex() == CONTEXT


@pytest.mark.parametrize("field", [d.name for d in CohortSpec.DESCRIPTOR.fields])
def test_every_field_of_a_cohort_is_in_its_digest(field: str) -> None:
    assert field in {descriptor.name for descriptor, _ in SPEC.ListFields()}
    changed = CohortSpec()
    changed.CopyFrom(SPEC)
    changed.ClearField(field)
    assert spec_digest(changed) != spec_digest(SPEC)


def test_the_canonical_form_tells_all_sequences_apart() -> None:
    forms = [("ab", "c"), ("a", "bc"), ("abc",), (b"ab", "c"), ("1",), (1,), ("1", "")]
    assert len({canonical(*form) for form in forms}) == len(forms)


@pytest.mark.parametrize(
    "roster",
    [
        wire.Roster(parties=["b", "a"], users=[1, 1]),
        wire.Roster(parties=["a", "a"], users=[1, 1]),
        wire.Roster(parties=["a", "b"], users=[1]),
    ],
)
def test_an_unsorted_repeated_or_incomplete_roster_is_refused(
    roster: wire.Roster,
) -> None:
    with pytest.raises(MalformedMessageError):
        read_roster(roster.SerializeToString())


def test_envelopes_out_of_place_are_refused() -> None:
    place = {"stage": 3, "context": b"c", "sender": "a", "receiver": ""}
    envelope = unwrap(wrap(3, b"c", "a", "", b"p"))
    check_place(envelope, stage=3, context=b"c", sender="a", receiver="")
    for change in ({"stage": 2}, {"context": b"d"}, {"sender": "b"}, {"receiver": "b"}):
        with pytest.raises(WrongContextError):
            check_place(envelope, **{**place, **change})  # type: ignore[arg-type]


def test_oversized_and_garbled_messages_are_refused() -> None:
    body = wrap(3, b"c", "a", "", b"p" * 100)
    with pytest.raises(MalformedMessageError, match="at most 50"):
        unwrap(body, largest=50)
    with pytest.raises(MalformedMessageError, match="altered or cut short"):
        unwrap(wire.Envelope(payload=b"p").SerializeToString())
    with pytest.raises(MalformedMessageError, match="not an envelope"):
        unwrap(b"\xff\xff")
    with pytest.raises(MalformedMessageError, match="garbled MaskAnswer"):
        parse(wire.MaskAnswer, b"\xff")
