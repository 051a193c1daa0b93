"""How long an event takes to the screen of the live page: ``make bench-page``.

A real run in this process, the page served by a process of its own, Chromium looking at
it. Every event is stamped when the server tells it; the browser notes when a frame that
shows it was drawn. Both read the same clock. Nothing is asserted: the numbers depend on
the machine and on what else it does.
"""

from __future__ import annotations

import asyncio
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from wallflower.engines.local import run_local
from wallflower.engines.registry import EngineJob
from wallflower.strategy.config import load_config
from wallflower.strategy.store import events
from wallflower.strategy.store.journal import Journal

EXPERIMENT = Path(__file__).parents[1] / "examples" / "headline.toml"
# Notes (events told, verified round) after every frame in which the page changed.
NOTE = """
() => {
  window.noted = [];
  const note = () => requestAnimationFrame(() => setTimeout(() => {
    const told = document.querySelector("[data-taken]").dataset.taken;
    const arms = document.querySelector("table.arms caption");
    const round = arms ? arms.textContent.match(/round (\\d+)/)[1] : 0;
    const checked = document.querySelectorAll("td.timeline").length;
    window.noted.push([Date.now() / 1000, +told, +round, checked]);
  }));
  new MutationObserver(note).observe(document.body, {
    subtree: true, childList: true, attributes: true, characterData: true
  });
}
"""


async def main() -> None:
    """Run, look, print."""
    from playwright.async_api import async_playwright

    told: list[tuple[float, events.Event]] = []

    async def listen(event: events.Event) -> None:
        told.append((time.time(), event))

    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        config = load_config(EXPERIMENT)
        Journal.create(run_dir, "bench", config, "local").close()
        watching = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "wallflower", "watch", "--as-child", str(run_dir)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert watching.stdin is not None
        assert watching.stdout is not None
        address = (await watching.stdout.readline()).decode().strip()
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox"]
            )
            page = await browser.new_page()
            await page.goto(address)
            await page.evaluate(NOTE)
            await run_local(EngineJob(config, run_dir, "bench", listen))
            await page.get_by_text("is the best of").first.wait_for()
            noted = await page.evaluate("window.noted")
            await browser.close()
        watching.stdin.close()
        await watching.wait()
    report(told, noted)


def report(told: list[tuple[float, events.Event]], noted: list[list[Any]]) -> None:
    """Print the times from event to screen."""
    every = [_first(noted, 1, count) - at for count, (at, _) in enumerate(told, 1)]
    rounds = [
        (at, event.number)
        for at, event in told
        if isinstance(event, events.RoundFinished)
    ]
    arms = [_first(noted, 2, number) - at for at, number in rounds]
    verified = [_first(noted, 3, number) - at for at, number in rounds]
    for what, times in (
        ("an event, in the line of what goes on now", every),
        ("a finished round, in the arms", arms),
        ("a finished round, verified, in health", verified),
    ):
        print(
            f"{what}: median {statistics.median(times):.2f} s, "
            f"longest {max(times):.2f} s ({len(times)} seen)"
        )


def _first(noted: list[list[Any]], place: int, least: int) -> float:
    return next(float(row[0]) for row in noted if row[place] >= least)


if __name__ == "__main__":
    asyncio.run(main())
