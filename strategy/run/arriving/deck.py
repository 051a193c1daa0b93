"""The order in which a round's seats are given, and what is shown without a seat.

A deck consists of random permuted blocks: each holds every arm once. So at any moment
all arms have had the same number of people, up to one. Nobody who comes can tell which
arm is next, except who saw the arms of all others of a block: they know its last one.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set

from wallflower.strategy.bandit.policy import Policy
from wallflower.strategy.run.replay import RecordedFacts
from wallflower.strategy.store.entries import VOID
from wallflower.strategy.store.journal import Journal
from wallflower.strategy.store.seat_register import SeatRegister
from wallflower.strategy.store.seats import RUN_OVER, SeatedRecord, SeatRecord

# A worker that dies gives a seat back, which the next person gets. So the seats that
# were taken are the first of the deck, but for the last few.
_MOST_GAPS = 8


def shuffle_deck(
    cohort_ids: Sequence[str], seats: int, source: random.Random
) -> list[str]:
    """Return the cohort of every seat: `seats` blocks, each with every cohort once.

    Examples
    --------
    >>> deck = shuffle_deck(["a", "b", "c"], 2, random.Random(1))
    >>> sorted(deck[:3]), sorted(deck[3:])
    (['a', 'b', 'c'], ['a', 'b', 'c'])
    """
    deck: list[str] = []
    for _ in range(seats):
        block = list(cohort_ids)
        source.shuffle(block)
        deck += block
    return deck


def find_unfair_seats(evidence: RecordedFacts) -> Iterator[str]:
    """Yield what is uneven in who took which seat, and who was seated twice."""
    cohorts = {cohort.cohort_id: cohort for cohort in evidence.cohorts}
    decks: defaultdict[int, list[SeatedRecord]] = defaultdict(list)
    for one in evidence.seated.values():
        decks[one.deck].append(one)
    for number, mine in sorted(decks.items()):
        where = f"deck {number}"
        names = [one.cohort_id for one in mine]
        places = {(cohorts[name].round_number, cohorts[name].arm) for name in names}
        if len({round_number for round_number, _ in places}) > 1:
            yield f"{where} has cohorts of several rounds"
        if len(places) < len(names):
            yield f"{where} has two cohorts of one arm"
        for one in mine:
            if one.seats != evidence.specs[one.cohort_id].cohort_size:
                yield f"{where}: cohort {one.cohort_id} has {one.seats} seats"
        # Of an arm that was retired while a server was stopped, before the others.
        ended = {
            name
            for name in names
            if cohorts[name].state == VOID and cohorts[name].arm in evidence.retired
        }
        if all(one.is_closed for one in mine):
            yield from _unfair_deck(where, names, evidence.read_seats(names), ended)


def _unfair_deck(
    where: str,
    cohort_ids: Sequence[str],
    seats: Iterable[SeatRecord],
    ended: Set[str],
) -> Iterator[str]:
    """Look at every block of a closed deck; some cohorts `ended` before the others."""
    arms, everybody = len(cohort_ids), set[str]()
    block: list[str] = []
    taken, free, gaps = 0, 0, 0  # gaps: free seats before one that was taken
    for seat in seats:
        block.append(seat.cohort_id)
        if len(block) == arms:
            if len(set(block)) < arms:
                yield f"{where}: a block of its seats has an arm twice"
            block = []
        if seat.visitor is None:
            free += seat.cohort_id not in ended
            continue
        gaps = free
        taken += 1
        if seat.visitor in everybody:
            yield f"{where}: visitor {seat.visitor} has two of its seats"
        everybody.add(seat.visitor)
    if block:
        yield f"{where}: its last block lacks an arm"
    if gaps > _MOST_GAPS + taken // 1000:
        yield f"{where}: {gaps} seats stayed free although later ones were taken"


def show_leader(register: SeatRegister, policy: Policy, reason: str) -> None:
    """Show whoever gets no seat what the policy gives people who are not measured."""
    register.show_unmeasured(next(iter(policy.assignment(1))), reason)


def end_seats(journal: Journal, policy: Policy) -> None:
    """Give no more seats of a run that somebody ended while no server worked on it."""
    if journal.config.visitors is None:
        return
    register = SeatRegister(journal.database)
    still_open = list(register.count_seats())
    register.close_seats(still_open)
    register.forget_contributions(still_open)
    show_leader(register, policy, RUN_OVER)
