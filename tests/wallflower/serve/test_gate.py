"""By which network a caller is known, whatever stands in X-Forwarded-For."""

from __future__ import annotations

import pytest

from wallflower.serve.gate import CallerGate, VisitorLimits, read_proxies

PROXY, PROXYS = "10.0.0.7", "10.0.0.0/24"


@pytest.mark.parametrize(
    ("peer", "forwarded", "network"),
    [
        pytest.param(PROXY, ["198.51.100.7"], "198.51.100.0/24", id="plain"),
        pytest.param(PROXY, ["198.51.100.7:4711"], "198.51.100.0/24", id="port"),
        pytest.param(PROXY, ["[2001:db8::1]:4711"], "2001:db8::/64", id="port of IPv6"),
        pytest.param(PROXY, ["2001:db8::1"], "2001:db8::/64", id="IPv6"),
        pytest.param(PROXY, ["1.2.3.4, 198.51.100.7"], "198.51.100.0/24", id="spoofed"),
        pytest.param(PROXY, ["1.2.3.4", "198.51.100.7"], "198.51.100.0/24", id="twice"),
        pytest.param(
            PROXY, ["198.51.100.7, 10.0.0.8"], "198.51.100.0/24", id="two proxies"
        ),
        pytest.param(PROXY, ["unknown"], PROXYS, id="no address"),
        pytest.param(PROXY, ["1.2.3.4, x" * 100], PROXYS, id="garbage"),
        pytest.param(PROXY, [""], PROXYS, id="empty"),
        pytest.param(PROXY, [], PROXYS, id="nothing"),
        pytest.param("192.0.2.1", ["198.51.100.7"], "192.0.2.0/24", id="no proxy"),
    ],
)
def test_a_caller_is_known_by_what_a_proxy_says_and_nobody_else(
    peer: str, forwarded: list[str], network: str
) -> None:
    proxies = read_proxies(["10.0.0.0/28"])
    gate = CallerGate(VisitorLimits(), proxies, lambda: 0.0)
    assert gate.caller(peer, forwarded) == network
