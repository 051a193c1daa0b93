"""Seal, add up, open: only the sum, only with t members, and exactly or not at all."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wallflower.protocol.errors import InputError
from wallflower.protocol.secure_sum.sealed import feldman
from wallflower.protocol.secure_sum.sealed.cipher import (
    LARGEST_WINDOW,
    Ciphertext,
    combine,
    decode,
    encrypt,
    lagrange,
    prove_sender,
    shows_sender,
    statement,
    table_reach,
    uncover,
)
from wallflower.protocol.secure_sum.sealed.group import (
    KeyPair,
    Point,
    base,
    hashed_point,
    times,
    total,
)

CONTEXT = b"c" * 32


def opened(values: list[int], threshold: int, places: list[int]) -> int | None:
    coefficients = feldman.random_polynomial(threshold)
    public = base(coefficients[0])
    sealed = [encrypt(public, value)[0] for value in values]
    one = total([each.one for each in sealed])
    two = total([each.two for each in sealed])
    answers = {
        place: times(one, feldman.evaluate(coefficients, place)) for place in places
    }
    return decode(uncover(two, combine(answers)), -10_000, 10_000)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(-900, 900), min_size=1, max_size=9), st.data())
def test_any_t_members_open_the_sum(values: list[int], data: st.DataObject) -> None:
    threshold = data.draw(st.integers(1, 6))
    chosen = data.draw(st.permutations(range(1, 12)))[:threshold]
    assert opened(values, threshold, chosen) == sum(values)


def test_a_sum_of_zero_is_opened() -> None:
    assert opened([5, -9, 4], 3, [2, 5, 7]) == 0
    assert opened([0, 0], 2, [1, 2]) == 0


def test_fewer_than_t_members_open_nothing() -> None:
    assert opened([5, 6], 3, [1, 2]) is None


def test_the_same_integer_never_has_the_same_ciphertext() -> None:
    public = KeyPair.generate().point
    seen = {bytes(encrypt(public, 1)[0].two) for _ in range(20)}
    assert len(seen) == 20


def test_a_value_too_large_is_refused_without_being_shown() -> None:
    with pytest.raises(InputError) as refused:
        encrypt(KeyPair.generate().point, 2**62 + 12345)
    assert str(2**62 + 12345) not in str(refused.value)


def said(sealed: Ciphertext, sender: str = "a", users: int = 1) -> bytes:
    return statement(CONTEXT, sender, users, bytes(sealed.one), bytes(sealed.two))


def test_a_rerandomised_copy_has_no_proof_of_its_own() -> None:
    """Anybody can turn a ciphertext into another one of the same integer."""
    public = KeyPair.generate().point
    sealed, opening = encrypt(public, 7)
    proof = prove_sender(opening, said(sealed))
    extra = KeyPair.generate()
    copy = Ciphertext(
        sealed.one + extra.point, sealed.two + times(public, extra.secret)
    )
    assert shows_sender(sealed.one, proof, said(sealed))
    for sender in ("a", "b"):
        assert not shows_sender(copy.one, proof, said(copy, sender))
        forged = prove_sender(type(opening)(extra, 0), said(copy, sender))
        assert not shows_sender(copy.one, forged, said(copy, sender))


def test_a_proof_is_bound_to_sender_users_and_both_points() -> None:
    public = KeyPair.generate().point
    sealed, opening = encrypt(public, 7)
    proof = prove_sender(opening, said(sealed))
    assert not shows_sender(sealed.one, proof, said(sealed, sender="b"))
    assert not shows_sender(sealed.one, proof, said(sealed, users=2))
    shifted = Ciphertext(sealed.one, sealed.two + base(100))
    assert not shows_sender(sealed.one, proof, said(shifted))


def test_openings_and_ciphertexts_show_no_value() -> None:
    sealed, opening = encrypt(KeyPair.generate().point, 3133713371337)
    assert "3133713371337" not in repr(sealed) + repr(opening)


View = tuple[tuple[int, ...], ...]


def views(
    order: int, threshold: int, members: int, corrupt: tuple[int, ...], honest: int
) -> dict[tuple[int, ...], Counter[View]]:
    """Distribution of all that the server and the corrupt members see, per input.

    In the group ℤ_p the logarithms are in the open, so DDH is taken for what it says:
    given C₁ the mask r·P of an honest contributor is uniform, and the masks of all of
    them add up to s·ΣC₁. Everything else is what the machines compute: polynomial,
    shares, answers.
    """
    result: dict[tuple[int, ...], Counter[View]] = {}
    field = range(order)
    for inputs in itertools.product(field, repeat=honest):
        seen: Counter[View] = Counter()
        for draw in itertools.product(field, repeat=threshold + 2 * honest - 1):
            coefficients = list(draw[:threshold])
            ones = draw[threshold : threshold + honest]
            masks = list(draw[threshold + honest :])
            one = sum(ones) % order
            masks.append((coefficients[0] * one - sum(masks)) % order)
            twos = tuple((m + y) % order for m, y in zip(masks, inputs, strict=True))
            shares = [
                feldman.evaluate(coefficients, place, order)
                for place in range(1, members + 1)
            ]
            answers = tuple(share * one % order for share in shares)
            known = tuple(shares[index - 1] for index in corrupt)
            seen[ones, twos, answers, known] += 1
        result[inputs] = seen
    return result


@pytest.mark.parametrize(
    ("order", "threshold", "members", "corrupt", "honest"),
    [(5, 2, 3, (1,), 2), (5, 2, 3, (3,), 2), (3, 2, 2, (2,), 3), (3, 3, 2, (1, 2), 2)],
)
def test_t_minus_1_members_and_the_server_see_only_the_sum(
    order: int, threshold: int, members: int, corrupt: tuple[int, ...], honest: int
) -> None:
    alike: dict[int, list[Counter[View]]] = defaultdict(list)
    for inputs, view in views(order, threshold, members, corrupt, honest).items():
        alike[sum(inputs) % order].append(view)
    for group in alike.values():
        assert all(view == group[0] for view in group)
    assert alike[0][0] != alike[1][0]


def test_lagrange_recovers_in_a_small_field_too() -> None:
    for coefficients in itertools.product(range(7), repeat=3):
        for places in itertools.combinations(range(1, 7), 3):
            value = sum(
                weight * feldman.evaluate(coefficients, place, 7)
                for weight, place in zip(lagrange(places, 7), places, strict=True)
            )
            assert value % 7 == coefficients[0]


def point_of(value: int) -> Point | None:
    return base(value) if value else None


@settings(max_examples=60, deadline=None)
@given(st.integers(-5000, 5000), st.integers(0, 6000), st.integers(0, 6000))
def test_every_number_of_the_window_is_found_and_no_other(
    value: int, below: int, above: int
) -> None:
    assert decode(point_of(value), value - below, value + above) == value
    assert decode(point_of(value), value + 1, value + 1 + above) is None
    assert decode(point_of(value), value - 1 - below, value - 1) is None


@pytest.mark.parametrize("value", [-3_000_000, -1, 0, 1, 999_999, 4_000_000])
def test_a_wide_window_is_decoded_from_edge_to_edge(value: int) -> None:
    assert decode(point_of(value), -3_000_000, 4_000_000) == value


def test_zero_is_the_point_at_infinity() -> None:
    assert decode(None, -5, 5) == 0
    assert decode(None, 1, 5) is None


def test_a_point_of_no_small_number_is_not_decoded() -> None:
    assert decode(hashed_point("no sum"), -10_000, 10_000) is None


@pytest.mark.parametrize("high", [-1, LARGEST_WINDOW])
def test_an_empty_and_an_endless_window_are_refused(high: int) -> None:
    with pytest.raises(InputError, match="window"):
        decode(base(1), 0, high)


def test_the_table_never_outgrows_its_bound() -> None:
    assert table_reach(LARGEST_WINDOW) <= 2**20
