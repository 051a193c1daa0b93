"""How many people can still be asked in a run, as its nodes said: in numbers and words.

Nodes leave out whoever has no budget left for the run's terms, or took part as often as
they agreed to. How much anybody has left is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wallflower.strategy.store.entries import Met
from wallflower.strategy.store.journal_reader import JournalReader


@dataclass(frozen=True, slots=True)
class Askable:
    """People who can be asked once more.

    Attributes
    ----------
    people : everybody whom the nodes described.
    left_out : of them whom their node leaves out, and whom this run may ask otherwise.
    able : of them who can be asked.
    """

    people: int
    left_out: int
    able: int

    def sentence(self) -> str:
        """Say how many can be asked, and why others cannot."""
        text = f"{self.able:,} of {self.people:,} people can still be asked under "
        if not self.left_out:
            return f"{text}these terms."
        return (
            f"{text}these terms; {self.left_out:,} are left out by their nodes: their "
            "budget does not allow it."
        )


# What an operator can do when too few can be asked.
ADVICE = (
    "Budgets are for ever: begin a run with a smaller privacy.epsilon or with other "
    "people, or let the nodes' policies allow a larger total"
)


def askable_of(met: Mapping[str, Met], asked_fully: int) -> Askable:
    """Count who can be asked of the nodes known, where so many were asked enough."""
    people = sum(one.users for one in met.values())
    left_out = sum(one.left_out for one in met.values())
    return Askable(people, left_out, max(0, people - left_out - asked_fully))


def read_askable(journal: JournalReader) -> Askable:
    """Count who can still be asked by a run's record."""
    most = journal.config.privacy.max_participations
    often = journal.count_participations()
    fully = sum(people for times, people in often.items() if times >= most)
    return askable_of(journal.met(), fully)
