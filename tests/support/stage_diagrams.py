"""Draw the stages of every secure sum from their one table: ``make diagrams``."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from wallflower.protocol.secure_sum.backends import (
    SEALED,
    SECAGG_PLUS,
    StageFacts,
    stages_of,
)

_HEAD = """# Stages of the secure sums

Written by `make diagrams` from `protocol/secure_sum/stages.py`; a test holds them
together. docs/secure-sums.md explains what is said in each stage. A stage ends when all
have answered or its deadline is over; whoever has not answered by then is lost. Until
the set is *closed*, a server that restarts begins the cohort's stage anew; afterwards
it asks the same again.
"""


def page() -> str:
    """Return the whole page."""
    parts = [_HEAD]
    for backend in (SECAGG_PLUS, SEALED):
        lines = "\n".join(_diagram(list(stages_of(backend).values())))
        parts.append(f"## `{backend}`\n\n```mermaid\n{lines}\n```\n")
    return "\n".join(parts)


def _diagram(stages: list[StageFacts]) -> Iterator[str]:
    yield "stateDiagram-v2"
    names = [stage.name for stage in stages]
    for before, after in zip(["[*]", *names], [*names, "summed"], strict=True):
        yield f"    {before} --> {after}"
    for stage in stages:
        yield f"    {stage.name} --> void: too few answered"
        for fact in _facts(stage):
            yield f"    {stage.name}: {fact}"
    yield "    summed --> [*]"
    yield "    void --> [*]"


def _facts(stage: StageFacts) -> Iterator[str]:
    yield f"{stage.name} ({stage.number})"
    yield "asks the committee" if stage.members_only else "asks everybody left"
    if stage.takes_reward:
        yield "users pull the arm first"
    if stage.states_roster:
        yield "says and binds who takes part"
    if stage.closed:
        yield "the set is closed"
    if stage.given_once:
        yield "one answer is given, once"


if __name__ == "__main__":
    sys.stdout.write(page())
