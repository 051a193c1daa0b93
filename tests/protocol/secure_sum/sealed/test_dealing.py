"""Nobody holds the key, wrong shares are shown, false complaints fall back."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence

import pytest

from wallflower.protocol.errors import MalformedMessageError
from wallflower.protocol.secure_sum.sealed import feldman
from wallflower.protocol.secure_sum.sealed.cipher import lagrange
from wallflower.protocol.secure_sum.sealed.dealing import (
    Dealing,
    Holder,
    Statement,
    Terms,
    complain,
    deal,
    dealing_name,
    open_share,
    sealed_for,
    upheld,
)
from wallflower.protocol.secure_sum.sealed.group import (
    ORDER,
    KeyPair,
    Point,
    base,
    prove_knowledge,
    random_scalar,
    scalar_bytes,
    times_secret,
    total,
)

TERMS = Terms(b"c" * 32, b"m" * 32, 3)
PAIRS = [KeyPair.generate() for _ in range(5)]
HOLDERS = [
    Holder(f"node-{i}", i + 1, bytes(pair.point)) for i, pair in enumerate(PAIRS)
]


def dealt(dealer: str = "dealer", terms: Terms = TERMS) -> Dealing:
    dealing, _ = deal(terms, dealer, HOLDERS)
    return dealing


def share_of(dealing: Dealing, index: int, terms: Terms = TERMS) -> int | None:
    agreed = PAIRS[index].agree(Point.parse(dealing.statement.constant))
    return open_share(
        terms,
        dealing.statement.dealer,
        HOLDERS[index],
        agreed,
        dealing.sealed[index],
    )


def test_every_share_fits_its_commitments() -> None:
    dealing = dealt()
    commitments = dealing.check(TERMS)
    for index, holder in enumerate(HOLDERS):
        share = share_of(dealing, index)
        assert share is not None
        assert feldman.fits(share, commitments, holder.place)
        assert base(share) == feldman.share_point(commitments, holder.place)


def test_shares_of_several_dealers_add_up_to_a_key_that_t_members_make() -> None:
    dealings = [dealt(f"dealer-{i}") for i in range(3)]
    public = total([d.statement.proven_constant(TERMS) for d in dealings])
    keys = {}
    for index in (0, 2, 4):
        shares = [share_of(dealing, index) for dealing in dealings]
        keys[index + 1] = sum(s for s in shares if s is not None) % ORDER
    places = tuple(sorted(keys))
    secret = sum(
        weight * keys[place]
        for weight, place in zip(lagrange(places), places, strict=True)
    )
    assert base(secret) == public
    summed = feldman.add_up([d.check(TERMS) for d in dealings])
    assert feldman.share_point(summed, 3) == base(keys[3])


def test_a_share_opens_for_its_member_dealer_and_dealing_alone() -> None:
    dealing = dealt()
    constant = Point.parse(dealing.statement.constant)
    agreed, sealed = PAIRS[0].agree(constant), dealing.sealed[0]
    stranger = PAIRS[1].agree(constant)
    other = dataclasses.replace(TERMS, context=b"d" * 32)
    moved = HOLDERS[0]._replace(place=2)
    share = open_share(TERMS, "dealer", HOLDERS[0], agreed, sealed)
    elsewhere = [
        open_share(TERMS, "another", HOLDERS[0], agreed, sealed),
        open_share(other, "dealer", HOLDERS[0], agreed, sealed),
        open_share(TERMS, "dealer", HOLDERS[1], agreed, sealed),
        open_share(TERMS, "dealer", moved, agreed, sealed),
        open_share(TERMS, "dealer", HOLDERS[0], stranger, sealed),
    ]
    assert share is not None
    assert share not in elsewhere
    assert len(set(elsewhere)) == len(elsewhere)
    assert open_share(TERMS, "dealer", HOLDERS[0], agreed, sealed[:-1]) is None


def test_a_dealer_that_is_a_member_keeps_its_own_share_and_seals_none() -> None:
    dealing, own = deal(TERMS, "node-2", HOLDERS)
    assert len(dealing.sealed) == len(HOLDERS) - 1
    assert sealed_for(HOLDERS, "node-2") == ["node-0", "node-1", "node-3", "node-4"]
    commitments = dealing.check(TERMS)
    assert feldman.fits(own, commitments, HOLDERS[2].place)
    after = dataclasses.replace(
        dealing, sealed=(*dealing.sealed[:2], b"", *dealing.sealed[2:])
    )
    share = share_of(after, 3)
    assert share is not None
    assert feldman.fits(share, commitments, HOLDERS[3].place)


@pytest.mark.parametrize(
    ("threshold", "last"), [(1, 4), (2, 9), (5, 5), (5, 3), (6, 20)]
)
def test_the_points_of_all_places_are_those_of_each(threshold: int, last: int) -> None:
    coefficients = feldman.random_polynomial(threshold)
    points = feldman.share_points(feldman.commit(coefficients), last)
    each = [base(feldman.evaluate(coefficients, x)) for x in range(1, last + 1)]
    assert points == each


def test_infinity_on_the_way_to_a_members_point_is_no_matter() -> None:
    """5 − 3x + x²: the same at 1 and 2, and x² − 3x is zero at 3."""
    coefficients = [5, ORDER - 3, 1]
    points = feldman.share_points(feldman.commit(coefficients), 6)
    assert points == [base(x * x - 3 * x + 5) for x in range(1, 7)]


# -- rogue dealers -----------------------------------------------------------------


def crooked(places: Sequence[int]) -> Dealing:
    """A dealing whose shares at some places are off by one, sealed perfectly."""
    honest = feldman.evaluate
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feldman, "evaluate", lambda f, x: honest(f, x) + (x in places))
        return dealt("crook")


def test_a_wrong_share_does_not_fit_and_its_complaint_is_upheld() -> None:
    dealing = crooked([2])
    commitments = dealing.check(TERMS)
    for index, holder in enumerate(HOLDERS):
        share = share_of(dealing, index)
        assert share is not None
        assert feldman.fits(share, commitments, holder.place) == (holder.place != 2)
    constant = Point.parse(dealing.statement.constant)
    shared, proof = complain(TERMS, "crook", HOLDERS[1], PAIRS[1], constant)
    assert upheld(TERMS, HOLDERS[1], dealing, dealing.sealed[1], shared, proof)


def test_a_share_that_does_not_open_is_a_wrong_one() -> None:
    dealing = dealt("crook")
    garbage = bytes(len(dealing.sealed[1]))
    shared, proof = complain(
        TERMS, "crook", HOLDERS[1], PAIRS[1], Point.parse(dealing.statement.constant)
    )
    assert upheld(TERMS, HOLDERS[1], dealing, garbage, shared, proof)


def test_a_complaint_about_a_good_share_is_not_upheld() -> None:
    dealing = dealt()
    constant = Point.parse(dealing.statement.constant)
    shared, proof = complain(TERMS, "dealer", HOLDERS[1], PAIRS[1], constant)
    assert not upheld(TERMS, HOLDERS[1], dealing, dealing.sealed[1], shared, proof)


def test_a_complaint_with_an_invented_point_is_not_upheld() -> None:
    """The point of another key opens nothing; the proof gives it away."""
    dealing = dealt()
    constant = Point.parse(dealing.statement.constant)
    liar = KeyPair.generate()
    shared, proof = complain(TERMS, "dealer", HOLDERS[1], liar, constant)
    assert not upheld(TERMS, HOLDERS[1], dealing, dealing.sealed[1], shared, proof)


def test_a_complaint_against_one_dealer_says_nothing_about_another() -> None:
    bad, good = crooked([2]), dealt()
    shared, proof = complain(
        TERMS, "crook", HOLDERS[1], PAIRS[1], Point.parse(bad.statement.constant)
    )
    assert not upheld(TERMS, HOLDERS[1], good, good.sealed[1], shared, proof)


def test_a_complaint_opens_only_the_seal_it_is_about() -> None:
    dealing = crooked([2])
    constant = Point.parse(dealing.statement.constant)
    shared, _ = complain(TERMS, "crook", HOLDERS[1], PAIRS[1], constant)
    agreed = hashlib.sha256(shared).digest()
    for index in (0, 2, 3, 4):
        sealed = dealing.sealed[index]
        opened = open_share(TERMS, "crook", HOLDERS[index], agreed, sealed)
        assert opened != share_of(dealing, index)


def test_a_complaint_tells_a_dealer_what_it_knows_already() -> None:
    """Its seals are under the secret it has proved to know: a₀·K is all they hold."""
    constant = KeyPair.generate()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KeyPair, "generate", lambda: constant)
        dealing, _ = deal(TERMS, "dealer", HOLDERS)
    assert dealing.statement.proven_constant(TERMS) == constant.point
    shared, _ = complain(TERMS, "dealer", HOLDERS[1], PAIRS[1], constant.point)
    assert Point.parse(shared) == times_secret(PAIRS[1].point, constant.secret)


def test_nobody_seals_under_a_key_that_another_dealer_made() -> None:
    """Complaints about such seals would open the other dealer's."""
    honest, rogue = dealt("honest"), dealt("rogue")
    theirs = Point.parse(honest.statement.constant)
    for point in (theirs, theirs + base(7), -theirs):
        points = bytes(point) + rogue.commitments[33:]
        for proof in (honest.statement.proof, rogue.statement.proof):
            dealing = Dealing.of("rogue", proof, points, b"".join(honest.sealed))
            with pytest.raises(MalformedMessageError, match="does not know"):
                dealing.check(TERMS)


def test_key_cancellation_needs_a_logarithm_that_the_rogue_does_not_know() -> None:
    """P = X with a known x, if the last dealer could publish X − ΣA₀."""
    honest = dealt("honest")
    wanted = KeyPair.generate()
    constant = wanted.point - Point.parse(honest.statement.constant)
    rogue = dealt("rogue")
    for pair in (wanted, KeyPair(random_scalar())):
        proof = prove_knowledge(pair, b"p" * 32)
        forged = dataclasses.replace(
            rogue.statement, constant=bytes(constant), proof=proof
        )
        with pytest.raises(MalformedMessageError, match="does not know"):
            forged.proven_constant(TERMS)


def test_another_dealers_statement_is_not_taken_over() -> None:
    honest = dealt("honest")
    stolen = dataclasses.replace(honest.statement, dealer="thief")
    with pytest.raises(MalformedMessageError, match="does not know"):
        stolen.proven_constant(TERMS)
    other = dataclasses.replace(TERMS, context=b"d" * 32)
    with pytest.raises(MalformedMessageError, match="does not know"):
        honest.statement.proven_constant(other)


@pytest.mark.parametrize("threshold", [2, 4])
def test_a_polynomial_of_another_degree_is_refused(threshold: int) -> None:
    other = dataclasses.replace(TERMS, threshold=threshold)
    with pytest.raises(MalformedMessageError):
        dealt(terms=other).check(TERMS)


def test_a_proof_is_about_all_points_and_seals_of_its_dealing() -> None:
    one, two = dealt(), dealt()
    points, proof = one.commitments, one.statement.proof
    sealed = b"".join(one.sealed)
    Dealing.of("dealer", proof, points, sealed).check(TERMS)
    flipped = sealed[:-1] + bytes([sealed[-1] ^ 1])
    mixed = one.commitments[:33] + two.commitments[33:]
    for parts in (
        (proof, two.commitments, sealed),
        (proof, mixed, sealed),
        (proof, points, flipped),
        (proof, points, sealed[32:] + sealed[:32]),
        (proof, points, sealed[:-32]),
        (two.statement.proof, points, sealed),
    ):
        with pytest.raises(MalformedMessageError, match="does not know"):
            Dealing.of("dealer", *parts).check(TERMS)
    for cut in (sealed[:-1], b""):
        with pytest.raises(MalformedMessageError, match="wrong length"):
            Dealing.of("dealer", proof, points, cut)


@pytest.mark.parametrize("constant", [bytes(33), b"\x02" + b"\xff" * 32])
def test_a_constant_that_is_no_point_is_refused(constant: bytes) -> None:
    statement = Statement("dealer", constant, bytes(64), bytes(32))
    with pytest.raises(MalformedMessageError):
        statement.proven_constant(TERMS)


def test_a_statement_cut_short_is_refused() -> None:
    for parts in ((b"", bytes(64), bytes(32)), (bytes(33), b"", bytes(32))):
        with pytest.raises(MalformedMessageError):
            Statement("dealer", *parts)


def test_zero_is_no_share() -> None:
    commitments = feldman.commit(feldman.random_polynomial(2))
    assert not feldman.fits(0, commitments, 1)
    assert not feldman.fits(ORDER, commitments, 1)


# -- names -------------------------------------------------------------------------


def test_a_dealing_is_named_by_terms_and_accepted_statements_in_any_order() -> None:
    statements = [dealt(f"d{i}").statement for i in range(3)]

    def name(terms: Terms, accepted: Sequence[Statement]) -> bytes:
        return dealing_name(terms, {one.dealer: one.digest(terms) for one in accepted})

    names = {
        name(TERMS, statements),
        name(TERMS, statements[:2]),
        name(dataclasses.replace(TERMS, threshold=4), statements),
        name(dataclasses.replace(TERMS, context=b"x" * 32), statements),
        name(dataclasses.replace(TERMS, committee=b"x" * 32), statements),
        name(TERMS, [*statements[:2], dealt("d2").statement]),
    }
    assert len(names) == 6
    assert name(TERMS, statements[::-1]) in names


def test_shares_never_show_themselves() -> None:
    dealing = dealt()
    share = share_of(dealing, 0)
    assert share is not None
    assert str(share) not in repr(dealing)
    assert scalar_bytes(share) not in b"".join(dealing.sealed)
