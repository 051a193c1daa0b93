"""What a server does with bad messages, and what it may see (rules 4, 6 and 7)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.secure_sums import NODE_BACKENDS as BACKENDS
from tests.support.secure_sums import (
    Cohort,
    asks,
    cohort_spec,
    forged,
    names,
    open_cohort,
)
from wallflower.protocol.errors import (
    MalformedMessageError,
    ProtocolError,
    RefusalError,
    ReplayedMessageError,
    WrongContextError,
)
from wallflower.protocol.secure_sum.context import LARGEST_MESSAGE, unwrap, wrap
from wallflower.protocol.secure_sum.session import Ask, Contribution, SecureSum, Void
from wallflower.protocol.wire import secure_sum_pb2 as wire
from wallflower.strategy.secure_sum import restore_session

STAGES = {
    "secagg-plus": ("advertise", "share", "mask", "unmask"),
    "sealed": ("seal", "open"),
}
EVERY_STAGE = [(backend, stage) for backend in BACKENDS for stage in STAGES[backend]]
BAD = "node-00002"  # where everybody is asked


def fresh(backend: str, nodes: int = 8, cohort_id: str = "cohort-1") -> Cohort:
    parties = names(nodes)
    return open_cohort(cohort_spec(backend, parties, cohort_id=cohort_id), parties)


def someone(*asks: Ask) -> str:
    """Name a party that is asked each time; a sum is not put to every member."""
    return min(set.intersection(*(set(ask.messages) for ask in asks)))


def expect_sum_without(
    cohort: Cohort, ask: Ask, bad: str, bad_body: bytes, error: type
) -> None:
    """One party sends `bad_body` in this stage; the rest carry on to an exact sum."""
    for party, body in ask.messages.items():
        answer = cohort.answer(party, body)
        if party == bad:
            with pytest.raises(error):
                cohort.server.receive(party, bad_body)
        else:
            cohort.server.receive(party, answer)
    step = cohort.server.advance()
    while isinstance(step, Ask):
        step = cohort.step(step, lambda s, p: p != bad, lambda s, p: p != bad)
    assert isinstance(step, SecureSum), step
    assert step.total == cohort.expected(step.survivors)


# -- rule 4 ------------------------------------------------------------------------


@pytest.mark.parametrize(("backend", "stage"), EVERY_STAGE)
def test_a_truncated_answer_costs_only_its_sender(backend: str, stage: str) -> None:
    cohort = fresh(backend)
    ask = asks(cohort, stage)
    bad = someone(ask)
    good = cohort.answer(bad, ask.messages[bad])
    expect_sum_without(cohort, ask, bad, good[: len(good) // 2], MalformedMessageError)


@pytest.mark.parametrize(("backend", "stage"), EVERY_STAGE)
def test_an_oversized_answer_costs_only_its_sender(backend: str, stage: str) -> None:
    cohort = fresh(backend)
    ask = asks(cohort, stage)
    huge = bytes(LARGEST_MESSAGE + 1)
    expect_sum_without(cohort, ask, someone(ask), huge, MalformedMessageError)


@pytest.mark.parametrize(("backend", "stage"), EVERY_STAGE)
def test_an_answer_of_another_cohort_costs_only_its_sender(
    backend: str, stage: str
) -> None:
    other = fresh(backend, cohort_id="cohort-2")
    cohort = fresh(backend)
    there, here = asks(other, stage), asks(cohort, stage)
    bad = someone(there, here)
    foreign = other.answer(bad, there.messages[bad])
    expect_sum_without(cohort, here, bad, foreign, WrongContextError)


@pytest.mark.parametrize(("backend", "stage"), EVERY_STAGE)
def test_another_partys_answer_costs_only_the_one_who_sent_it(
    backend: str, stage: str
) -> None:
    cohort = fresh(backend)
    ask = asks(cohort, stage)
    bad, victim = sorted(ask.messages)[:2]
    stolen = cohort.answer(victim, ask.messages[victim])
    expect_sum_without(cohort, ask, bad, stolen, WrongContextError)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_answer_of_an_earlier_stage_is_refused(backend: str) -> None:
    cohort = fresh(backend)
    first = cohort.server.start()
    assert isinstance(first, Ask)
    old = {party: cohort.answer(party, body) for party, body in first.messages.items()}
    for party, answer in old.items():
        cohort.server.receive(party, answer)
    step = cohort.server.advance()
    assert isinstance(step, Ask)
    bad = someone(step)
    expect_sum_without(cohort, step, bad, old[bad], WrongContextError)


@pytest.mark.parametrize(("backend", "stage"), EVERY_STAGE)
def test_a_replayed_answer_is_refused_and_the_first_stands(
    backend: str, stage: str
) -> None:
    cohort = fresh(backend)
    ask = asks(cohort, stage)
    for party, body in ask.messages.items():
        answer = cohort.answer(party, body)
        cohort.server.receive(party, answer)
        with pytest.raises(ReplayedMessageError):
            cohort.server.receive(party, answer)
    step = cohort.server.advance()
    while isinstance(step, Ask):
        step = cohort.step(step, lambda s, p: True, lambda s, p: True)
    assert isinstance(step, SecureSum)
    assert step.survivors == tuple(cohort.parties)
    assert step.total == cohort.expected(step.survivors)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(EVERY_STAGE), st.integers(0, 2**32), st.integers(0, 7))
def test_a_flipped_bit_in_an_answer_is_refused(
    where: tuple[str, str], offset: int, bit: int
) -> None:
    cohort = fresh(where[0], 4)
    ask = asks(cohort, where[1])
    party = someone(ask)
    answer = bytearray(cohort.answer(party, ask.messages[party]))
    answer[offset % len(answer)] ^= 1 << bit
    with pytest.raises(ProtocolError):
        cohort.server.receive(party, bytes(answer))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(EVERY_STAGE), st.integers(0, 2**32), st.integers(0, 7))
def test_a_flipped_bit_in_a_request_is_refused(
    where: tuple[str, str], offset: int, bit: int
) -> None:
    cohort = fresh(where[0], 4)
    ask = asks(cohort, where[1])
    party = someone(ask)
    body = bytearray(ask.messages[party])
    body[offset % len(body)] ^= 1 << bit
    with pytest.raises((ProtocolError, RefusalError)):
        cohort.clients[party].inspect(bytes(body)).answer(Contribution(1, 1))


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(EVERY_STAGE), st.binary(max_size=300))
def test_garbage_is_refused_by_both_sides(
    where: tuple[str, str], garbage: bytes
) -> None:
    cohort = fresh(where[0], 4)
    ask = asks(cohort, where[1])
    party = someone(ask)
    # Garbage inside a perfect envelope is garbage all the same.
    context = cohort.server.context  # type: ignore[attr-defined]
    stage = unwrap(ask.messages[party]).stage
    for up in (garbage, wrap(stage, context, party, "", garbage)):
        sessions = restore_session(cohort.server.snapshot())
        try:
            sessions.receive(party, up)
        except ProtocolError:
            continue
        # A few bytes may be a valid message; it is then taken for what it says.
        assert up != garbage
    try:
        cohort.clients[party].inspect(wrap(stage, context, "", party, garbage)).answer(
            Contribution(1, 1)
        )
    except (ProtocolError, RefusalError):
        return
    pytest.fail("a client answered garbage")


def test_a_party_outside_the_cohort_and_a_finished_session_are_refused() -> None:
    cohort = fresh("sealed")
    ask = asks(cohort, "open")
    with pytest.raises(WrongContextError, match="not in this cohort"):
        cohort.server.receive("stranger", b"")
    assert isinstance(cohort.step(ask, lambda s, p: True, lambda s, p: True), SecureSum)
    with pytest.raises(WrongContextError, match="over"):
        cohort.server.receive(BAD, b"")
    assert isinstance(cohort.server.advance(), Void)


def test_wrong_unmasking_shares_are_located_and_the_sum_stays_exact() -> None:
    cohort = fresh("secagg-plus", 8)
    ask = asks(cohort, "unmask")

    def spoil(answer: wire.UnmaskAnswer) -> None:
        answer.self_shares[0] = bytes(36)

    for party, body in ask.messages.items():
        answer = cohort.answer(party, body)
        if party == BAD:
            answer = forged(answer, wire.UnmaskAnswer, spoil)
        cohort.server.receive(party, answer)
    outcome = cohort.server.advance()
    assert isinstance(outcome, SecureSum)
    assert outcome.total == cohort.expected(outcome.survivors)
    assert cohort.server.lost == {BAD: "share-does-not-fit"}  # type: ignore[attr-defined]


# -- rule 7 ------------------------------------------------------------------------


def fields(message: Any) -> set[str]:
    return {descriptor.name for descriptor, _ in message.ListFields()}


def test_a_secagg_plus_server_sees_keys_ciphertexts_masked_values_and_shares() -> None:
    cohort = fresh("secagg-plus")
    step = cohort.server.start()
    seen: dict[str, set[str]] = {}
    while isinstance(step, Ask):
        for party, body in step.messages.items():
            answer = cohort.answer(party, body)
            kind: Any = {
                "advertise": wire.PartyKey,
                "share": wire.ShareAnswer,
                "mask": wire.MaskAnswer,
                "unmask": wire.UnmaskAnswer,
            }[step.stage]
            message = kind.FromString(unwrap(answer).payload)
            seen.setdefault(step.stage, set()).update(fields(message))
            cohort.server.receive(party, answer)
        step = cohort.server.advance()
    assert seen == {
        "advertise": {"key", "mask_key"},
        "share": {"salt", "users", "sealed"},
        "mask": {"masked"},
        "unmask": {"self_shares"},
    }


# -- construction ------------------------------------------------------------------


def test_contributions_below_the_quorum_are_void_before_anybody_opens() -> None:
    parties = names(8)
    cohort = open_cohort(cohort_spec("sealed", parties, quorum=7), parties)
    late = {("seal", "node-00000"), ("seal", "node-00001")}
    end = cohort.run(up=lambda stage, party: (stage, party) not in late)
    assert isinstance(end, Void)
    assert end.code == "quorum-not-met"
