"""Servers that lie to a page: refused by the code that Python has, never answered."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.web_site import Site
from tests.browser.web.pages import CLEAR, Values, answer_polls, join
from tests.support.web.drawn_seats import honest_seat, request_of
from tests.support.web.vectors import SAMPLE
from wallflower.protocol.wire.visitors_pb2 import Seat, VisitorPoll, VisitorReply

pytestmark = pytest.mark.browser


# A page that nobody invited draws its own name: here the one that the seat is for.
NAMED = """(name) => {
  const bytes = name.match(/../g).map((pair) => parseInt(pair, 16));
  const fill = crypto.getRandomValues.bind(crypto);
  crypto.getRandomValues = (into) => {
    fill(into);
    if (into.length === bytes.length) into.set(bytes);
    return into;
  };
}"""


def lies() -> list[Values]:
    """The shared table of refusals, as far as a fresh page can be sent it."""
    cases: list[Values] = json.loads((SAMPLE / "seat.json").read_text())
    return [
        case
        for case in cases
        if not case["in"]["history"]
        and (case["in"]["admission"] == "open") == (case["in"]["invitation"] is None)
        and case["in"]["visitor"] != "somebody-else"
    ]


def options_of(given: Values) -> Values:
    """Return what the page of a case calls `join` with."""
    names = ("run", "invitation", "policy", "admission", "enrolmentKey", "revoked")
    options = {name: given[name] for name in names if given[name]}
    if given["range"]:
        options["range"] = dict(
            zip(("low", "high", "unit"), given["range"], strict=True)
        )
    if given["windowMs"]:
        options["window"] = given["windowMs"] / 1000
    return options


class LyingServer:
    """Answers the polls of a page that begins anew for every lie."""

    def __init__(self, page: Any, live: Site) -> None:
        self.page, self.live = page, live
        self.posts: list[VisitorPoll] = []

    def say(self, reply: bytes) -> None:
        """Forget what came before; the next page hears this."""
        self.page.unroute_all()
        self.page.goto(f"{self.live.pages}/site.css?{len(reply)}")
        self.page.evaluate(CLEAR)
        self.posts = []
        answer_polls(self.page, self.posts, reply)


@pytest.mark.timeout(900)  # some 140 pages, half a second each
def test_no_lie_of_a_server_is_answered(
    new_page: Callable[..., Any], live: Site
) -> None:
    refused: dict[str, list[str]] = {}
    page = new_page()
    server = LyingServer(page, live)
    for case in lies():
        given, code = case["in"], case["out"]["code"]
        seat = Seat(request=bytes.fromhex(given["request"]), arms=given["arms"])
        server.say(VisitorReply(seat=seat).SerializeToString())
        page.evaluate(f"() => {{ Date.now = () => {given['now'] * 1000}; }}")
        if given["invitation"] is None:
            page.evaluate(NAMED, given["visitor"])
        found = join(page, live, **options_of(given))
        if code == "accepted":
            assert found["measured"], (given["why"], found["reason"])
        else:
            assert (found["measured"], found["reason"]) == (False, code)
            assert page.evaluate("seat.answer(1)") == code
            assert [bool(poll.answer) for poll in server.posts] == [False]
            refused.setdefault(code, []).append(given["why"])
    for code, why in sorted(refused.items()):
        print(f"{code}: {len(why)} refused, 0 answered ({', '.join(sorted(why))})")
    print(f"{sum(map(len, refused.values()))} lies, {len(refused)} codes, 0 answered")
    assert len(refused) >= 20


def replies() -> list[Values]:
    """The shared table of what a server may say to an arrival, and more than it may."""
    cases: list[Values] = json.loads((SAMPLE / "reply.json").read_text())
    said = [case for case in cases if not case["in"]["answering"]]
    large = {"policy": {}, "body": bytes(2**20 + 1).hex()}
    return [*said, {"in": large, "out": {"code": "malformed-message"}}]


@pytest.mark.timeout(300)
def test_what_a_server_says_instead_of_a_seat_is_refused_by_the_same_code(
    new_page: Callable[..., Any], live: Site
) -> None:
    page = new_page()
    server = LyingServer(page, live)
    for case in replies():
        given, out = case["in"], case["out"]
        if not out or "again" in out:
            continue
        server.say(bytes.fromhex(given["body"]))
        found = join(page, live, policy=given["policy"])
        shown = found["arm"]["name"] if found["arm"] else None
        expected = out.get("arm"), out.get("reason", out.get("code"))
        assert (shown, found["reason"]) == expected
        assert not found["measured"]
        assert page.evaluate("seat.answer(1)") == found["reason"]
        assert [bool(poll.answer) for poll in server.posts] == [False]


def test_noise_that_a_page_would_choke_on_is_not_listed(
    new_page: Callable[..., Any], live: Site
) -> None:
    """A server may state a cohort of billions of people: a table of gigabytes."""
    page, posts = new_page(), list[VisitorPoll]()
    dice = random.Random(1)
    while True:
        given, _, spec, note = honest_seat(dice)
        if given["invitation"] and not given["enrolmentKey"]:
            break
    spec.mechanism, spec.cohort_size, spec.modulus = "dist-dp", 4 * 10**9, 2**60
    spec.quorum, spec.honest_floor = 3 * 10**9, 2 * 10**9
    request = request_of(spec, note, given["visitor"])
    seat = Seat(request=request.SerializeToString(), arms=given["arms"])
    reply = VisitorReply(seat=seat).SerializeToString()
    answer_polls(page, posts, reply)
    found = join(page, live, **options_of(given))
    assert (found["measured"], found["reason"]) == (False, "not-possible")
    assert [bool(poll.answer) for poll in posts] == [False]
