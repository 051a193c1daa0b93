"""What checking a record gives: claims, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from wallflower.protocol.errors import WallflowerError

MOST_PROBLEMS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Check:
    """One claim of a journal: what was looked at, and what is wrong with it."""

    name: str
    looked_at: str
    problems: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """True when nothing is wrong."""
        return not self.problems


def checked(name: str, counted: str, found: Iterable[str]) -> Check:
    """Collect problems; one that stops the check is a problem too."""
    problems: list[str] = []
    try:
        for problem in found:
            problems.append(problem)
            if len(problems) >= MOST_PROBLEMS_SHOWN:
                break
    except (WallflowerError, ArithmeticError, LookupError, TypeError, ValueError) as e:
        problems.append(f"the record cannot be replayed ({type(e).__name__}: {e})")
    return Check(name, counted, tuple(problems))
