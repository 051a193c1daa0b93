"""What must hold of a world whatever happened in it, looked up in its files."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.support.world.deployments import LEDGER
from tests.support.world.disk import ledger_rows
from tests.support.world.population import PRECISION, known_of, users_of
from tests.support.world.schedule import SERVER, SHUFFLE, Schedule, node_names
from wallflower.clients.node.randomizer import seeded_randomizer
from wallflower.protocol.cohort import cohort_mechanism
from wallflower.protocol.errors import WallflowerError
from wallflower.protocol.wire.cohort_pb2 import CohortSpec
from wallflower.strategy.bandit.elimination import Elimination
from wallflower.strategy.bandit.policies import policy_from_state
from wallflower.strategy.bandit.policy import USERS_EXHAUSTED
from wallflower.strategy.run.drawing import can_fill_round
from wallflower.strategy.run.registry import UserRegistry
from wallflower.strategy.run.verify import verify
from wallflower.strategy.store.entries import CohortRecord
from wallflower.strategy.store.journal import Journal

_Invited = Mapping[tuple[str, str], tuple[str, ...]]  # by cohort and node
_Spent = Mapping[tuple[str, str], tuple[str, ...]]


def finish_reason(folder: Path) -> str | None:
    """Return what the journal says about how the run ended."""
    try:
        with Journal.read(folder / SERVER) as journal:
            last = journal.last_round()
    except WallflowerError:
        return None
    return None if last is None else last.finished


def problems(
    schedule: Schedule, folder: Path, ended: str, shown: Collection[str] = ()
) -> list[str]:
    """Name everything that is wrong with what a world left behind.

    `shown` are the users who were shown an arm, by whatever process.
    """
    charged = {user for users in _ledgers(folder)[0].values() for user in users}
    wrong = [f"{user} was shown an arm and not charged" for user in {*shown} - charged]
    return wrong + _journal_problems(schedule, folder, ended)


def _journal_problems(schedule: Schedule, folder: Path, ended: str) -> list[str]:
    if not (folder / SERVER / "journal.sqlite").exists():
        return (
            ["a run ended before its journal was there"] if ended == "finished" else []
        )
    try:
        with Journal.read(folder / SERVER) as journal:
            found = list(_problems(schedule, folder, journal, ended))
    except WallflowerError as error:
        found = [f"the journal cannot be read: {error}"]
    return found


def _problems(
    schedule: Schedule, folder: Path, journal: Journal, ended: str
) -> Iterator[str]:
    invited = {(c, n): users for c, n, users in journal.invitations()}
    spent, spent_problems = _ledgers(folder)
    yield from spent_problems
    returned = {(c, n) for c, n, _ in journal.returned()}
    used = {key: users for key, users in invited.items() if key not in returned}
    yield from _twice(used)
    for cohort_id, node_id in returned & spent.keys():
        yield f"cohort {cohort_id}: users of {node_id} are returned, and have spent"
    yield from _spent_and_invited(spent, invited)
    yield from _sums(schedule, journal, spent)
    for check in verify(journal):
        yield from (f"verify: {check.name}: {problem}" for problem in check.problems)
    last = journal.last_round()
    reason = None if last is None else last.finished
    if ended == "finished" and reason is None:
        yield "a run ended as finished, and its journal is not"
    forever = any(fault.kind == "endless-rewards" for fault in schedule.faults)
    if ended == "exit 3" or (ended == "exit 4" and not forever):
        yield f"not over after many resumes in quiet: {ended}"
    if reason == USERS_EXHAUSTED:
        yield from _exhaustion(schedule, journal, used)


def _ledgers(folder: Path) -> tuple[_Spent, list[str]]:
    spent: dict[tuple[str, str], tuple[str, ...]] = {}
    wrong = []
    for home in sorted(folder.iterdir()):
        for node_id, cohort_id, users in ledger_rows(home / LEDGER):
            if (cohort_id, node_id) in spent:
                wrong.append(f"{node_id} has spent twice for cohort {cohort_id}")
            spent[cohort_id, node_id] = tuple(json.loads(users))
    often = Counter(user for users in spent.values() for user in users)
    wrong += [f"{user} has spent {n} times" for user, n in often.items() if n > 1]
    return spent, wrong


def _twice(invited: _Invited) -> Iterator[str]:
    often = Counter(user for users in invited.values() for user in users)
    for user, times in often.items():
        if times > 1:
            yield f"{user} was invited {times} times"


def _spent_and_invited(spent: _Spent, invited: _Invited) -> Iterator[str]:
    for key, users in spent.items():
        if not set(users) <= set(invited.get(key, ())):
            yield f"cohort {key[0]}: users of {key[1]} have spent uninvited"


def _sums(schedule: Schedule, journal: Journal, spent: _Spent) -> Iterator[str]:
    for cohort in journal.cohorts():
        result = cohort.result
        if result is None:
            continue
        where = f"cohort {cohort.cohort_id}"
        users = [
            user
            for node_id in result.nodes
            for user in spent.get((cohort.cohort_id, node_id), ())
        ]
        if len(users) != result.survivors:
            yield f"{where}: {result.survivors} summed, {len(users)} in ledgers"
        if schedule.backend == SHUFFLE:
            sent = _sent(schedule, cohort, spent) % result.modulus
            if result.released != sent:
                yield f"{where}: the sum is {result.released}, its users give {sent}"
            continue
        total = sum(known_of(cohort.arm, user, schedule) for user in users)
        if (result.total, result.precision) != (total, PRECISION):
            yield f"{where}: the sum is {result.total}, its users give {total}"


def _sent(schedule: Schedule, cohort: CohortRecord, spent: _Spent) -> int:
    """Draw again what the users in a sum sent: their noise follows from the seed."""
    assert cohort.result is not None
    spec, total = CohortSpec.FromString(cohort.spec), 0
    for node_id in cohort.result.nodes:
        users = spent.get((cohort.cohort_id, node_id), ())
        values = [known_of(cohort.arm, user, schedule) for user in users]
        drawn_again = seeded_randomizer(schedule.seed, node_id)
        rewards = np.array(values, dtype=np.float64) / PRECISION
        total += drawn_again(spec, cohort_mechanism(spec), users, rewards)
    return total


def _exhaustion(schedule: Schedule, journal: Journal, used: _Invited) -> Iterator[str]:
    """Draw the next round's cohorts from everybody there is: that must fail.

    Shared out without chance, as a record can be held against: now and then chance
    would fill a round from the very last users where that rule does not.
    """
    config = journal.config
    registry = UserRegistry(config.privacy.max_participations, schedule.seed)
    for name in node_names(schedule.nodes):
        registry.add_node(name, users_of(name, schedule))
    by_node: defaultdict[str, list[str]] = defaultdict(list)
    for (_, node_id), users in used.items():
        by_node[node_id] += users
    registry.mark_invited(by_node.items())
    # What was requested when it stopped: as planned, or as few as are worth asking.
    state = {**journal.rounds()[-1].policy_state, "finished": None, "limit": None}
    policy = policy_from_state(state)
    assert isinstance(policy, Elimination)
    least = policy.spec.least_size(policy.batch)
    next_cohorts = [
        replace(cohort_request, size=least) for cohort_request in policy.next_cohorts()
    ]
    if can_fill_round(registry, config, next_cohorts):
        left = registry.remaining
        yield f"a run ended as {USERS_EXHAUSTED}, and {left} users were never asked"
