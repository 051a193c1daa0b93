"""Hostile calls by the thousand; `make soak-grpc` makes 100,000 of them."""

from __future__ import annotations

import pytest

from tests.integration.grpc_abuse import abuse, check


@pytest.mark.slow  # two thousand calls over TLS against a server in its own process
async def test_two_thousand_hostile_calls_are_refused_by_name_and_leave_no_trace() -> (
    None
):
    result = await abuse(2_000)
    check(result, 2_000)
    assert len(result["statuses"]) >= 8
