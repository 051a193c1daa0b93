"""Were arms assigned evenly inside every node? What a journal shows of it.

Chance cannot be seen afterwards; what chance was allowed to decide can. The cohorts of
one draw have the same number of people, of every node the same up to one, and every
person is in one of them. All arms of a round are drawn together. An arm is drawn again
only after its cohort became void.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from wallflower.strategy.run.replay import RecordedFacts
from wallflower.strategy.store.chain import INVITED, VOID
from wallflower.strategy.store.entries import StoredCohort


def find_unbalanced(evidence: RecordedFacts) -> Iterator[str]:
    """Yield what is uneven in who got which arm."""
    draws: defaultdict[int, list[StoredCohort]] = defaultdict(list)
    rounds: defaultdict[int, list[StoredCohort]] = defaultdict(list)
    for cohort in evidence.cohorts:
        draws[cohort.draw].append(cohort)
        rounds[cohort.round_number].append(cohort)
    for number, cohorts in sorted(draws.items()):
        asked = [evidence.invited.get(one.cohort_id, {}) for one in cohorts]
        yield from _within(f"draw {number}", cohorts, asked)
    for number, cohorts in sorted(rounds.items()):
        yield from _together(f"round {number}", cohorts)
    yield from _redrawn(evidence)


def _within(
    where: str,
    cohorts: Sequence[StoredCohort],
    asked: Sequence[Mapping[str, tuple[str, ...]]],
) -> Iterator[str]:
    """Compare the cohorts of one draw."""
    if len({cohort.round_number for cohort in cohorts}) > 1:
        yield f"{where} has cohorts of several rounds"
    if len({cohort.arm for cohort in cohorts}) < len(cohorts):
        yield f"{where} has two cohorts of one arm"
    sizes = [sum(map(len, users.values())) for users in asked]
    if max(sizes) > min(sizes):
        yield f"{where}: its cohorts have {min(sizes)} to {max(sizes)} people"
    for node_id in sorted(set().union(*asked)):
        given = [users.get(node_id, ()) for users in asked]
        fewest, most = min(map(len, given)), max(map(len, given))
        if most > fewest + 1:
            yield (
                f"{where}: node {node_id} gives {fewest} people to one arm and {most} "
                "to another"
            )
        person, times = Counter(u for users in given for u in users).most_common(1)[0]
        if times > 1:
            yield f"{where}: user {node_id}/{person} is in {times} of its cohorts"


def _together(where: str, cohorts: Sequence[StoredCohort]) -> Iterator[str]:
    """See that a round's first draw has all of its arms."""
    first = min(cohort.draw for cohort in cohorts)
    drawn = {cohort.arm for cohort in cohorts if cohort.draw == first}
    for arm in sorted({cohort.arm for cohort in cohorts} - drawn):
        yield f"{where}: arm {arm} was not drawn together with the others"


def _redrawn(evidence: RecordedFacts) -> Iterator[str]:
    """See that every cohort of an arm was void before its next one was drawn."""
    cohorts = {cohort.cohort_id: cohort for cohort in evidence.cohorts}
    open_cohorts: dict[tuple[int, int], str] = {}  # by round and arm
    for entry in evidence.links:
        if entry.kind not in (INVITED, VOID):
            continue
        cohort = cohorts[entry.subject]
        place = (cohort.round_number, cohort.arm)
        if entry.kind == VOID:
            open_cohorts.pop(place, None)
            continue
        if place in open_cohorts:
            yield (
                f"cohort {cohort.cohort_id} was drawn although {open_cohorts[place]} "
                "was not void"
            )
        open_cohorts[place] = cohort.cohort_id
