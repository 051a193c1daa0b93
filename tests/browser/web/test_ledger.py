"""The browser's ledger: written before the arm is shown, once for all tabs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.web_site import Site
from tests.browser.web.pages import CLEAR, JOIN, STORED, held, join, posted, wait_until

pytestmark = pytest.mark.browser


def test_a_person_takes_part_once_and_sees_the_same_arm_ever_after(
    new_page: Callable[..., Any], live: Site
) -> None:
    page = new_page()
    first = join(page, live)
    assert first["measured"]
    assert first["spent"] == 1
    assert page.evaluate("seat.answer(1)") == "taken"
    again = join(page, live)
    assert (again["measured"], again["reason"]) == (False, "already-answered")
    assert again["arm"] == first["arm"]
    stored = page.evaluate(STORED)
    assert (stored["spends"], stored["runs"][0]["stage"]) == (1, "done")


def test_the_spend_is_on_disk_before_the_arm_is_shown(
    new_page: Callable[..., Any], live: Site
) -> None:
    page = new_page()
    page.evaluate(
        "() => { IDBObjectStore.prototype.add = () => { throw new Error(); } }"
    )
    found = join(page, live)
    assert (found["arm"], found["reason"]) == (None, "ledger-unavailable")
    assert page.evaluate(STORED)["spends"] == 0


@pytest.mark.parametrize(
    "lack",
    [
        "Object.defineProperty(navigator, 'locks', { value: undefined })",
        "indexedDB.open = () => { throw new DOMException('', 'SecurityError'); }",
    ],
)
def test_where_there_is_no_ledger_nobody_takes_part_and_the_page_goes_on(
    new_page: Callable[..., Any], live: Site, lack: str
) -> None:
    page = new_page()
    polls = posted(page)
    page.evaluate(f"() => {{ {lack}; }}")
    found = join(page, live)
    assert (found["arm"], found["reason"]) == (None, "ledger-unavailable")
    assert polls == []


def test_a_ledger_that_is_deleted_in_the_middle_lets_no_answer_leave(
    new_page: Callable[..., Any], live: Site
) -> None:
    page = new_page()
    assert join(page, live)["measured"]
    page.evaluate(CLEAR)
    polls = posted(page)
    assert page.evaluate("seat.answer(1)") == "ledger-unavailable"
    assert polls == []


def test_a_page_that_is_left_after_the_ledger_was_deleted_sends_nothing(
    new_page: Callable[..., Any], live: Site
) -> None:
    page = new_page()
    assert join(page, live)["measured"]
    page.evaluate(CLEAR)
    before = live.answers()
    page.goto(f"{live.pages}/site.css?next")
    assert join(page, live)["measured"]  # as somebody new
    assert page.evaluate("seat.answer(1)") == "taken"
    assert live.answers() == before + 1


# A browser may release the locks of a page that it keeps for its "back" button.
STEAL = """async () => {
  const { held } = await navigator.locks.query();
  const { name } = held.find((lock) => lock.name.endsWith("answer"));
  await navigator.locks.request(name, { steal: true }, () => undefined);
}"""


def test_a_page_that_lost_its_lock_gives_no_second_answer(
    new_page: Callable[..., Any], live: Site
) -> None:
    page = new_page()
    options = {"window": 60, "leaving": "resume"}
    assert join(page, live, **options)["measured"]
    other = new_page(page.context)
    other.evaluate(STEAL)
    assert join(other, live, **options)["measured"]
    other.evaluate("() => { void seat.answer(1); }")
    wait_until(other, lambda: other.evaluate(STORED)["runs"][0]["stage"] == "answered")
    polls = posted(page)
    assert page.evaluate("seat.answer(0)") == "cohort-already-answered"
    assert polls == []
    assert other.evaluate(STORED)["runs"][0]["stage"] == "answered"


def test_a_page_that_may_have_answered_is_not_gone_on_with(
    new_page: Callable[..., Any], live: Site
) -> None:
    """Its answer left when the page did, but the disk knows nothing of it."""
    page, before = new_page(), live.answers()
    first = join(page, live, window=60)
    page.evaluate(
        "() => { IDBObjectStore.prototype.put = () => { throw new Error(); } }"
    )
    page.goto(f"{live.pages}/site.css?next")
    wait_until(page, lambda: live.answers() == before + 1 and not held(page))
    assert page.evaluate(STORED)["runs"][0]["stage"] == "open"
    found = join(page, live, window=60, leaving="resume")
    assert found["arm"] == first["arm"]
    assert (found["measured"], found["reason"]) == (False, "page-left")


def test_a_price_that_is_refused_is_written_down(
    new_page: Callable[..., Any], live: Site
) -> None:
    """Else a server could ask at one price after the other what a person has left."""
    page = new_page()
    found = join(page, live, policy={"largestTotalEpsilon": "1/2"})
    assert (found["measured"], found["reason"]) == (False, "budget-exceeded")
    stored = page.evaluate(STORED)
    assert (stored["spends"], stored["prices"]) == (0, 1)


def test_where_randomness_fails_nothing_leaves(
    new_page: Callable[..., Any], live: Site
) -> None:
    page = new_page()
    assert join(page, live)["measured"]
    polls = posted(page)
    page.evaluate("() => { crypto.getRandomValues = () => { throw new Error(); }; }")
    assert page.evaluate("seat.answer(1)") == "not-possible"
    assert polls == []
    assert page.evaluate(STORED)["runs"][0]["stage"] == "closed"


def test_noise_and_secrets_come_from_the_platforms_generator(
    new_page: Callable[..., Any], live: Site
) -> None:
    page = new_page()
    page.evaluate("() => { Math.random = () => { throw new Error(); }; }")
    assert join(page, live)["measured"]
    assert page.evaluate("seat.answer(1)") == "taken"


def test_terms_that_were_not_agreed_to_cost_nothing_and_send_nothing(
    new_page: Callable[..., Any], live: Site
) -> None:
    page, sent = new_page(), []
    page.on("request", lambda request: sent.append(request.method))
    found = join(page, live, policy={"largestEpsilon": "1/2"})
    assert (found["measured"], found["reason"]) == (False, "epsilon-too-large")
    assert page.evaluate("seat.answer(1)") == "epsilon-too-large"
    assert page.evaluate(STORED)["spends"] == 0
    assert sent.count("POST") == 1  # the arrival


def test_a_second_tab_shows_the_same_arm_and_does_not_count(
    new_page: Callable[..., Any], live: Site
) -> None:
    page = new_page()
    first = join(page, live)
    second = new_page(page.context)
    found = join(second, live)
    assert found["arm"] == first["arm"]
    assert (found["measured"], found["reason"]) == (False, "another-tab")
    assert page.evaluate("seat.answer(1)") == "taken"
    assert second.evaluate(STORED)["spends"] == 1


def test_two_tabs_at_once_take_one_seat(
    new_page: Callable[..., Any], live: Site
) -> None:
    pages = [new_page()]
    pages.append(new_page(pages[0].context))
    for page in pages:
        page.evaluate(
            f"(given) => {{ globalThis.joined = ({JOIN})(given); }}",
            {"server": live.server, "options": {}},
        )
    found = [page.evaluate("joined") for page in pages]
    assert sorted(one["measured"] for one in found) == [False, True]
    assert found[0]["arm"] == found[1]["arm"]
    assert pages[0].evaluate(STORED)["spends"] == 1


def test_a_killed_tab_loses_its_seat_and_never_answers_twice(
    new_page: Callable[..., Any], live: Site
) -> None:
    page = new_page()
    first, survivor = join(page, live), new_page(page.context)
    with pytest.raises(Exception, match="crash"):
        page.goto("chrome://crash")
    wait_until(survivor, lambda: not held(survivor))
    found = join(survivor, live)
    assert found["arm"] == first["arm"]
    assert (found["measured"], found["reason"]) == (False, "page-left")
    assert survivor.evaluate(STORED)["spends"] == 1


def test_an_answer_waits_while_the_device_is_offline(
    new_page: Callable[..., Any], live: Site
) -> None:
    page = new_page()
    join(page, live)
    page.context.set_offline(True)
    page.evaluate("() => { globalThis.became = seat.answer(1); }")
    page.wait_for_timeout(1500)
    assert page.evaluate(STORED)["runs"][0]["stage"] == "answered"
    page.context.set_offline(False)
    assert page.evaluate("became") == "taken"


def test_leaving_the_page_sends_what_is_known(
    new_page: Callable[..., Any], live: Site
) -> None:
    page = new_page()
    join(page, live)
    before = live.answers()
    page.goto("about:blank")
    wait_until(page, lambda: live.answers() == before + 1)
    page.goto(f"{live.pages}/site.css")
    found = join(page, live)
    assert found["reason"] == "page-left"
    assert live.answers() == before + 1


def test_leaving_the_page_begins_no_work_on_the_disk(
    new_page: Callable[..., Any], live: Site
) -> None:
    """WebKit sets the page aside, work and all: every other page would wait for it."""
    page = new_page()
    join(page, live)
    page.evaluate("""() => {
      const begin = IDBDatabase.prototype.transaction;
      IDBDatabase.prototype.transaction = function (...given) {
        localStorage.setItem("late", "yes");
        return begin.apply(this, given);
      };
    }""")
    before = live.answers()
    page.goto(f"{live.pages}/site.css?next")
    wait_until(page, lambda: live.answers() == before + 1)
    assert page.evaluate("localStorage.getItem('late')") is None


# Work on the ledger that goes on until `release` is called.
HOLD = """() => new Promise((resolve) => {
  const opening = indexedDB.open("wallflower");
  opening.onsuccess = () => {
    const runs = opening.result.transaction(["runs"], "readwrite").objectStore("runs");
    let held = true;
    globalThis.release = () => { held = false; };
    const again = () => { if (held) runs.count().onsuccess = again; };
    runs.count().onsuccess = () => { resolve(); again(); };
  };
})"""


def test_a_page_does_not_wait_for_ever_for_a_ledger_that_another_holds(
    new_page: Callable[..., Any], live: Site
) -> None:
    page = new_page()
    other = new_page(page.context)
    assert join(page, live, window=60, leaving="resume")["measured"]
    page.evaluate(HOLD)
    other.clock.install()
    other.evaluate(
        f"""(given) => {{
          ({JOIN})(given).then((found) => {{ globalThis.found = found; }});
        }}""",
        {"server": live.server, "options": {}},
    )
    for _ in range(100):
        other.clock.run_for("00:01")
        if found := other.evaluate("globalThis.found ?? null"):
            break
    assert (found["arm"], found["reason"]) == (None, "ledger-unavailable")
    page.evaluate("release()")


def test_work_on_the_ledger_ends_when_the_page_is_set_aside(
    new_page: Callable[..., Any], live: Site
) -> None:
    page = new_page()
    other = new_page(page.context)
    assert join(page, live, window=60, leaving="resume")["measured"]
    other.evaluate(HOLD)
    page.evaluate("""() => {
      seat.answer(1).then((became) => { globalThis.became = became; });
      dispatchEvent(new PageTransitionEvent("pagehide", { persisted: true }));
    }""")
    wait_until(page, lambda: page.evaluate("globalThis.became ?? null") is not None)
    other.evaluate("release()")
    assert page.evaluate("became") == "ledger-unavailable"
    assert page.evaluate(STORED)["runs"][0]["stage"] == "open"


def test_cleared_storage_makes_somebody_new_where_anybody_may_come(
    new_page: Callable[..., Any], live: Site
) -> None:
    page = new_page()
    assert join(page, live)["measured"]
    assert page.evaluate("seat.answer(1)") == "taken"
    before = page.evaluate(STORED)["runs"][0]["visitor"]
    page.evaluate("() => indexedDB.deleteDatabase('wallflower')")
    other = new_page(page.context)
    page.close()
    other.context.new_cdp_session(other).send(
        "Storage.clearDataForOrigin", {"origin": live.pages, "storageTypes": "all"}
    )
    assert join(other, live)["measured"]
    assert other.evaluate(STORED)["runs"][0]["visitor"] != before


@pytest.mark.parametrize("off", [-3600e3, 3600e3])
def test_a_clock_an_hour_off_changes_nothing(
    new_page: Callable[..., Any], live: Site, off: float
) -> None:
    page = new_page()
    page.evaluate(f"() => {{ const now = Date.now; Date.now = () => now() + {off}; }}")
    assert join(page, live)["measured"]
    assert page.evaluate("seat.answer(1)") == "taken"
