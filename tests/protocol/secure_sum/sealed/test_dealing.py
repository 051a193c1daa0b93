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
    upheld,
)
from wallflower.protocol.secure_sum.sealed.group import (
    ORDER,
    KeyPair,
    Point,
    base,
    random_scalar,
    scalar_bytes,
    total,
)
from wallflower.protocol.secure_sum.sealed.proofs import prove_knowledge

TERMS = Terms(b"c" * 32, b"m" * 32, 3)
PAIRS = [KeyPair.generate() for _ in range(5)]
HOLDERS = [
    Holder(f"node-{i}", i + 1, bytes(pair.point)) for i, pair in enumerate(PAIRS)
]


def share_of(dealing: Dealing, index: int, terms: Terms = TERMS) -> int | None:
    agreed = PAIRS[index].agree(Point.parse(dealing.ephemeral))
    return open_share(
        terms,
        dealing.statement.dealer,
        HOLDERS[index],
        agreed,
        dealing.sealed[index],
    )


def test_every_share_fits_its_commitments() -> None:
    dealing = deal(TERMS, "dealer", HOLDERS)
    commitments = dealing.check(TERMS)
    for index, holder in enumerate(HOLDERS):
        share = share_of(dealing, index)
        assert share is not None
        assert feldman.fits(share, commitments, holder.place)
        assert base(share) == feldman.share_point(commitments, holder.place)


def test_shares_of_several_dealers_add_up_to_a_key_that_t_members_make() -> None:
    dealings = [deal(TERMS, f"dealer-{i}", HOLDERS) for i in range(3)]
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
    summed = feldman.added([d.check(TERMS) for d in dealings])
    assert feldman.share_point(summed, 3) == base(keys[3])


def test_a_share_opens_for_its_member_dealer_and_dealing_alone() -> None:
    dealing = deal(TERMS, "dealer", HOLDERS)
    ephemeral = Point.parse(dealing.ephemeral)
    agreed, sealed = PAIRS[0].agree(ephemeral), dealing.sealed[0]
    other = dataclasses.replace(TERMS, context=b"d" * 32)
    assert open_share(TERMS, "dealer", HOLDERS[0], agreed, sealed) is not None
    assert open_share(TERMS, "another", HOLDERS[0], agreed, sealed) is None
    assert open_share(other, "dealer", HOLDERS[0], agreed, sealed) is None
    assert open_share(TERMS, "dealer", HOLDERS[1], agreed, sealed) is None
    stranger = PAIRS[1].agree(ephemeral)
    assert open_share(TERMS, "dealer", HOLDERS[0], stranger, sealed) is None


# -- rogue dealers -----------------------------------------------------------------


def crooked(places: Sequence[int]) -> Dealing:
    """A dealing whose shares at some places are off by one, sealed perfectly."""
    honest = feldman.evaluate
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feldman, "evaluate", lambda f, x: honest(f, x) + (x in places))
        return deal(TERMS, "crook", HOLDERS)


def test_a_wrong_share_does_not_fit_and_its_complaint_is_upheld() -> None:
    dealing = crooked([2])
    commitments = dealing.check(TERMS)
    for index, holder in enumerate(HOLDERS):
        share = share_of(dealing, index)
        assert share is not None
        assert feldman.fits(share, commitments, holder.place) == (holder.place != 2)
    ephemeral = Point.parse(dealing.ephemeral)
    shared, proof = complain(TERMS, "crook", HOLDERS[1], PAIRS[1], ephemeral)
    assert upheld(TERMS, HOLDERS[1], dealing, dealing.sealed[1], shared, proof)


def test_a_share_that_does_not_open_is_a_wrong_one() -> None:
    dealing = deal(TERMS, "crook", HOLDERS)
    garbage = bytes(len(dealing.sealed[1]))
    shared, proof = complain(
        TERMS, "crook", HOLDERS[1], PAIRS[1], Point.parse(dealing.ephemeral)
    )
    assert upheld(TERMS, HOLDERS[1], dealing, garbage, shared, proof)


def test_a_complaint_about_a_good_share_is_not_upheld() -> None:
    dealing = deal(TERMS, "dealer", HOLDERS)
    ephemeral = Point.parse(dealing.ephemeral)
    shared, proof = complain(TERMS, "dealer", HOLDERS[1], PAIRS[1], ephemeral)
    assert not upheld(TERMS, HOLDERS[1], dealing, dealing.sealed[1], shared, proof)


def test_a_complaint_with_an_invented_point_is_not_upheld() -> None:
    """The point of another key opens nothing; the proof gives it away."""
    dealing = deal(TERMS, "dealer", HOLDERS)
    ephemeral = Point.parse(dealing.ephemeral)
    liar = KeyPair.generate()
    shared, proof = complain(TERMS, "dealer", HOLDERS[1], liar, ephemeral)
    assert not upheld(TERMS, HOLDERS[1], dealing, dealing.sealed[1], shared, proof)


def test_a_complaint_against_one_dealer_says_nothing_about_another() -> None:
    bad, good = crooked([2]), deal(TERMS, "dealer", HOLDERS)
    shared, proof = complain(
        TERMS, "crook", HOLDERS[1], PAIRS[1], Point.parse(bad.ephemeral)
    )
    assert not upheld(TERMS, HOLDERS[1], good, good.sealed[1], shared, proof)


def test_a_complaint_opens_only_the_seal_it_is_about() -> None:
    dealing = crooked([2])
    ephemeral = Point.parse(dealing.ephemeral)
    shared, _ = complain(TERMS, "crook", HOLDERS[1], PAIRS[1], ephemeral)
    agreed = hashlib.sha256(shared).digest()
    for index in (0, 2, 3, 4):
        sealed = dealing.sealed[index]
        assert open_share(TERMS, "crook", HOLDERS[index], agreed, sealed) is None


def test_key_cancellation_needs_a_logarithm_that_the_rogue_does_not_know() -> None:
    """P = X with a known x, if the last dealer could publish X − ΣA₀."""
    honest = deal(TERMS, "honest", HOLDERS)
    wanted = KeyPair.generate()
    constant = wanted.point - Point.parse(honest.statement.constant)
    rogue = deal(TERMS, "rogue", HOLDERS)
    for pair in (wanted, KeyPair(random_scalar())):
        proof = prove_knowledge(pair, b"p" * 32)
        forged = dataclasses.replace(
            rogue.statement, constant=bytes(constant), proof=proof
        )
        with pytest.raises(MalformedMessageError, match="does not know"):
            forged.proven_constant(TERMS)


def test_another_dealers_statement_is_not_taken_over() -> None:
    honest = deal(TERMS, "honest", HOLDERS)
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
        deal(other, "dealer", HOLDERS).check(TERMS)


def test_commitments_and_statement_must_be_about_the_same_points() -> None:
    one, two = deal(TERMS, "dealer", HOLDERS), deal(TERMS, "dealer", HOLDERS)
    for forged in (
        dataclasses.replace(one, commitments=two.commitments),
        dataclasses.replace(one, ephemeral=two.ephemeral),
        dataclasses.replace(one, statement=two.statement),
        dataclasses.replace(one, sealed=(b"short", *one.sealed[1:])),
        dataclasses.replace(
            one, commitments=one.commitments[:33] + two.commitments[33:]
        ),
    ):
        with pytest.raises(MalformedMessageError):
            forged.check(TERMS)


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
    statements = [deal(TERMS, f"d{i}", HOLDERS).statement for i in range(3)]

    def name(terms: Terms, accepted: Sequence[Statement]) -> bytes:
        return dealing_name(terms, {one.dealer: one.digest(terms) for one in accepted})

    names = {
        name(TERMS, statements),
        name(TERMS, statements[:2]),
        name(dataclasses.replace(TERMS, threshold=4), statements),
        name(dataclasses.replace(TERMS, context=b"x" * 32), statements),
        name(dataclasses.replace(TERMS, committee=b"x" * 32), statements),
        name(TERMS, [*statements[:2], deal(TERMS, "d2", HOLDERS).statement]),
    }
    assert len(names) == 6
    assert name(TERMS, statements[::-1]) in names


def test_shares_never_show_themselves() -> None:
    dealing = deal(TERMS, "dealer", HOLDERS)
    share = share_of(dealing, 0)
    assert share is not None
    assert str(share) not in repr(dealing)
    assert scalar_bytes(share) not in b"".join(dealing.sealed)
