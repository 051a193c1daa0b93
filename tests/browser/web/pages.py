"""What pages of a website do with the browser's client, and what leaves them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from benchmarks.web_site import Site
from wallflower.protocol.wire.visitors_pb2 import VisitorPoll

Values = dict[str, Any]
WINDOW_S = 60.0
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


CLEAR = """() => new Promise((resolve) => {
  const done = indexedDB.deleteDatabase("wallflower");
  done.onsuccess = done.onerror = resolve;
})"""


def posted(page: Any) -> list[VisitorPoll]:
    """Collect the polls that leave a page from now on."""
    polls = list[VisitorPoll]()

    def note(request: Any) -> None:
        if request.method == "POST":
            polls.append(VisitorPoll.FromString(request.post_data_buffer))

    page.on("request", note)
    return polls


def join(page: Any, live: Site, **options: object) -> Values:
    found: Values = page.evaluate(JOIN, {"server": live.server, "options": options})
    return found


def wait_until(page: Any, true: Callable[[], bool]) -> None:
    until = time.monotonic() + 300
    while not true() and time.monotonic() < until:
        page.wait_for_timeout(50)
    assert true()


def held(page: Any) -> bool:
    """Whether some page of this profile holds the right to answer."""
    names = "async () => (await navigator.locks.query()).held.map((one) => one.name)"
    return any("answer" in name for name in page.evaluate(names))


def answer_polls(page: Any, posts: list[VisitorPoll], reply: bytes) -> None:
    def answer(route: Any) -> None:
        request = route.request
        headers = {"Access-Control-Allow-Origin": "*"}
        headers["Access-Control-Allow-Headers"] = "*"
        if request.method == "POST":
            posts.append(VisitorPoll.FromString(request.post_data_buffer))
        route.fulfill(status=200, headers=headers, body=reply)

    page.route("**/wallflower.v1.VisitorService/Poll", answer)
