"""Sealed sums under attack, over every transport: server, dealer, member, contributor.

Eight enrolled nodes against a lying server: everybody is drawn, t = 5; for dishonest
contributors there are twenty. What each attack does to the machines alone is in
`test_sealed_rules` and `test_sealed_server`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tests.integration.lying_operator import (
    NAMES,
    TRANSPORTS,
    Liar,
    Reach,
    Tamper,
    crooked,
    dealing,
    furnish,
    key_store,
    liar,
    reach,
)
from tests.support.secure_sums import forged
from tests.support.slow_cases import slow_except
from wallflower.clients.host.home import NodeHome
from wallflower.keys.store import KeyStore
from wallflower.protocol.accounting.account import NOTHING
from wallflower.protocol.identity.enrolment import Trust
from wallflower.protocol.secure_sum.context import unwrap
from wallflower.protocol.secure_sum.sealed.cipher import (
    encrypt,
    prove_sender,
    statement,
)
from wallflower.protocol.secure_sum.sealed.group import (
    KeyPair,
    Point,
    base,
    times,
    total,
)
from wallflower.protocol.secure_sum.session import SENT, Ask, KeyReady, SecureSum
from wallflower.protocol.wire import sealed_pb2 as wire

PARTIES = NAMES[:8]
VICTIM, THIEF = PARTIES[1], PARTIES[5]
Attack = Callable[[wire.OpenRequest], None]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> KeyStore:
    return key_store(tmp_path_factory.mktemp("keys") / "store")


@dataclass
class Run:
    """Nodes that can be reached, and the key they dealt."""

    homes: dict[str, NodeHome]
    trust: Trust
    reached: Reach
    dealt: Liar
    dropout: Fraction

    def cohort(self, inputs: str = "trusted") -> Liar:
        return liar(
            "sealed",
            self.trust,
            self.reached,
            parties=tuple(self.homes),
            dropout=self.dropout,
            keyring=self.dealt.keyring,
            inputs=inputs,
        )


@asynccontextmanager
async def reached_run(
    transport: str,
    store: KeyStore,
    folder: Path,
    *,
    parties: Sequence[str] = PARTIES,
    dropout: Fraction = Fraction(1, 10),
) -> AsyncIterator[Run]:
    homes = furnish(store, folder, parties)
    trust = homes[VICTIM].trust()
    assert trust is not None
    async with reach(transport, homes, store) as reached:
        dealt = dealing(trust, reached, parties, dropout=dropout)
        assert isinstance(await dealt.to_the_end(), KeyReady)
        yield Run(homes, trust, reached, dealt, dropout)


def named(session: Liar) -> dict[str, str]:
    return {f.party: f.word for f in session.session.findings if f.kind == SENT}


# -- the server ----------------------------------------------------------------------


def without_victim(request: wire.OpenRequest) -> None:
    """The same set less one person, every number adjusted."""
    at = list(request.senders).index(VICTIM)
    del request.senders[at], request.sealed[at]
    request.contributors -= 1
    request.users -= 1
    request.sum = bytes(total([Point.parse(one.one) for one in request.sealed]))


def below_quorum(request: wire.OpenRequest) -> None:
    """Four people, honestly added up."""
    del request.senders[4:], request.sealed[4:]
    request.contributors = request.users = 4
    request.sum = bytes(total([Point.parse(one.one) for one in request.sealed]))


def one_persons_ciphertext(request: wire.OpenRequest) -> None:
    request.sum = request.sealed[1].one


def counted_twice(request: wire.OpenRequest) -> None:
    request.sealed[5].CopyFrom(request.sealed[1])


def counted_twice_rerandomised(request: wire.OpenRequest) -> None:
    request.sealed[5].one = bytes(Point.parse(request.sealed[1].one) + base(7))


def off_the_curve(request: wire.OpenRequest) -> None:
    request.sum = b"\x02" + b"\xff" * 32


def infinity(request: wire.OpenRequest) -> None:
    request.sealed[0].one = bytes(33)


@pytest.mark.parametrize("transport", slow_except(["memory", "grpc"], TRANSPORTS))
async def test_no_member_opens_a_set_that_the_server_made_up(
    transport: str, store: KeyStore, tmp_path: Path
) -> None:
    """Each member is shown another lie first, and the truth after it: never both."""
    lies: tuple[Attack, ...] = (
        below_quorum,
        one_persons_ciphertext,
        counted_twice,
        counted_twice_rerandomised,
        off_the_curve,
        infinity,
    )
    async with reached_run(transport, store, tmp_path) as run:
        cohort = run.cohort()
        ask = await cohort.until("open")
        for member, lie in zip(PARTIES, lies, strict=False):
            body = forged(ask.messages[member], wire.OpenRequest, lie)
            assert not await cohort.ask(member, body), lie.__name__


@pytest.mark.parametrize("transport", slow_except(["memory", "grpc"], TRANSPORTS))
async def test_no_member_opens_a_second_overlapping_set(
    transport: str, store: KeyStore, tmp_path: Path
) -> None:
    """Asked again at once, after a refusal, and after the cohort was closed."""
    async with reached_run(transport, store, tmp_path) as run:
        cohort = run.cohort()
        ask = await cohort.until("open")
        for member in PARTIES[2:4]:
            whole = ask.messages[member]
            less = forged(whole, wire.OpenRequest, without_victim)
            assert await cohort.ask(member, whole)
            assert not await cohort.ask(member, less)
            assert not await cohort.ask(member, less)
            await cohort.close([member])
            assert not await cohort.ask(member, less)


@pytest.mark.parametrize("transport", slow_except(["memory", "grpc"], TRANSPORTS))
async def test_what_was_sealed_for_one_cohort_is_not_opened_with_another(
    transport: str, store: KeyStore, tmp_path: Path
) -> None:
    async with reached_run(
        transport, store, tmp_path, parties=NAMES, dropout=Fraction(3, 10)
    ) as run:
        first = run.cohort()
        seal = await first.until("seal")
        kept = await first.ask(VICTIM, seal.messages[VICTIM])
        old = wire.SealAnswer.FromString(unwrap(kept).payload)
        second = run.cohort()
        asked = await second.until("seal")
        others = {p: m for p, m in asked.messages.items() if p != VICTIM}
        step = await second.carry_out(Ask("seal", others))
        assert isinstance(step, Ask)

        def transplant(request: wire.OpenRequest) -> None:
            request.senders.insert(1, VICTIM)
            listed = list(request.sealed)
            listed.insert(1, old)
            del request.sealed[:]
            request.sealed.extend(listed)
            request.contributors += 1
            request.users += 1
            points = [Point.parse(one.one) for one in listed]
            request.sum = bytes(total(points))

        member = PARTIES[0]
        body = forged(step.messages[member], wire.OpenRequest, transplant)
        assert not await second.ask(member, body)


@pytest.mark.parametrize("transport", slow_except(["memory", "grpc"], TRANSPORTS))
async def test_nobody_seals_under_a_key_that_the_server_swapped(
    transport: str, store: KeyStore, tmp_path: Path
) -> None:
    own = KeyPair.generate()

    def swap(request: wire.SealRequest) -> None:
        request.dealing.key = bytes(own.point)

    def swap_and_hide(request: wire.SealRequest) -> None:
        swap(request)
        request.dealing.evidence = b""

    async with reached_run(transport, store, tmp_path) as run:
        cohort = run.cohort()
        ask = await cohort.until("seal")
        for party, lie in ((VICTIM, swap), (THIEF, swap_and_hide)):
            body = forged(ask.messages[party], wire.SealRequest, lie)
            assert not await cohort.ask(party, body)
    for party in (VICTIM, THIEF):
        with run.homes[party].ledger() as ledger:  # no reward was taken for it
            assert await ledger.read_account(party, "u0") == NOTHING


# -- dealers and members -------------------------------------------------------------


def tampering(kind: type, change: Callable[[Any], object]) -> Tamper:
    return lambda answer: forged(answer, kind, change)


@pytest.mark.parametrize("transport", slow_except(["memory", "grpc"], TRANSPORTS))
async def test_a_seal_that_the_server_altered_makes_nobody_complain(
    transport: str, store: KeyStore, tmp_path: Path
) -> None:
    """A complaint would hand it the point that opens the dealer's true seal."""

    def alter(request: wire.CheckRequest) -> None:
        for share in request.shares:
            share.sealed = bytes(len(share.sealed))

    async with reached_run(transport, store, tmp_path) as run:
        dealt = dealing(run.trust, run.reached, PARTIES)
        ask = await dealt.until("check")
        body = forged(ask.messages[VICTIM], wire.CheckRequest, alter)
        assert not await dealt.ask(VICTIM, body)


@pytest.mark.parametrize("transport", slow_except(["memory", "grpc"], TRANSPORTS))
async def test_a_rogue_dealer_a_false_complaint_and_a_wrong_opening_are_named(
    transport: str, store: KeyStore, tmp_path: Path
) -> None:
    """One dishonest node at a time; key and sum come about all the same."""

    def cancelling(answer: wire.DealAnswer) -> None:
        rogue = bytes(KeyPair.generate().point - Point.parse(answer.commitments[:33]))
        answer.commitments = rogue + answer.commitments[33:]

    def complain(answer: wire.CheckAnswer) -> None:
        answer.complaints.add(
            dealer=VICTIM, shared=bytes(base(5)), proof=bytes(31) + b"\x01" + bytes(32)
        )

    def shifted(answer: wire.OpenAnswer) -> None:
        answer.share = bytes(Point.parse(answer.share) + base(1))

    async with reached_run(transport, store, tmp_path) as run:
        crook = crooked(run.homes[THIEF], THIEF)
        for stage, tamper, word in (
            ("deal", lambda _: tampering(wire.DealAnswer, cancelling), None),
            ("deal", crook, "wrong-share"),
            (
                "check",
                lambda _: tampering(wire.CheckAnswer, complain),
                "false-complaint",
            ),
        ):
            dealt = dealing(run.trust, run.reached, PARTIES)
            step = await dealt.to_the_end(stage, {THIEF: tamper(dealt)})
            assert isinstance(step, KeyReady), (stage, step)
            assert THIEF in named(dealt), stage
            assert word in (None, named(dealt)[THIEF])
            assert VICTIM in step.dealers
            assert (THIEF in step.dealers) == (stage == "check")
            run.dealt = dealt
        cohort = run.cohort()
        end = await cohort.to_the_end(
            "open", {VICTIM: tampering(wire.OpenAnswer, shifted)}
        )
        assert isinstance(end, SecureSum), end
        assert cohort.refused == {VICTIM: "wrong-opening"}


# -- contributors --------------------------------------------------------------------


def copied(run: Run, seen: wire.SealAnswer) -> tuple[bytes, bytes, bytes]:
    return seen.one, seen.two, seen.proof


def rerandomised(run: Run, seen: wire.SealAnswer) -> tuple[bytes, bytes, bytes]:
    key, extra = run.dealt.keyring.dealt, KeyPair.generate()
    assert key is not None
    one = Point.parse(seen.one) + extra.point
    two = Point.parse(seen.two) + times(key.public, extra.secret)
    return bytes(one), bytes(two), seen.proof


def no_point(run: Run, seen: wire.SealAnswer) -> tuple[bytes, bytes, bytes]:
    return seen.one, b"\x02" + b"\xff" * 32, seen.proof


ATTACKS = {
    NAMES[5]: copied,
    NAMES[6]: rerandomised,
    NAMES[7]: no_point,
}
OUT_OF_RANGE = NAMES[8]


@pytest.mark.parametrize("transport", slow_except(["memory", "grpc"], TRANSPORTS))
async def test_dishonest_contributors_are_left_out_by_name_and_the_sum_goes_on(
    transport: str, store: KeyStore, tmp_path: Path
) -> None:
    """A copy, a re-randomised one, no point, and a number out of its proved range.

    Each sender signs what it sends with its own enrolled key.
    """
    async with reached_run(
        transport, store, tmp_path, parties=NAMES, dropout=Fraction(3, 10)
    ) as run:
        cohort = run.cohort("proved")
        seal = await cohort.until("seal")
        body = await cohort.ask(VICTIM, seal.messages[VICTIM])
        seen = wire.SealAnswer.FromString(unwrap(body).payload)
        bound: bytes = cohort.session._bound  # type: ignore[attr-defined]

        def signed(party: str, answer: wire.SealAnswer) -> bytes:
            identity = run.homes[party].identity
            assert identity is not None
            output = statement(bound, party, 1, answer.one, answer.two)
            answer.signature = identity.sign(output)
            return output

        def stealing(party: str) -> Tamper:
            def change(answer: wire.SealAnswer) -> None:
                answer.one, answer.two, answer.proof = ATTACKS[party](run, seen)
                signed(party, answer)

            return tampering(wire.SealAnswer, change)

        def excessive(answer: wire.SealAnswer) -> None:
            key = run.dealt.keyring.dealt
            assert key is not None
            sealed, opening = encrypt(key.public, 10**6)
            answer.one, answer.two = bytes(sealed.one), bytes(sealed.two)
            answer.proof = prove_sender(opening, signed(OUT_OF_RANGE, answer))

        wrong = {party: stealing(party) for party in ATTACKS}
        wrong[OUT_OF_RANGE] = tampering(wire.SealAnswer, excessive)
        step = await cohort.carry_out(seal, wrong)
        while isinstance(step, Ask):
            step = await cohort.carry_out(step)
        assert isinstance(step, SecureSum), step
        assert not set(wrong) & set(step.survivors)
        assert len(step.survivors) == len(NAMES) - len(wrong)
        assert named(cohort) == {
            NAMES[5]: "not-proved",
            NAMES[6]: "not-proved",
            NAMES[7]: "malformed-message",
            OUT_OF_RANGE: "not-proved",
        }
