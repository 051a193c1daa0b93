"""A server that lies, and how its clients answer: shared by the rules' tests."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.secure_sums import (
    TENTH,
    Cohort,
    cohort_spec,
    names,
    open_cohort,
)
from wallflower.protocol.errors import (
    ProtocolError,
    RefusalError,
    WallflowerError,
    WrongContextError,
)
from wallflower.protocol.secure_sum.threat import Threat

LYING = Threat(TENTH, TENTH, malicious_server=True)
FIRST = {"secagg-plus": "advertise", "sealed": "seal"}
VALUE = {"secagg-plus": "share", "sealed": "seal"}


def fresh(backend: str, nodes: int = 6, **options: Any) -> Cohort:
    parties = names(nodes)
    spec_options = {
        key: options.pop(key)
        for key in ("quorum", "threat", "cohort_id", "modulus")
        if key in options
    }
    return open_cohort(
        cohort_spec(backend, parties, **spec_options), parties, **options
    )


def refusal(cohort: Cohort, party: str, body: bytes) -> WallflowerError:
    """The error with which a party refuses a message; its session is then dead."""
    with pytest.raises((RefusalError, ProtocolError)) as caught:
        cohort.answer(party, body)
    with pytest.raises(WrongContextError, match="the session is over"):
        cohort.clients[party].inspect(body).answer()
    return caught.value
