"""The browser's client in Chromium, against a real run: seats, answers, trustees, sums.

`make web` builds the client first. Pages and the run's server are different origins.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.web_site import PAGES, LiveSite, Site, experiment
from tests.browser.looks import fits
from tests.support.web.vectors import SAMPLE, ListedBits
from wallflower.clients.node.randomizer import real_randomizer
from wallflower.protocol.cohort import cohort_mechanism
from wallflower.protocol.wire.node_pb2 import NodeRequest
from wallflower.protocol.wire.visitors_pb2 import Seat, VisitorPoll, VisitorReply
from wallflower.strategy.store.journal import Journal

pytestmark = pytest.mark.browser

Values = dict[str, Any]
ROOT = Path(__file__).parents[2]
# Notes every word of 64 bits that the client draws.
NOTE_WORDS = """
  globalThis.drawn = [];
  const fill = crypto.getRandomValues.bind(crypto);
  crypto.getRandomValues = (into) => {
    fill(into);
    if (into instanceof BigUint64Array) globalThis.drawn.push(String(into[0]));
    return into;
  };
"""
JOIN = """async ({ server, options }) => {
  const { join } = await import(`${server}/wallflower.js`);
  globalThis.seat = await join({ server, run: "onboarding", ...options });
  const { arm, measured, reason, spent } = globalThis.seat;
  return { arm, measured, reason, spent };
}"""
STORED = """() => new Promise((resolve) => {
  const opening = indexedDB.open("wallflower");
  opening.onsuccess = () => {
    const names = ["spends", "prices", "runs"];
    const work = opening.result.transaction(names);
    const found = names.map((name) => work.objectStore(name).getAll());
    work.oncomplete = () => {
      const [spends, prices, runs] = found.map((one) => one.result);
      const pair = (byte) => byte.toString(16).padStart(2, "0");
      const hex = (body) => Array.from(body, pair).join("");
      const plain = ({ run, visitor, stage, request }) =>
        ({ run, visitor, stage, request: hex(request) });
      resolve({ spends: spends.length, prices: prices.length, runs: runs.map(plain) });
      opening.result.close();
    };
  };
})"""


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(PAGES, folder / "pages")
    with LiveSite(experiment(), folder, folder / "pages") as site:
        yield site


@pytest.fixture
def new_page(browser: Any, live: Site) -> Iterator[Callable[..., Any]]:
    """Open pages of people who share nothing; each has a profile of its own."""
    opened = []

    def page(context: Any = None) -> Any:
        if context is None:
            context = browser.new_context()
            opened.append(context)
        found = context.new_page()
        found.goto(f"{live.pages}/site.css")  # a page of the site without its script
        return found

    yield page
    for context in opened:
        context.close()


def join(page: Any, live: Site, **options: object) -> Values:
    found: Values = page.evaluate(JOIN, {"server": live.server, "options": options})
    return found


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
    with pytest.raises(Exception, match="Error"):
        join(page, live)
    assert page.evaluate(STORED)["spends"] == 0


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
    until = time.monotonic() + 300
    while live.answers() == before and time.monotonic() < until:
        page.wait_for_timeout(100)
    assert live.answers() == before + 1
    page.goto(f"{live.pages}/site.css")
    found = join(page, live)
    assert found["reason"] in ("already-answered", "page-left")


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


def test_a_clock_an_hour_off_changes_nothing(
    new_page: Callable[..., Any], live: Site
) -> None:
    page = new_page()
    page.evaluate("() => { const now = Date.now; Date.now = () => now() - 3600e3; }")
    assert join(page, live)["measured"]
    assert page.evaluate("seat.answer(1)") == "taken"


# --- servers that lie -----------------------------------------------------------------


def lies() -> list[Values]:
    """The shared table of refusals, as far as a fresh page can be sent it.

    A page draws its own name where anybody may come: seats of invited people fit.
    """
    cases: list[Values] = json.loads((SAMPLE / "seat.json").read_text())
    return [
        case
        for case in cases
        if case["in"]["invitation"]
        and not case["in"]["history"]
        and case["in"]["admission"] != "open"
        and case["in"]["visitor"] != "somebody-else"
    ]


def options_of(given: Values) -> Values:
    """Return what the page of a case calls `join` with."""
    names = ("run", "invitation", "policy", "admission", "enrolmentKey")
    options = {name: given[name] for name in names if given[name]}
    if given["range"]:
        options["range"] = dict(
            zip(("low", "high", "unit"), given["range"], strict=True)
        )
    if given["windowMs"]:
        options["window"] = given["windowMs"] / 1000
    return options


def test_no_lie_of_a_server_is_answered(browser: Any, live: Site) -> None:
    refused: dict[str, int] = {}
    for case in lies():
        given, code = case["in"], case["out"]["code"]
        context = browser.new_context()
        page, posts = context.new_page(), list[VisitorPoll]()
        seat = Seat(request=bytes.fromhex(given["request"]), arms=given["arms"])
        reply = VisitorReply(seat=seat).SerializeToString()
        _answer_polls(page, posts, reply)
        page.goto(f"{live.pages}/site.css")
        page.evaluate(f"() => {{ Date.now = () => {given['now'] * 1000}; }}")
        found = join(page, live, **options_of(given))
        if code == "accepted":
            assert found["measured"]
        else:
            assert (found["measured"], found["reason"]) == (False, code)
            assert page.evaluate("seat.answer(1)") == code
            assert [bool(poll.answer) for poll in posts] == [False]
            refused[code] = refused.get(code, 0) + 1
        context.close()
    print(f"{sum(refused.values())} lies, {len(refused)} codes, 0 answered: {refused}")
    assert len(refused) >= 12


def _answer_polls(page: Any, posts: list[VisitorPoll], reply: bytes) -> None:
    def answer(route: Any) -> None:
        request = route.request
        headers = {"Access-Control-Allow-Origin": "*"}
        headers["Access-Control-Allow-Headers"] = "*"
        if request.method == "POST":
            posts.append(VisitorPoll.FromString(request.post_data_buffer))
        route.fulfill(status=200, headers=headers, body=reply)

    page.route("**/wallflower.v1.VisitorService/Poll", answer)


# --- the website of the example -------------------------------------------------------


@pytest.mark.parametrize("width", [390, 1200])
@pytest.mark.parametrize("name", ["index", "survey"])
def test_the_example_fits_is_accessible_and_takes_an_answer(
    browser: Any, live: Site, name: str, width: int
) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{live.pages}/{name}.html")
    page.wait_for_selector("#form:visible")
    fits(page, width, f"web-{name}")
    assert "You count in this test" in page.inner_text("#note")
    before = live.answers()
    if name == "survey":
        page.get_by_label("so so").check()
        page.get_by_role("button", name="Answer").click()
    else:
        page.get_by_role("button", name="Not now").click()
    assert page.inner_text("#done")
    until = time.monotonic() + 300
    while live.answers() == before and time.monotonic() < until:
        page.wait_for_timeout(100)
    assert live.answers() == before + 1
    context.close()


def test_the_snippet_of_the_docs_works_under_its_policy_and_integrity(
    browser: Any, live: Site
) -> None:
    text = (ROOT / "docs" / "web.md").read_text(encoding="utf-8")
    (snippet,) = re.findall(r"```html\n(.*?)```", text, re.S)
    script = ROOT / "clients" / "web" / "dist" / "wallflower.js"
    for good in (True, False):
        digest = hashlib.sha384(script.read_bytes() if good else b"other").digest()
        body = snippet.replace("https://ab.example", live.server)
        body = body.replace("sha384-…", f"sha384-{base64.b64encode(digest).decode()}")
        policy = f"script-src 'unsafe-inline' {live.server}; connect-src {live.server}"
        before = f"""<!doctype html><title></title><form id="form"></form>
          <meta http-equiv="Content-Security-Policy" content="{policy}">
          <script>function show(arm) {{ document.title = arm; }}</script>"""
        where = live.run_dir.parent / "pages" / "snippet.html"
        where.write_text(before + body, encoding="utf-8")
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"{live.pages}/snippet.html")
        until = time.monotonic() + (60 if good else 2)
        while not page.title() and time.monotonic() < until:
            page.wait_for_timeout(100)
        assert (page.title() in ("short-form", "long-form")) == good
        context.close()


# --- a thousand people ----------------------------------------------------------------


SAY_YES = {"short-form": 8, "long-form": 3}  # of ten people
CLEAR = """() => new Promise((resolve) => {
  const done = indexedDB.deleteDatabase("wallflower");
  done.onsuccess = done.onerror = resolve;
})"""


def expected_value(request: str, words: list[str], outcome: float) -> tuple[str, int]:
    """Return a seat's cohort and what Python adds for the words that the page drew."""
    spec = NodeRequest.FromString(bytes.fromhex(request)).tasks[0].stage.spec
    randomize = real_randomizer(ListedBits(words[-2:]))
    mechanism = cohort_mechanism(spec)
    return spec.cohort_id, randomize(spec, mechanism, ("x",), np.array([outcome]))


@pytest.mark.timeout(3600)  # a second a person, on a busy machine more
def test_people_in_chromium_finish_a_run_and_every_sum_is_exact(
    browser: Any, tmp_path: Path
) -> None:
    people = int(os.environ.get("PEOPLE", "60"))  # of the first round
    with LiveSite(experiment(people), tmp_path) as site:
        sums = fill(browser.new_context(), site)
        results = {
            one.cohort_id: one.result.total
            for one in Journal.read(site.run_dir).cohorts()
            if one.result is not None
        }
    assert len(results) >= 2
    assert results == {cohort: sums[cohort] for cohort in results}


def fill(context: Any, live: Site) -> dict[str, int]:
    """Let people come one after another until the run is over; return the sums.

    Each comes to a page of their own, in a browser that holds nothing.
    """
    sums: dict[str, int] = {}
    begun, took, seen = time.monotonic(), 0, dict.fromkeys(SAY_YES, 0)
    context.add_init_script(NOTE_WORDS)
    while True:
        page = context.new_page()
        page.goto(f"{live.pages}/site.css")
        page.evaluate(CLEAR)
        found = join(page, live)
        if found["reason"] == "run-over":
            break
        if found["reason"] == "no-free-seat":
            page.wait_for_timeout(200)
        else:
            assert found["measured"], found
            cohort, value = answer(page, found["arm"]["name"], seen)
            sums[cohort] = sums.get(cohort, 0) + value
            took += 1
        page.close()
    seconds = time.monotonic() - begun
    print(f"{took} people in Chromium, {seconds:.0f} s, winner {found['arm']['name']}")
    assert found["arm"]["name"] == "short-form"
    return sums


def answer(page: Any, arm: str, seen: dict[str, int]) -> tuple[str, int]:
    """Answer as the arm's next person; return the cohort and what they added to it."""
    outcome = float(seen[arm] % 10 < SAY_YES[arm])
    seen[arm] += 1
    assert page.evaluate("(outcome) => seat.answer(outcome)", outcome) == "taken"
    request = page.evaluate(STORED)["runs"][0]["request"]
    return expected_value(request, page.evaluate("drawn"), outcome)
