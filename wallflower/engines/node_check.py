"""``wallflower check`` on a node's own machine: is its home fit to join?"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from wallflower.clients.host.home import NodeHome
from wallflower.clients.host.outcome_counts import MANY_UNKNOWN, read_counts
from wallflower.clients.rewards.local import reward_source
from wallflower.engines.preflight import (
    FAIL,
    OK,
    WARN,
    CheckLine,
    judge_table,
    try_sources,
)
from wallflower.protocol.errors import UnavailableError, WallflowerError
from wallflower.protocol.numbers import counted
from wallflower.strategy.own_loop import run_to_end

_SOON_DAYS = 14


def check_home(path: Path) -> list[CheckLine]:
    """Look at a node's file, keys, ledger and reward source; nobody is asked."""
    try:
        home = NodeHome(path)
    except WallflowerError as error:
        return [CheckLine("node", FAIL, str(error), error)]
    lines = [CheckLine("node", OK, f"{home.name}, {path}")]
    for name, check in (
        ("keys", _keys),
        ("ledger", _ledger),
        ("rewards", _rewards),
        ("outcomes", _outcomes),
    ):
        try:
            lines += check(home)
        except WallflowerError as error:
            lines.append(CheckLine(name, FAIL, str(error), error))
    return lines


def _keys(home: NodeHome) -> Iterator[CheckLine]:
    certificate, trust = home.identity.certificate, home.trust()
    if certificate is None or trust is None:
        yield CheckLine(
            "keys",
            WARN,
            "no enrolment: this node believes that the server keeps to the protocol",
        )
        return
    days = (certificate.not_after - time.time()) / 86_400
    text = f"certificate {certificate.serial} is good for {counted(round(days), 'day')}"
    if certificate.serial in trust.revoked:
        raise UnavailableError(
            f"certificate {certificate.serial} is revoked; ask for a new one: "
            "wallflower keys"
        )
    if days <= 0:
        raise UnavailableError(f"{text}; ask for a new one: wallflower keys")
    soon = days < _SOON_DAYS
    text = f"{text}, {counted(certificate.capacity, 'user')}"
    people = len(home.find_users())
    if many := people > certificate.capacity:
        text += f"; {counted(people, 'user')} live here: ask for one for all of them"
    yield CheckLine("keys", WARN if soon or many else OK, text)


def _ledger(home: NodeHome) -> Iterator[CheckLine]:
    if not (home.path / "ledger.sqlite").exists():
        yield CheckLine("ledger", OK, "none yet: nobody here has spent anything")
        return
    with home.ledger() as ledger:
        run_to_end(ledger.check_writable())
    yield CheckLine("ledger", OK, "where its counter says")


def _rewards(home: NodeHome) -> Iterator[CheckLine]:
    settings, arms = home.file.rewards, home.file.node.arms
    if settings is None:
        yield CheckLine("rewards", OK, "none: a trustee has no users")
        return
    source = reward_source(settings, home.name, arms)
    run_to_end(try_sources([source], arms or ("",)))
    if settings.source == "table" and arms:
        yield from judge_table(settings, arms, [home.name])
        return
    about = f"every one of {len(arms)} arms" if arms else "no arm in particular"
    yield CheckLine("rewards", OK, f"{settings.source}: asked about {about}")


def _outcomes(home: NodeHome) -> Iterator[CheckLine]:
    """Say how many outcomes were not known so far; only the node's owner learns it."""
    counts = read_counts(home.path)
    missing = sum(counts.unknown.values())
    if not counts.shown:
        return
    text = f"{missing:,} of {counted(counts.shown, 'outcome')} not known so far"
    if missing:
        why = ", ".join(f"{n:,} {reason}" for reason, n in counts.unknown.items())
        text += f" ({why}), counted as rewards.if-unknown"
    often = missing > MANY_UNKNOWN * counts.shown
    yield CheckLine("outcomes", WARN if often else OK, text)
