"""Whatever bytes come in a well-formed envelope: a named refusal or a right answer.

`make soak-machines` sends 50,000.
"""

from __future__ import annotations

from tests.support.sealed_fuzz import fuzz


def test_changed_messages_get_a_named_refusal_or_a_right_answer() -> None:
    outcomes = fuzz(range(4), 150)
    assert sum(outcomes.values()) == 600
    # The fuzzer reached what is behind the envelope, on both sides.
    assert outcomes["malformed-message"] > 50
    assert outcomes["not-authenticated"] > 5
    assert outcomes["not-proved"] > 5
    assert outcomes["answered"] + outcomes["taken"] < 300
