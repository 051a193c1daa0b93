"""What a contributor may send, with and without proofs of range."""

from __future__ import annotations

import pytest

from tests.strategy.secure_sum.test_sealed_server import (
    HONEST,
    LYING,
    Change,
    Run,
    named,
    play,
)
from tests.support.secure_sums import (
    Cohort,
    asks,
    forged,
)
from wallflower.protocol.errors import ProtocolError
from wallflower.protocol.secure_sum.context import unwrap, wrap
from wallflower.protocol.secure_sum.sealed import ranges
from wallflower.protocol.secure_sum.sealed.cipher import (
    Ciphertext,
    encrypt,
    prove_sender,
    sealed_context,
    statement,
)
from wallflower.protocol.secure_sum.sealed.group import (
    KeyPair,
    Point,
    times,
)
from wallflower.protocol.secure_sum.session import (
    OUT,
    Finding,
    SecureSum,
    Void,
)
from wallflower.protocol.secure_sum.threat import Threat
from wallflower.protocol.wire import sealed_pb2 as wire
from wallflower.strategy.secure_sum import restore_session
from wallflower.strategy.secure_sum import sealed as sealed_server


def test_a_contribution_of_another_cohort_is_refused() -> None:
    run = Run(8)
    old, new = run.cohort("old"), run.cohort("new")
    party = "node-00003"
    stale = unwrap(old.answer(party, asks(old, "seal").messages[party]))
    ask = asks(new, "seal")
    context = new.server.context  # type: ignore[attr-defined]
    with pytest.raises(ProtocolError) as caught:
        new.server.receive(party, wrap(stale.stage, context, party, "", stale.payload))
    assert caught.value.code == "not-proved"
    assert party in ask.messages


@pytest.mark.parametrize("threat", [HONEST, LYING])
def test_somebody_elses_ciphertext_does_not_count_twice(threat: Threat) -> None:
    """Copied as it is, or re-randomised, with whatever proof the copier can make."""
    run = Run(8, threat)
    victim, thief = "node-00001", "node-00005"
    for rerandomised in (False, True):
        cohort = run.cohort(f"cohort-{rerandomised}")
        ask = asks(cohort, "seal")
        theirs = wire.SealAnswer.FromString(
            unwrap(cohort.answer(victim, ask.messages[victim])).payload
        )
        public = run.ring.dealt.public  # type: ignore[union-attr]
        extra = KeyPair.generate()
        one, two = Point.parse(theirs.one), Point.parse(theirs.two)
        if rerandomised:
            one, two = one + extra.point, two + times(public, extra.secret)

        def steal(
            answer: wire.SealAnswer,
            one: Point = one,
            two: Point = two,
            proof: bytes = theirs.proof,
            bound: bytes = cohort.server._bound,  # type: ignore[attr-defined]
        ) -> None:
            answer.one, answer.two, answer.proof = bytes(one), bytes(two), proof
            said = statement(bound, thief, 1, answer.one, answer.two)
            if run.enrolment is not None:
                answer.signature = run.enrolment.identity(thief).sign(said)

        body = forged(cohort.answer(thief, ask.messages[thief]), wire.SealAnswer, steal)
        with pytest.raises(ProtocolError) as caught:
            cohort.server.receive(thief, body)
        assert caught.value.code == "not-proved"


@pytest.mark.parametrize(
    "field", ["one", "two"], ids=["the first point", "the second point"]
)
@pytest.mark.parametrize(
    "point", [b"", bytes(33), b"\x02" + b"\xff" * 32, b"\x00" * 32 + b"\x01"]
)
def test_points_off_the_curve_and_infinity_are_refused(
    field: str, point: bytes
) -> None:
    run = Run(8)
    cohort = run.cohort()

    def spoil(answer: wire.SealAnswer) -> None:
        setattr(answer, field, point)

    outcome, refused = play(cohort, "seal", {"node-00004": (wire.SealAnswer, spoil)})
    assert refused == {"node-00004": "malformed-message"}
    assert isinstance(outcome, SecureSum)
    assert "node-00004" not in outcome.survivors
    assert outcome.total == cohort.expected(outcome.survivors)


def test_more_users_than_were_invited_or_certified_are_refused() -> None:
    run = Run(8, LYING)
    cohort = run.cohort()

    def boast(answer: wire.SealAnswer) -> None:
        answer.users = 2

    outcome, refused = play(cohort, "seal", {"node-00004": (wire.SealAnswer, boast)})
    assert list(refused) == ["node-00004"]
    assert isinstance(outcome, SecureSum)


def test_an_unsigned_contribution_is_refused_where_nodes_are_enrolled() -> None:
    run = Run(8, LYING)
    cohort = run.cohort()

    def unsign(answer: wire.SealAnswer) -> None:
        answer.signature = b""

    _, refused = play(cohort, "seal", {"node-00004": (wire.SealAnswer, unsign)})
    assert refused == {"node-00004": "not-authenticated"}


def sealed_as(cohort: Cohort, run: Run, party: str, value: int, lie: str) -> Change:
    """A contribution whose sender knows the protocol and the group, and lies."""

    def change(answer: wire.SealAnswer) -> None:
        assert run.ring.dealt is not None
        public = run.ring.dealt.public
        bound = sealed_context(
            cohort.server.context,  # type: ignore[attr-defined]
            run.ring.dealt.name,
        )
        cut = cohort.server._truncation  # type: ignore[attr-defined]
        allowed = ranges.Range(*cut.allowed(1))
        sealed, opening = encrypt(public, value)
        if lie == "other randomness":
            sealed = Ciphertext(sealed.one, sealed.two + times(public, 5))
        one, two = bytes(sealed.one), bytes(sealed.two)
        said = statement(bound, party, 1, one, two)
        answer.one, answer.two = one, two
        answer.proof = prove_sender(opening, said)
        if lie == "no proof":
            answer.range = b""
            return
        wide = allowed
        if lie == "wider range":
            wide = ranges.Range(allowed.low, allowed.high + 10**6)
        if lie == "garbage":
            answer.range = b"\x01" * allowed.proof_bytes
        elif lie == "clamped":
            inside = type(opening)(opening.randomness, allowed.high)
            answer.range = ranges.prove(public, sealed, inside, allowed, said)
        else:
            answer.range = ranges.prove(public, sealed, opening, wide, said)

    return change


@pytest.mark.parametrize(
    ("value", "lie"),
    [
        (10**6, "wider range"),
        (10**6, "clamped"),
        (10**6, "garbage"),
        (10**6, "no proof"),
        (5, "other randomness"),
        (5, "no proof"),
    ],
)
@pytest.mark.parametrize("threat", [HONEST, LYING])
def test_what_is_out_of_range_or_ill_formed_is_named_and_the_sum_goes_on(
    value: int, lie: str, threat: Threat
) -> None:
    run, liar = Run(8, threat), "node-00002"
    cohort = run.cohort(proved=True)
    change = sealed_as(cohort, run, liar, value, lie)

    def signed(answer: wire.SealAnswer) -> None:
        change(answer)
        if run.enrolment is not None:
            bound = sealed_context(
                cohort.server.context,  # type: ignore[attr-defined]
                run.ring.dealt.name,  # type: ignore[union-attr]
            )
            said = statement(bound, liar, 1, answer.one, answer.two)
            answer.signature = run.enrolment.identity(liar).sign(said)

    outcome, _ = play(cohort, "seal", {liar: (wire.SealAnswer, signed)})
    assert isinstance(outcome, SecureSum), outcome
    assert liar not in outcome.survivors
    assert len(outcome.survivors) == 7
    assert outcome.total == cohort.expected(outcome.survivors)
    assert named(cohort) in (
        {liar: "not-proved"},
        {liar: "malformed-message"},
    )


def test_proofs_are_checked_as_they_come_and_not_when_the_set_closes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sealed_server, "PROVED_AT_ONCE", 4)
    run, liar = Run(8), "node-00002"
    cohort = run.cohort(proved=True)
    lie = sealed_as(cohort, run, liar, 10**6, "clamped")
    for number, (party, body) in enumerate(asks(cohort, "seal").messages.items(), 1):
        answer = cohort.answer(party, body)
        if party == liar:
            answer = forged(answer, wire.SealAnswer, lie)
        cohort.server.receive(party, answer)
        assert named(cohort) == ({liar: "not-proved"} if number >= 4 else {})


@pytest.mark.parametrize("heard", [1, 3, 5, 8])
def test_a_liar_is_named_although_the_server_restarted_meanwhile(
    heard: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealed_server, "PROVED_AT_ONCE", 4)
    run, liar = Run(8), "node-00000"
    cohort = run.cohort(proved=True)
    lie = sealed_as(cohort, run, liar, 10**6, "clamped")
    messages = asks(cohort, "seal").messages
    for number, (party, body) in enumerate(messages.items()):
        if number == heard:
            cohort.server = restore_session(cohort.server.snapshot(), keyring=run.ring)
        answer = cohort.answer(party, body)
        if party == liar:
            answer = forged(answer, wire.SealAnswer, lie)
        cohort.server.receive(party, answer)
    cohort.server.advance()
    assert cohort.server.out == {liar: "not-proved"}


def test_without_proofs_one_node_moves_the_sum_at_will() -> None:
    """What proved inputs are for: the same lie counts where inputs are trusted."""
    run = Run(8)
    cohort = run.cohort()
    cohort.values["node-00002"] = 10**5
    outcome = cohort.run()
    assert isinstance(outcome, SecureSum)
    assert outcome.total == cohort.expected(outcome.survivors)
    assert outcome.total >= 10**5


def test_a_node_whose_own_draw_leaves_the_range_says_so() -> None:
    run = Run(8)
    cohort = run.cohort(proved=True)
    cohort.values["node-00002"] = 10**6
    outcome = cohort.run()
    assert isinstance(outcome, SecureSum)
    assert "node-00002" not in outcome.survivors
    found = {one.party: one for one in cohort.server.findings}
    assert found["node-00002"] == Finding("node-00002", OUT, "noise-out-of-range")


def test_a_proof_where_none_was_asked_for_is_refused() -> None:
    run = Run(8)
    cohort = run.cohort()

    def add(answer: wire.SealAnswer) -> None:
        answer.range = b"x"

    _, refused = play(cohort, "seal", {"node-00002": (wire.SealAnswer, add)})
    assert refused == {"node-00002": "malformed-message"}


def test_a_sum_beyond_its_window_is_void_and_says_so() -> None:
    run = Run(8)
    cohort = run.cohort()
    cohort.values["node-00002"] = 10**12
    outcome = cohort.run()
    assert isinstance(outcome, Void)
    assert outcome.code == "sum-out-of-range"
