"""When an answer leaves a page, which bytes, and how often."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.web_site import Site
from tests.browser.web.pages import STORED, WINDOW_S, held, join, posted, wait_until

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("outcome", [1, 0, None])
def test_no_outcome_decides_when_the_answer_leaves(
    new_page: Callable[..., Any], live: Site, outcome: int | None
) -> None:
    page = new_page()
    page.clock.install(time=0)
    page.clock.pause_at(1000)
    assert join(page, live, window=WINDOW_S)["measured"]
    polls = posted(page)
    page.clock.run_for("00:20")
    if outcome is not None:
        page.evaluate(f"() => {{ globalThis.became = seat.answer({outcome}); }}")
    page.clock.run_for("00:39")
    assert polls == []
    with page.expect_request("**/Poll"):
        page.clock.run_for("00:02")
    assert [bool(poll.answer) for poll in polls] == [True]
    page.wait_for_function("async () => await seat.answer(0) === 'taken'")


@pytest.mark.parametrize("outcome", [1, None])
def test_a_site_of_several_pages_sends_nothing_until_the_end_of_the_window(
    new_page: Callable[..., Any], live: Site, outcome: int | None
) -> None:
    """Whether an outcome was stated does not show, on the next page neither."""
    page = new_page()
    first = join(page, live, window=3, leaving="resume")
    if outcome is not None:
        page.evaluate(f"() => {{ void seat.answer({outcome}); }}")
    before, polls = live.answers(), posted(page)
    page.goto(f"{live.pages}/site.css?next")
    wait_until(page, lambda: not held(page))
    assert live.answers() == before
    polls.clear()
    again = join(page, live, window=3, leaving="resume")
    assert again["arm"] == first["arm"]
    assert again["measured"] == (outcome is None)
    assert again["spent"] == (1 if outcome is None else None)
    wait_until(page, lambda: live.answers() == before + 1)
    assert [bool(poll.answer) for poll in polls] == [True]


def test_calls_that_fail_are_repeated_with_the_same_bytes(
    new_page: Callable[..., Any], live: Site
) -> None:
    page, bodies = new_page(), list[bytes]()

    def fail_every_other(route: Any) -> None:
        if route.request.method == "POST":
            bodies.append(route.request.post_data_buffer)
        if len(bodies) % 2:
            route.abort()
        else:
            route.fallback()

    page.route("**/Poll", fail_every_other)
    assert join(page, live)["measured"]
    assert page.evaluate("seat.answer(1)") == "taken"
    assert [bodies.count(body) for body in bodies] == [2, 2, 2, 2]


def test_a_seat_is_asked_for_once_whatever_a_server_would_say_the_next_time(
    new_page: Callable[..., Any], live: Site
) -> None:
    page = new_page()
    first = join(page, live, window=WINDOW_S, leaving="resume")
    page.goto(f"{live.pages}/site.css?next")
    polls = posted(page)
    again = join(page, live, window=WINDOW_S, leaving="resume")
    assert (again["arm"], again["measured"]) == (first["arm"], True)
    assert polls == []
    assert page.evaluate(STORED)["spends"] == 1


def test_a_call_for_a_seat_takes_no_longer_than_a_page_can_wait(
    new_page: Callable[..., Any], live: Site
) -> None:
    page = new_page()
    page.evaluate("""() => {
      globalThis.limits = [];
      const timeout = AbortSignal.timeout.bind(AbortSignal);
      AbortSignal.timeout = (ms) => { limits.push(ms); return timeout(ms); };
    }""")
    assert join(page, live)["measured"]
    (longest,) = page.evaluate("limits")
    assert longest <= 8000


@pytest.mark.parametrize("invitation", ["x", "no invitation", "A" * 300])
def test_a_link_that_was_cut_short_leaves_the_page_as_everybody_sees_it(
    new_page: Callable[..., Any], live: Site, invitation: str
) -> None:
    page = new_page()
    polls = posted(page)
    found = join(page, live, invitation=invitation)
    assert (found["arm"], found["reason"]) == (None, "malformed-message")
    assert polls == []


def test_an_outcome_that_is_no_number_is_a_mistake_of_the_page(
    new_page: Callable[..., Any], live: Site
) -> None:
    """The text of a form's field would count as unknown, and nobody would notice."""
    page = new_page()
    assert join(page, live)["measured"]
    polls = posted(page)
    told = "() => seat.answer('1').catch((error) => error.message)"
    assert "no number" in page.evaluate(told)
    assert polls == []
    assert page.evaluate("seat.answer(1)") == "taken"
