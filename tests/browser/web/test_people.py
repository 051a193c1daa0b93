"""People in Chromium finish a run: the right winner, and every sum exact."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.web_site import LiveSite, Site, experiment
from tests.browser.web.pages import CLEAR, STORED, join
from tests.support.web.vectors import ListedBits
from wallflower.clients.node.randomizer import real_randomizer
from wallflower.protocol.cohort import cohort_mechanism
from wallflower.protocol.wire.node_pb2 import NodeRequest
from wallflower.strategy.store.journal import Journal

pytestmark = pytest.mark.browser


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
SAY_YES = {"short-form": 8, "long-form": 3}  # of ten people


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
        assert site.refusals() == 0
    assert len(results) >= 2
    assert results == {cohort: sums[cohort] for cohort in results}


def fill(context: Any, live: Site) -> dict[str, int]:
    """Let people come one after another until the run is over; return the sums.

    Each comes to a document of their own, in a browser that holds nothing.
    """
    sums: dict[str, int] = {}
    begun, took, seen = time.monotonic(), 0, dict.fromkeys(SAY_YES, 0)
    context.add_init_script(NOTE_WORDS)
    page = context.new_page()
    while True:
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
    seconds = time.monotonic() - begun
    print(f"{took} people in Chromium, {seconds:.0f} s, winner {found['arm']['name']}")
    assert found["arm"]["name"] == "short-form"
    return sums


def answer(page: Any, arm: str, seen: dict[str, int]) -> tuple[str, int]:
    """Answer as the arm's next person; return the cohort and what they added to it."""
    outcome = float(seen[arm] % 10 < SAY_YES[arm])
    seen[arm] += 1
    request = page.evaluate(STORED)["runs"][0]["request"]
    assert page.evaluate("(outcome) => seat.answer(outcome)", outcome) == "taken"
    assert page.evaluate(STORED)["runs"][0]["request"] == ""  # forgotten
    return expected_value(request, page.evaluate("drawn"), outcome)
