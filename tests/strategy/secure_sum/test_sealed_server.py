"""Rogue dealers, members and contributors: named, left out, and the run goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.support.secure_sums import (
    TENTH,
    Cohort,
    Enrolment,
    asks,
    cohort_spec,
    deal_key,
    forged,
    names,
    open_cohort,
    run_dealing,
)
from wallflower.clients.secure_sum import ClientKeyring
from wallflower.protocol.errors import InputError, ProtocolError
from wallflower.protocol.secure_sum.envelope import unwrap, wrap
from wallflower.protocol.secure_sum.sealed import feldman, ranges
from wallflower.protocol.secure_sum.sealed.cipher import (
    Ciphertext,
    encrypt,
    prove_sender,
    sealed_context,
    statement,
)
from wallflower.protocol.secure_sum.sealed.group import (
    ORDER,
    KeyPair,
    Point,
    base,
    scalar_bytes,
    times,
)
from wallflower.protocol.secure_sum.session import (
    OUT,
    SENT,
    Ask,
    Dealt,
    Finding,
    SecureSum,
    Void,
)
from wallflower.protocol.secure_sum.threat import Threat
from wallflower.protocol.wire import sealed_pb2 as wire
from wallflower.strategy.secure_sum import ServerKeyring, restore_session
from wallflower.strategy.secure_sum import sealed as sealed_server

HONEST = Threat(TENTH, TENTH)
LYING = Threat(TENTH, TENTH, malicious_server=True)
ENROLMENT = Enrolment()
Change = Callable[[Any], object]


class Run:
    """The nodes and the server of one run; dealings and cohorts share their keys."""

    def __init__(self, nodes: int = 8, threat: Threat = HONEST) -> None:
        self.parties = names(nodes)
        self.threat = threat
        self.enrolment = ENROLMENT if threat.malicious_server else None
        self.rings: dict[str, ClientKeyring] = {}
        self.ring = ServerKeyring("run-1")

    def dealing(self) -> Cohort:
        return deal_key(
            "run-1", self.threat, self.parties, self.rings, self.ring, self.enrolment
        )

    def cohort(self, cohort_id: str = "cohort-1", *, proved: bool = False) -> Cohort:
        if self.ring.dealt is None:
            assert isinstance(run_dealing(self.dealing()), Dealt)
        spec = cohort_spec(
            "sealed",
            self.parties,
            threat=self.threat,
            cohort_id=cohort_id,
            proved=proved,
        )
        return open_cohort(
            spec,
            self.parties,
            enrolment=self.enrolment,
            keyrings=self.rings,
            server_keyring=self.ring,
        )


def play(
    session: Cohort, stage: str, changes: Mapping[str, tuple[type, Change]]
) -> tuple[SecureSum | Dealt | Void, dict[str, str]]:
    """Carry a session out; some parties' answers in one stage are changed."""
    refused: dict[str, str] = {}
    step = session.server.start()
    while isinstance(step, Ask):
        for party, body in step.messages.items():
            answer = session.answer(party, body)
            if step.stage == stage and party in changes:
                kind, change = changes[party]
                answer = forged(answer, kind, change)
            try:
                session.server.receive(party, answer)
            except ProtocolError as error:
                refused[party] = error.code
        step = session.server.advance()
    return step, refused


def drawn(dealing: Cohort) -> list[str]:
    """The committee in the order of the draw: the first ones deal."""
    return list(dealing.server._seats.places)  # type: ignore[attr-defined]


def check_sum(run: Run, cohort_id: str = "after") -> SecureSum:
    cohort = run.cohort(cohort_id)
    outcome = cohort.run()
    assert isinstance(outcome, SecureSum), outcome
    assert outcome.survivors == tuple(run.parties)
    assert outcome.total == cohort.expected(outcome.survivors)
    return outcome


def named(session: Cohort) -> dict[str, str]:
    return {f.party: f.word for f in session.server.findings if f.kind == SENT}


# -- rogue dealers -----------------------------------------------------------------


def crooked(f: Any, x: int, order: int = ORDER) -> int:
    """Every third member's share is off by one, sealed perfectly."""
    return HONEST_EVALUATE(f, x) + (x % 3 == 0)


HONEST_EVALUATE = feldman.evaluate


def deal_with_rogues(
    run: Run, rogues: set[str], monkeypatch: pytest.MonkeyPatch
) -> tuple[Cohort, Dealt | Void]:
    dealing = run.dealing()
    step = dealing.server.start()
    while isinstance(step, Ask):
        for party, body in step.messages.items():
            lies = step.stage == "deal" and party in rogues
            evaluate = crooked if lies else HONEST_EVALUATE
            monkeypatch.setattr(feldman, "evaluate", evaluate)
            dealing.server.receive(party, dealing.answer(party, body))
        step = dealing.server.advance()
    assert not isinstance(step, SecureSum)
    return dealing, step


@pytest.mark.parametrize("threat", [HONEST, LYING])
def test_a_dealer_of_wrong_shares_is_named_and_its_part_left_out(
    threat: Threat, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(20, threat)
    run.ring.wary = True  # everybody deals
    rogue = "node-00007"
    dealing, step = deal_with_rogues(run, {rogue}, monkeypatch)
    assert isinstance(step, Dealt)
    assert rogue not in step.dealers
    assert rogue not in step.members
    assert named(dealing) == {rogue: "wrong-share"}
    check_sum(run)


def test_after_a_dealing_that_rogues_spoilt_everybody_deals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three of twenty deal at first; a rogue among them is one too many."""
    run = Run(20)
    rogues = set(list(run.parties)[:2])
    spoilt = 0
    for _ in range(20):  # until the draw has put a rogue among the first
        dealing, step = deal_with_rogues(run, rogues, monkeypatch)
        if isinstance(step, Void):
            assert step.code == "too-few-dealers"
            assert set(named(dealing)) <= rogues
            spoilt += 1
            break
        run.ring.dealt = None
    assert spoilt
    dealing, step = deal_with_rogues(run, rogues, monkeypatch)
    assert isinstance(step, Dealt)
    assert named(dealing) == dict.fromkeys(rogues, "wrong-share")
    assert len(step.dealers) == 18
    check_sum(run)


def test_seals_that_open_for_nobody_are_a_dealers_fault() -> None:
    run = Run(20)
    run.ring.wary = True
    dealing = run.dealing()
    rogue = drawn(dealing)[0]

    def garble(answer: wire.DealAnswer) -> None:
        answer.sealed = bytes(len(answer.sealed))

    step, refused = play(dealing, "deal", {rogue: (wire.DealAnswer, garble)})
    assert isinstance(step, Dealt)
    assert refused == {}
    assert named(dealing) == {rogue: "wrong-share"}
    check_sum(run)


def fewer_commitments(answer: wire.DealAnswer) -> None:
    answer.commitments = answer.commitments[:-33]


def more_commitments(answer: wire.DealAnswer) -> None:
    answer.commitments += answer.commitments[:33]


def other_constant(answer: wire.DealAnswer) -> None:
    answer.statement.constant = bytes(base(9))


def other_commitment(answer: wire.DealAnswer) -> None:
    answer.commitments = answer.commitments[:-33] + bytes(base(9))


def infinite_commitment(answer: wire.DealAnswer) -> None:
    answer.commitments = answer.commitments[:-33] + bytes(33)


def cancelling_constant(answer: wire.DealAnswer) -> None:
    rogue = bytes(KeyPair.generate().point - Point.parse(answer.statement.constant))
    answer.statement.constant = rogue
    answer.commitments = rogue + answer.commitments[33:]


def missing_seal(answer: wire.DealAnswer) -> None:
    answer.sealed = answer.sealed[:-48]


def anothers_name(answer: wire.DealAnswer) -> None:
    answer.statement.dealer = "node-00000x"


@pytest.mark.parametrize("threat", [HONEST, LYING])
@pytest.mark.parametrize(
    "change",
    [
        fewer_commitments,
        more_commitments,
        other_constant,
        other_commitment,
        infinite_commitment,
        cancelling_constant,
        missing_seal,
        anothers_name,
    ],
)
def test_a_dealing_that_does_not_hang_together_is_refused_at_once(
    change: Change, threat: Threat
) -> None:
    run = Run(12, threat)
    dealing = run.dealing()
    rogue = drawn(dealing)[0]
    step, refused = play(dealing, "deal", {rogue: (wire.DealAnswer, change)})
    assert list(refused) == [rogue]
    assert isinstance(step, Dealt)
    assert rogue not in step.dealers
    check_sum(run)


def test_a_dealer_that_repeats_anothers_dealing_is_refused() -> None:
    run = Run(12)
    dealing = run.dealing()
    ask = asks(dealing, "deal")
    first, second = list(ask.messages)[:2]
    answers = {
        party: dealing.answer(party, body) for party, body in ask.messages.items()
    }
    stolen = unwrap(answers[first])
    dealing.server.receive(first, answers[first])
    with pytest.raises(ProtocolError):
        dealing.server.receive(
            second, wrap(stolen.stage, stolen.context, second, "", stolen.payload)
        )


def test_too_few_honest_dealers_give_no_key_and_name_the_others() -> None:
    run = Run(20)
    dealing = run.dealing()
    rogues = drawn(dealing)[:3]

    def garble(answer: wire.DealAnswer) -> None:
        answer.sealed = bytes(len(answer.sealed))

    step, _ = play(dealing, "deal", dict.fromkeys(rogues, (wire.DealAnswer, garble)))
    assert isinstance(step, Void)
    assert step.code == "too-few-dealers"
    assert all(rogue in step.detail for rogue in rogues)
    assert run.ring.dealt is None


# -- complaints --------------------------------------------------------------------


def bare_complaint(dealer: str) -> Change:
    def change(answer: wire.CheckAnswer) -> None:
        answer.complaints.add(dealer=dealer)

    return change


def invented_complaint(dealer: str) -> Change:
    def change(answer: wire.CheckAnswer) -> None:
        answer.complaints.add(
            dealer=dealer, shared=bytes(base(5)), proof=scalar_bytes(1) * 2
        )

    return change


@pytest.mark.parametrize("complaint", [bare_complaint, invented_complaint])
@pytest.mark.parametrize("threat", [HONEST, LYING])
def test_false_complaints_exclude_their_authors_and_no_dealer(
    complaint: Callable[[str], Change], threat: Threat
) -> None:
    """Else colluding members would exclude every honest dealer."""
    run = Run(20, threat)
    dealing = run.dealing()
    order = drawn(dealing)
    liars = {p: (wire.CheckAnswer, complaint(order[0])) for p in order[-2:]}
    step, refused = play(dealing, "check", liars)
    assert isinstance(step, Dealt)
    assert order[0] in step.dealers
    assert refused == dict.fromkeys(liars, "false-complaint")
    assert not set(liars) & set(step.members)
    check_sum(run)


def test_an_honest_complaint_about_a_good_share_is_false_too() -> None:
    """Even with the right point and proof: what is in the seal decides."""
    run = Run(12)
    dealing = run.dealing()
    ask = asks(dealing, "check")
    member = list(ask.messages)[-1]
    client: Any = dealing.clients[member]
    request = wire.CheckRequest.FromString(unwrap(ask.messages[member]).payload)
    share = request.shares[0]
    part = client._part
    client._check(unwrap(ask.messages[member]))
    sizes, holders = client._seats
    terms = dealing.server._terms  # type: ignore[attr-defined]
    own = next(one for one in holders if one.party == member)
    complaint = part._complaint(share, terms, own)
    body = wrap(
        unwrap(ask.messages[member]).stage,
        client.context,
        member,
        "",
        wire.CheckAnswer(complaints=[complaint]).SerializeToString(),
    )
    with pytest.raises(ProtocolError, match="without showing"):
        dealing.server.receive(member, body)
    assert sizes.accepted == 3


def test_a_dealer_accused_twice_in_one_answer_is_malformed() -> None:
    dealing = Run(12).dealing()
    order = drawn(dealing)

    def twice(answer: wire.CheckAnswer) -> None:
        for _ in range(2):
            answer.complaints.add(dealer=order[0])

    _, refused = play(dealing, "check", {order[-1]: (wire.CheckAnswer, twice)})
    assert refused == {order[-1]: "malformed-message"}


# -- openings ----------------------------------------------------------------------


def shifted(answer: wire.OpenAnswer) -> None:
    answer.share = bytes(Point.parse(answer.share) + base(1))


def replaced(answer: wire.OpenAnswer) -> None:
    answer.share = bytes(base(77))


def unproved(answer: wire.OpenAnswer) -> None:
    answer.proof = bytes(64)


def no_point(answer: wire.OpenAnswer) -> None:
    answer.share = bytes(33)


@pytest.mark.parametrize("threat", [HONEST, LYING])
@pytest.mark.parametrize("change", [shifted, replaced, unproved, no_point])
def test_a_wrong_opening_is_named_and_the_sum_is_exact(
    change: Change, threat: Threat
) -> None:
    run = Run(8, threat)
    cohort = run.cohort()
    bad = run.ring.dealt.members[0]  # type: ignore[union-attr]
    outcome, refused = play(cohort, "open", {bad: (wire.OpenAnswer, change)})
    assert isinstance(outcome, SecureSum)
    assert outcome.total == cohort.expected(outcome.survivors)
    assert list(refused) == [bad]
    assert Finding(bad, SENT, refused[bad]) in cohort.server.findings


def test_another_members_answer_is_not_taken() -> None:
    run = Run(8)
    cohort = run.cohort()
    ask = asks(cohort, "open")
    first, second = list(ask.messages)[:2]
    answer = unwrap(cohort.answer(first, ask.messages[first]))
    with pytest.raises(ProtocolError):
        cohort.server.receive(
            second, wrap(answer.stage, answer.context, second, "", answer.payload)
        )


def test_fewer_than_t_openings_release_nothing() -> None:
    run = Run(20)
    cohort = run.cohort()
    ask = asks(cohort, "open")
    assert run.ring.dealt is not None
    for party in list(ask.messages)[: run.ring.dealt.threshold - 1]:
        cohort.server.receive(party, cohort.answer(party, ask.messages[party]))
    assert not cohort.server.stage_complete
    outcome = cohort.server.advance()
    assert isinstance(outcome, Void)
    assert outcome.code == "too-few-openings"


def test_t_openings_are_enough_and_nobody_else_is_called_silent() -> None:
    run = Run(20)
    cohort = run.cohort()
    ask = asks(cohort, "open")
    assert run.ring.dealt is not None
    for party in list(ask.messages)[-run.ring.dealt.threshold :]:
        assert not cohort.server.stage_complete
        cohort.server.receive(party, cohort.answer(party, ask.messages[party]))
    assert cohort.server.stage_complete
    outcome = cohort.server.advance()
    assert isinstance(outcome, SecureSum)
    assert outcome.total == cohort.expected(outcome.survivors)
    assert cohort.server.findings == ()


# -- contributions -----------------------------------------------------------------


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


# -- proved inputs -----------------------------------------------------------------


def sealed_as(cohort: Cohort, run: Run, party: str, value: int, lie: str) -> Change:
    """A contribution whose sender knows the protocol and the group, and lies."""

    def change(answer: wire.SealAnswer) -> None:
        assert run.ring.dealt is not None
        public = run.ring.dealt.public
        bound = sealed_context(
            cohort.server.context,  # type: ignore[attr-defined]
            run.ring.dealt.name,
        )
        cut = cohort.server._cut  # type: ignore[attr-defined]
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


def test_a_node_whose_own_draw_leaves_the_range_stays_silent() -> None:
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


# -- the run's key -----------------------------------------------------------------


def test_a_cohort_without_a_dealing_is_void() -> None:
    parties = names(6)
    cohort = open_cohort(
        cohort_spec("sealed", parties), parties, server_keyring=ServerKeyring("run-1")
    )
    outcome = cohort.server.start()
    assert isinstance(outcome, Void)
    assert outcome.code == "no-dealing"


def test_a_key_made_for_another_threat_seals_nothing() -> None:
    run = Run(8)
    run.cohort()
    spec = cohort_spec("sealed", run.parties, threat=Threat(TENTH, TENTH / 2))
    cohort = open_cohort(spec, run.parties, keyrings=run.rings, server_keyring=run.ring)
    outcome = cohort.server.start()
    assert isinstance(outcome, Void)
    assert outcome.code == "no-dealing"


def test_one_dealing_serves_many_cohorts_and_no_member_is_asked_twice() -> None:
    run = Run(20)
    stages: list[set[str]] = []
    for index in range(3):
        cohort = run.cohort(f"cohort-{index}")
        seen: set[str] = set()
        outcome = cohort.run(up=lambda stage, party, seen=seen: not seen.add(stage))  # type: ignore[misc]
        assert isinstance(outcome, SecureSum)
        assert outcome.total == cohort.expected(outcome.survivors)
        stages.append(seen)
    assert stages == [{"seal", "open"}] * 3


def test_members_that_vanish_make_the_key_unusable_before_it_is_too_late() -> None:
    run = Run(20)
    run.cohort()
    key = run.ring.dealt
    assert key is not None
    assert key.usable()
    members = key.members
    assert key.usable(members[:4])  # 3 are needed, and one may vanish
    assert not key.usable(members[:3])
    for member in members[:-3]:
        key.failed(member)
    assert not key.usable()
    key.heard(members[0])
    assert key.usable()


def test_a_new_dealing_takes_over_and_the_old_contributions_stay_closed() -> None:
    run = Run(8)
    first = run.cohort("first")
    ask = asks(first, "seal")
    old_key = run.ring.dealt
    for party, body in ask.messages.items():
        first.server.receive(party, first.answer(party, body))
    assert isinstance(run_dealing(run.dealing()), Dealt)
    assert run.ring.dealt is not old_key
    # A cohort that began under the old key is opened under the old key.
    step = first.server.advance()
    assert isinstance(step, Ask)
    outcome = first.step(step, lambda s, p: True, lambda s, p: True)
    assert isinstance(outcome, SecureSum)
    assert outcome.total == first.expected(outcome.survivors)
    check_sum(run, "second")


def test_a_restored_server_goes_on_under_the_key_it_began_with() -> None:
    run = Run(8)
    cohort = run.cohort()
    ask = asks(cohort, "open")
    kept = cohort.server.snapshot()
    assert isinstance(run_dealing(run.dealing()), Dealt)
    cohort.server = restore_session(kept, keyring=run.ring)
    again = cohort.server.start()
    assert isinstance(again, Ask)
    assert again.messages == ask.messages
    outcome = cohort.step(again, lambda s, p: True, lambda s, p: True)
    assert isinstance(outcome, SecureSum)


def test_a_snapshot_holds_no_share_and_no_value() -> None:
    run = Run(8)
    cohort = run.cohort()
    asks(cohort, "open")
    kept = cohort.server.snapshot()
    for ring in run.rings.values():
        for secret in ring.vault._secrets.values():  # type: ignore[attr-defined]
            state = wire.MemberState.FromString(secret)
            assert not [s for s in state.shares.values() if s.share in kept]


def test_a_range_too_wide_to_decode_is_refused_with_the_way_out() -> None:
    run = Run(8)
    run.cohort()
    spec = cohort_spec("sealed", run.parties)
    spec.mechanism, spec.cohort_size, spec.modulus = "non-private", 10**10, 2**62
    with pytest.raises(InputError, match="secagg-plus"):
        open_cohort(spec, run.parties, keyrings=run.rings, server_keyring=run.ring)


def test_what_a_sealed_server_sees() -> None:
    """Rule 7: keys, commitments, sealed shares; ciphertexts and users; openings."""
    run = Run(8)
    seen: dict[str, set[str]] = {}
    kinds: dict[str, Any] = {
        "enlist": wire.MemberKey,
        "deal": wire.DealAnswer,
        "check": wire.CheckAnswer,
        "seal": wire.SealAnswer,
        "open": wire.OpenAnswer,
    }

    def watch(session: Cohort) -> None:
        step = session.server.start()
        while isinstance(step, Ask):
            for party, body in step.messages.items():
                answer = session.answer(party, body)
                payload = kinds[step.stage].FromString(unwrap(answer).payload)
                fields = {descriptor.name for descriptor, _ in payload.ListFields()}
                seen.setdefault(step.stage, set()).update(fields)
                session.server.receive(party, answer)
            step = session.server.advance()

    watch(run.dealing())
    watch(run.cohort())
    assert seen == {
        "enlist": {"key"},
        "deal": {"statement", "commitments", "ephemeral", "sealed"},
        "check": set(),
        "seal": {"one", "two", "users", "proof"},
        "open": {"share", "proof"},
    }


def test_a_contribution_is_short_and_does_not_grow_with_the_cohort() -> None:
    lengths = set()
    for nodes in (8, 70):
        run = Run(nodes)
        cohort = run.cohort()
        ask = asks(cohort, "seal")
        party = "node-00003"
        lengths.add(len(cohort.answer(party, ask.messages[party])))
        # Semi-honest: the members' request does not grow either.
    assert max(lengths) <= 260
    assert len(lengths) == 1
