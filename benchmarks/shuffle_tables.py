"""``make check-shuffle``: the certificate on the tables that `shuffle-dp` draws from.

n = 2⁶ … 2¹⁶ users, every power, ε = 0.1, 0.5 and 1: the tables that nodes of such a
cohort draw from, as they make them, against η/(L(n − 1)) a pair of parties, in exact
integers. Exit code 1 when one does not pass. The last row has one entry altered and
must not pass: a check that could not fail would be worth nothing.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from fractions import Fraction

from benchmarks.report import Row, keep, show
from wallflower.protocol.noise.radix import (
    CertificateError,
    RadixPlan,
    RadixTables,
    certify,
    uncertified_tables,
)
from wallflower.protocol.privacy.mechanism import mechanism_named

EXPONENTS = range(6, 17)
LEVELS = (Fraction(1, 10), Fraction(1, 2), Fraction(1))
WRAP = Fraction(1, 10**6)
_FLOOR = Fraction(4, 5)


def plan_of(users: int, epsilon: Fraction) -> RadixPlan:
    """Return the plan that a cohort of a run has."""
    floor = int(users * _FLOOR)
    radix = mechanism_named("shuffle-dp", epsilon).for_cohort(users, floor, WRAP).radix
    assert radix is not None
    return radix


def altered(tables: RadixTables) -> RadixTables:
    """Move a thousandth of the largest entry of one law to its neighbour."""
    law = list(tables.even)
    largest = max(range(len(law)), key=law.__getitem__)
    part = law[largest] // 1000
    law[largest] -= part
    law[largest + 2] += part
    return replace(tables, even=tuple(law))


def checked(name: str, plan: RadixPlan, tables: RadixTables) -> Row:
    """Certify tables; a row without a bound did not pass."""
    try:
        excess = certify(tables, plan.pair_budget, plan.levels)
    except CertificateError as error:
        excess, verdict = None, str(error)
    else:
        verdict = "holds"
    steps = plan.levels * (plan.parties - 1)
    return {
        "tables": name,
        "L": plan.levels,
        "d": plan.width,
        "messages": plan.messages,
        "a pair shows": None if excess is None else float(excess),
        "allowed": float(plan.pair_budget),
        "all show": None if excess is None else float(excess * steps),
        "η": float(plan.budget),
        "certificate": verdict,
    }


def main() -> int:
    """Print a row for every table."""
    rows = []
    for exponent in EXPONENTS:
        for epsilon in LEVELS:
            plan = plan_of(2**exponent, epsilon)
            name = f"n = 2^{exponent}, ε = {float(epsilon):g}"
            rows.append(checked(name, plan, uncertified_tables(plan)))
    control = plan_of(2**12, Fraction(1))
    name = "n = 2^12, ε = 1, one entry altered"
    caught = checked(name, control, altered(uncertified_tables(control)))
    show(f"Tables of shuffle-dp, wrap probability {float(WRAP):g}", [*rows, caught])
    keep("shuffle_tables", {"tables": rows, "altered": [caught]})
    held = sum(row["certificate"] == "holds" for row in rows)
    noticed = caught["certificate"] != "holds"
    print(f"\n{held} of {len(rows)} tables pass; the altered one is", end=" ")
    print("refused" if noticed else "NOT NOTICED")
    return 0 if held == len(rows) and noticed else 1


if __name__ == "__main__":
    sys.exit(main())
