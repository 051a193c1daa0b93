"""A bad key, or more users than certified, costs its owner the cohort and nobody else.

The server looks before anybody spends: whoever is asked for a contribution has peers
with whom it can agree and whom every member will accept.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.secure_sums import (
    Cohort,
    Enrolment,
    cohort_spec,
    names,
    open_cohort,
)
from wallflower.protocol.errors import ProtocolError, UnusableKeyError
from wallflower.protocol.secure_sum.backends import SECAGG_PLUS
from wallflower.protocol.secure_sum.context import unwrap, wrap
from wallflower.protocol.secure_sum.keys import check_public, signed
from wallflower.protocol.secure_sum.session import Ask, KeyReady, SecureSum, Void
from wallflower.protocol.wire import secure_sum_pb2 as wire

BAD, VICTIM = "node-00003", "node-00001"
Forge = Callable[[wire.PartyKey, dict[str, wire.PartyKey]], None]


def zero(key: wire.PartyKey, shown: dict[str, wire.PartyKey]) -> None:
    key.key = bytes(32)


def of_order_eight(key: wire.PartyKey, shown: dict[str, wire.PartyKey]) -> None:
    key.key = bytes.fromhex(
        "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b880"
    )


def copied(key: wire.PartyKey, shown: dict[str, wire.PartyKey]) -> None:
    key.key = shown[VICTIM].key


def short(key: wire.PartyKey, shown: dict[str, wire.PartyKey]) -> None:
    key.key = b"\x07" * 31


def zero_mask(key: wire.PartyKey, shown: dict[str, wire.PartyKey]) -> None:
    key.mask_key = bytes(32)


def run(
    cohort: Cohort, enrolment: Enrolment | None, forge: Forge
) -> tuple[SecureSum | Void, dict[str, str], dict[str, str]]:
    """Run a cohort in which one node's first answer has another key.

    Gives the outcome, why the server refused whom, and how honest nodes refused.
    """
    spec, shown = cohort.spec, dict[str, wire.PartyKey]()
    refused: dict[str, str] = {}
    step = cohort.server.start()
    while isinstance(step, Ask):
        for party in sorted(step.messages):
            try:
                answer = cohort.answer(party, step.messages[party])
            except ProtocolError as error:
                cohort.refusals[party] = error.code
                cohort.server.lose(party, error.code)
                continue
            if step.stage == "advertise":
                envelope = unwrap(answer, largest=10**6)
                key = shown[party] = wire.PartyKey.FromString(envelope.payload)
                if party == BAD:
                    forge(key, shown)
                    identity = enrolment.identity(party) if enrolment else None
                    signed(key, spec.run_id, spec.cohort_id, party, identity)
                    answer = wrap(
                        envelope.stage,
                        envelope.context,
                        party,
                        "",
                        key.SerializeToString(),
                    )
            try:
                cohort.server.receive(party, answer)
            except ProtocolError as error:
                refused[party] = error.code
        step = cohort.server.advance()
    assert not isinstance(step, KeyReady)
    return step, refused, cohort.refusals


@pytest.mark.parametrize("enrolled", [True, False])
@pytest.mark.parametrize(
    ("forge", "code"),
    [
        (zero, "unusable-key"),
        (of_order_eight, "unusable-key"),
        (copied, "unusable-key"),
        (short, "malformed-message"),
        (zero_mask, "unusable-key"),
    ],
)
def test_a_bad_key_leaves_its_owner_out_by_name_before_anybody_contributes(
    forge: Forge, code: str, enrolled: bool
) -> None:
    enrolment = Enrolment() if enrolled else None
    parties = names(8)
    spec = cohort_spec(SECAGG_PLUS, parties)
    cohort = open_cohort(spec, parties, enrolment=enrolment)
    outcome, refused, honest_refusals = run(cohort, enrolment, forge)
    assert refused == {BAD: code}
    assert honest_refusals == {}
    assert isinstance(outcome, SecureSum)
    assert VICTIM in outcome.survivors
    assert outcome.total == cohort.expected(outcome.survivors)


def test_a_node_invited_beyond_its_certificate_is_left_out_before_others_pay() -> None:
    enrolment = Enrolment()
    enrolment.identity(BAD, capacity=3)
    parties = dict.fromkeys(names(8), 5)
    cohort = open_cohort(
        cohort_spec(SECAGG_PLUS, parties, quorum=10), parties, enrolment=enrolment
    )
    outcome, refused, honest_refusals = run(cohort, enrolment, lambda key, shown: None)
    assert refused[BAD] == "beyond-capacity"
    assert honest_refusals == {}
    assert isinstance(outcome, SecureSum)
    assert VICTIM in outcome.survivors


@pytest.mark.parametrize("high_bit", [0, 0x80])
@pytest.mark.parametrize("point", [0, 1, 2**255 - 20, 2**255 - 19, 2**255 - 18])
def test_every_way_to_write_a_point_of_small_order_is_refused(
    point: int, high_bit: int
) -> None:
    raw = bytearray(point.to_bytes(32, "little"))
    raw[-1] |= high_bit
    with pytest.raises(UnusableKeyError):
        check_public(bytes(raw))
