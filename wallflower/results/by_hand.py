"""What was decided by hand, and what a result means after it.

An arm that somebody retires leaves the race without having lost it. Others may have
fallen to it before, and were never compared with who is left. So a winner is the best
of the arms that were left when the last one was retired, and of nobody else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

View = Mapping[str, Any]  # an `ArmView`


@dataclass(frozen=True, slots=True)
class RetiredArm:
    """An arm taken out by hand from round `before_round` on, at Unix second `at`."""

    arm: str
    before_round: int
    reason: str
    at: float

    def in_words(self) -> str:
        """Say when and why.

        Examples
        --------
        >>> RetiredArm("a", 3, "rash", 0.0).in_words()
        '"a" was retired by hand before round 3 (rash)'
        """
        return (
            f'"{self.arm}" was retired by hand before round {self.before_round} '
            f"({self.reason})"
        )


def listed(parts: Sequence[str]) -> str:
    """Join words as a sentence does.

    Examples
    --------
    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


def compared(views: Sequence[View]) -> int:
    """Count the arms that were left when the last one was retired by hand."""
    since = max(view["eliminated_in"] for view in views if view["retired"])
    return sum(
        view["active"] or (not view["retired"] and view["eliminated_in"] > since)
        for view in views
    )


def winner_meaning(winner: str, views: Sequence[View], chance: str) -> tuple[str, str]:
    """Say what the winner is the best of, and with what chance it is not."""
    arms = compared(views)
    if arms == 1:
        return (
            f"{winner} is the only arm left after a retirement by hand.",
            "It was not compared to the end with what was retired, nor with arms that "
            "had fallen to that.",
        )
    return (
        f"{winner} is the best of the {arms} arms left after the last retirement by "
        "hand.",
        "For each of them, the chance that it fell to one that is no better is at most "
        f"{chance}. Nothing is said of arms retired, or fallen before.",
    )
