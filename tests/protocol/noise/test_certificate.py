"""The certificate holds of the tables that are used, and of no altered one."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from wallflower.protocol.noise.radix import (
    CertificateError,
    RadixPlan,
    RadixTables,
    certified_tables,
    certify,
)

WRONG = Fraction(5, 10**7)


@pytest.mark.parametrize(
    ("parties", "levels", "width", "pair"),
    [(4096, 13, 147, 1.71e-8), (65536, 17, 169, 8.2e-10)],
)
def test_widths_and_bounds_are_those_of_the_oracle(
    parties: int, levels: int, width: int, pair: float
) -> None:
    plan = RadixPlan(parties, levels, Fraction(1, 1000), WRONG)
    excess = certify(certified_tables(plan), plan.pair_budget, levels)
    assert plan.width == width
    assert float(excess) == pytest.approx(pair, rel=0.01)
    assert excess * levels * (parties - 1) <= Fraction(91, 100_000)


@pytest.mark.parametrize("epsilon", ["0.1", "0.5", "1"])
@pytest.mark.parametrize("exponent", [6, 8, 10, 12, 14, 16])
def test_the_tables_of_every_size_keep_the_bound(exponent: int, epsilon: str) -> None:
    plan = RadixPlan(2**exponent, exponent + 8, Fraction(epsilon) / 100, WRONG)
    assert (
        certify(certified_tables(plan), plan.pair_budget, plan.levels)
        <= plan.pair_budget
    )


PLAN = RadixPlan(256, 14, Fraction(1, 200), WRONG)


def altered(law: tuple[int, ...], index: int, amount: int) -> tuple[int, ...]:
    """Move `amount` from the middle to one entry, so that it remains a law."""
    masses = list(law)
    middle = max(range(len(masses)), key=lambda k: masses[k])
    masses[middle] -= amount
    masses[index] += amount
    return tuple(masses)


def with_law(tables: RadixTables, name: str, law: tuple[int, ...]) -> RadixTables:
    if name == "even":
        return replace(tables, even=law)
    return (
        replace(tables, odd=law) if name == "odd" else replace(tables, any_parity=law)
    )


@pytest.mark.parametrize("name", ["even", "odd", "any_parity"])
@pytest.mark.parametrize("step", [0, 4, 20, 30, 50])
def test_one_altered_entry_is_found(name: str, step: int) -> None:
    tables = certified_tables(PLAN)
    law: tuple[int, ...] = getattr(tables, name)
    # Junk must differ by more than its own share to show: half of the whole.
    amount = 1 << (511 if name == "any_parity" else 502)
    index = step + (1 if name == "odd" else 0)
    with pytest.raises(CertificateError):
        certify(
            with_law(tables, name, altered(law, index, amount)),
            PLAN.pair_budget,
            PLAN.levels,
        )


def broken(tables: RadixTables, fault: str) -> RadixTables:
    if fault == "does not add up":
        return replace(tables, even=(tables.even[0] + 1, *tables.even[1:]))
    if fault == "wrong parity":
        return replace(tables, even=altered(tables.even, 1, 1))
    if fault == "no junk":
        return replace(tables, junk=0)
    if fault == "less junk":
        return replace(tables, junk=tables.junk >> 200)
    assert fault == "a gap in the junk"
    first = tables.any_parity[0]
    return replace(tables, any_parity=altered(tables.any_parity, 0, -first))


@pytest.mark.parametrize(
    "fault",
    ["does not add up", "wrong parity", "no junk", "less junk", "a gap in the junk"],
)
def test_tables_that_cannot_keep_the_bound_are_refused(fault: str) -> None:
    with pytest.raises(CertificateError):
        certify(broken(certified_tables(PLAN), fault), PLAN.pair_budget, PLAN.levels)


def test_tables_that_were_not_certified_are_never_handed_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import wallflower.protocol.noise.radix as radix

    monkeypatch.setattr(radix, "_width", lambda pair_budget, junk: 40)
    with pytest.raises(CertificateError):
        certified_tables(RadixPlan(300, 14, Fraction(1, 200), WRONG))


@pytest.mark.parametrize("place", [3, 15, 29, 57, 62, 87])
@pytest.mark.parametrize("name", ["even", "odd", "any"])
def test_the_largest_ratio_is_that_of_all_weights(name: str, place: int) -> None:
    """Weight 0 decides where junk alone shows the inputs, 2^(L−1) where it does not."""
    tables = certified_tables(PLAN)
    law = {"even": tables.even, "odd": tables.odd, "any": tables.any_parity}[name]
    place -= place % 2 if name == "even" else (place % 2) - 1 if name == "odd" else 0
    changed = with_law(tables, name, altered(law, place, max(law) // 100))
    found = certify(changed, Fraction(10**200), PLAN.levels)
    assert found == max(ratio_at(changed, weight) for weight in (0, 1, 77, 1 << 13))


def ratio_at(tables: RadixTables, weight: int) -> Fraction:
    """Return the largest ratio minus one at one weight, from the laws of two draws."""
    laws = []
    often, rarely = tables.whole - tables.junk, tables.junk
    for clean in (tables.even, tables.odd):
        law = [0] * (2 * len(clean) - 1)
        for one, a in enumerate(clean):
            for other, b in enumerate(clean):
                law[one + other] += weight * often * often * a * b
        for one, a in enumerate(tables.any_parity):
            for other, b in enumerate(clean):
                law[one + other] += 2 * rarely * often * a * b
            for other, b in enumerate(tables.any_parity):
                law[one + other] += rarely * rarely * a * b
        laws.append(law)
    return max(
        Fraction(max(pair) - min(pair), min(pair)) for pair in zip(*laws, strict=True)
    )
