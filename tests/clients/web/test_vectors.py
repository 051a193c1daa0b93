"""The golden vectors that are kept with the code: Python still makes the same of them.

clients/web/tests does the same in TypeScript, and many more (`make test-web`).
"""

from __future__ import annotations

import json

import pytest

from tests.support.web.vectors import COMPUTE, SAMPLE, wrong_cases
from wallflower.protocol.refusals import RefusalCode


@pytest.mark.parametrize("kind", sorted(COMPUTE))
def test_python_makes_what_the_vectors_hold(kind: str) -> None:
    count, wrong = wrong_cases(SAMPLE / f"{kind}.json")
    assert count > 0
    assert wrong == []


def test_the_shared_table_of_refusals_holds_every_reason_of_terms() -> None:
    cases = json.loads((SAMPLE / "seat.json").read_text())
    found = {case["out"]["code"] for case in cases}
    terms = {
        "arm-not-allowed",
        "backend-not-allowed",
        "bad-cohort",
        "cohort-too-small",
        "delta-too-small",
        "epsilon-too-large",
        "floor-too-low",
        "mechanism-not-allowed",
        "price-changed",
        "quorum-too-low",
        "range-differs",
        "threat-too-weak",
        "too-many-prices",
        "window-too-short",
    }
    assert terms <= {code.value for code in RefusalCode}
    assert found >= terms | {"accepted", "budget-exceeded", "user-repeated"}
    assert found >= {"dealing-too-small", "not-authenticated", "too-few-dealers"}
    assert found >= {"malformed-message", "wrong-context", "wrong-run"}
