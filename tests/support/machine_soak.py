"""Secure-sum machines alone, for minutes: ``make soak-machines``.

Seeded fault schedules of every back-end (SCHEDULES= each, KINDS= some of them), then
MESSAGES= changed messages to both sides of sealed sums. Says how far it is, and at the
end what happened; the first wrong outcome ends it with its seed and exit code 1.
"""

from __future__ import annotations

import logging
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterator

from tests.support.sealed_fuzz import fuzz
from tests.support.secure_sum_faults import Tally, run_schedules
from tests.support.secure_sums import NODE_BACKENDS

_FIRST = 1000  # the first seeds are those of `make test`
_SCHEDULES_AT_ONCE = 100
_MESSAGES_AT_ONCE = 250  # of one seed: one dealing, one cohort


def _schedules(job: tuple[range, str]) -> Tally:
    logging.disable(logging.WARNING)
    seeds, backend = job
    return run_schedules(seeds, (backend,))


def _messages(job: tuple[int, int]) -> Counter[str]:
    logging.disable(logging.WARNING)
    seed, messages = job
    return fuzz(range(seed, seed + 1), messages)


def _describe(what: str, done: int, of: int, began: float) -> None:
    passed = time.monotonic() - began
    print(f"{what}: {done:,} of {of:,} after {passed:.0f} s", flush=True)


def _chunks(count: int, size: int) -> Iterator[tuple[int, int]]:
    for start in range(0, count, size):
        yield start, min(size, count - start)


def _counted(found: Counter[str]) -> str:
    return ", ".join(f"{word} {count:,}" for word, count in found.most_common())


def main(schedules: int, messages: int, backends: list[str]) -> None:
    """Run everything over all processors; raises at the first wrong outcome."""
    verdict = []
    with multiprocessing.Pool() as pool:
        for backend in backends:
            began, done, whole = time.monotonic(), 0, Tally()
            jobs = [
                (range(_FIRST + start, _FIRST + start + size), backend)
                for start, size in _chunks(schedules, _SCHEDULES_AT_ONCE)
            ]
            for tally in pool.imap_unordered(_schedules, jobs):
                whole.sums += tally.sums
                whole.partial += tally.partial
                whole.voids.update(tally.voids)
                whole.injected.update(tally.injected)
                done = whole.sums + whole.voids.total()
                _describe(f"{backend}, schedules", done, schedules, began)
            if done != schedules:
                raise AssertionError(f"{done} of {schedules} schedules ended")
            verdict.append(
                f"{backend}: {done:,} schedules, {whole.sums:,} exact sums "
                f"({whole.partial:,} without everybody), no wrong one; no sum and why: "
                f"{_counted(whole.voids)}; faults: {_counted(whole.injected)}"
            )
        began, outcomes = time.monotonic(), Counter[str]()
        sent = list(enumerate(size for _, size in _chunks(messages, _MESSAGES_AT_ONCE)))
        for found in pool.imap_unordered(_messages, sent):
            outcomes.update(found)
            _describe("sealed, changed messages", outcomes.total(), messages, began)
    if outcomes.total() != messages:
        raise AssertionError(f"{outcomes.total()} of {messages} messages had an end")
    verdict.append(
        f"sealed: {messages:,} changed messages, each refused by name or answered "
        f"rightly: {_counted(outcomes)}"
    )
    print("\n".join(verdict))
    print("soak-machines: HELD")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:] or list(NODE_BACKENDS))
