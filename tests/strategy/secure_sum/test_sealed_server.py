"""Rogue dealers, members and contributors: named, left out, and the run goes on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
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
from wallflower.clients.secure_sum.keyring import ClientKeyring
from wallflower.protocol.errors import InputError, ProtocolError
from wallflower.protocol.secure_sum.context import unwrap, wrap
from wallflower.protocol.secure_sum.sealed.group import (
    Point,
    base,
)
from wallflower.protocol.secure_sum.session import (
    SENT,
    Ask,
    Finding,
    KeyReady,
    SecureSum,
    Step,
    Void,
)
from wallflower.protocol.secure_sum.threat import Threat
from wallflower.protocol.wire import sealed_pb2 as wire
from wallflower.strategy.secure_sum import ServerKeyring, restore_session

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
            assert isinstance(run_dealing(self.dealing()), KeyReady)
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
) -> tuple[SecureSum | KeyReady | Void, dict[str, str]]:
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


def opened(cohort: Cohort, step: Step, openers: Collection[str]) -> Step:
    """Let some of those that are asked open the sum; the others are silent."""
    assert isinstance(step, Ask)
    assert step.stage == "open"
    for party in step.messages.keys() & openers:
        cohort.server.receive(party, cohort.answer(party, step.messages[party]))
    return cohort.server.advance()


def test_fewer_than_t_openings_release_nothing() -> None:
    run = Run(20)
    cohort = run.cohort()
    ask = asks(cohort, "open")
    assert run.ring.dealt is not None
    few = list(ask.messages)[: run.ring.dealt.threshold - 1]
    outcome = opened(cohort, opened(cohort, ask, few), ())
    assert isinstance(outcome, Void)
    assert outcome.code == "too-few-openings"


def test_a_sum_is_put_to_some_members_and_to_the_others_if_those_are_silent() -> None:
    run = Run(20)
    cohort = run.cohort()
    ask = asks(cohort, "open")
    assert run.ring.dealt is not None
    first, everybody = list(ask.messages), set(run.ring.dealt.members)
    assert run.ring.dealt.threshold < len(first) < len(everybody)
    others = opened(cohort, ask, first[:1])
    assert isinstance(others, Ask)
    assert others.messages.keys() == everybody - set(first)
    outcome = opened(cohort, others, everybody)
    assert isinstance(outcome, SecureSum)
    assert outcome.total == cohort.expected(outcome.survivors)
    silent = {finding.party for finding in cohort.server.findings}
    assert silent == set(first[1:])


def test_members_that_were_silent_are_asked_last_from_then_on() -> None:
    run = Run(20)
    cohort = run.cohort("cohort-1")
    ask = asks(cohort, "open")
    first = set(ask.messages)
    opened(cohort, opened(cohort, ask, ()), set(cohort.clients) - first)
    later = set(asks(run.cohort("cohort-2"), "open").messages)
    assert len(later) == len(first)
    assert not later & first


def test_a_server_that_restarts_still_asks_the_others() -> None:
    run = Run(20)
    cohort = run.cohort()
    ask = asks(cohort, "open")
    cohort.server = restore_session(cohort.server.snapshot(), keyring=run.ring)
    again = cohort.server.start()
    assert again == ask
    others = opened(cohort, again, list(ask.messages)[:1])
    cohort.server = restore_session(cohort.server.snapshot(), keyring=run.ring)
    assert cohort.server.start() == others
    outcome = opened(cohort, others, set(cohort.clients))
    assert isinstance(outcome, SecureSum)
    assert outcome.total == cohort.expected(outcome.survivors)


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
        key.note_failed(member)
    assert not key.usable()
    key.note_opened(members[0])
    assert key.usable()


def test_a_new_dealing_takes_over_and_the_old_contributions_stay_closed() -> None:
    run = Run(8)
    first = run.cohort("first")
    ask = asks(first, "seal")
    old_key = run.ring.dealt
    for party, body in ask.messages.items():
        first.server.receive(party, first.answer(party, body))
    assert isinstance(run_dealing(run.dealing()), KeyReady)
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
    assert isinstance(run_dealing(run.dealing()), KeyReady)
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
        for secret in ring.key_shares.values():  # type: ignore[attr-defined]
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
        "deal": {"commitments", "sealed", "proof"},
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
