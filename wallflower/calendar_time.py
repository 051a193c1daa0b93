"""How long an experiment takes where people arrive: people a day, and the rounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wallflower.strategy.config import ExperimentConfig

DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Calendar:
    """What the calendar time of a run follows from.

    Attributes
    ----------
    per_day : people who arrive a day.
    pause_s : how long a round stays open after its last seat was taken, at most: the
        window, and the time that an answer may take beyond it.
    """

    per_day: int
    pause_s: float

    @classmethod
    def of(cls, config: ExperimentConfig) -> Calendar | None:
        """Return an experiment's calendar; None where nobody says how many arrive."""
        visitors = config.visitors
        if visitors is None or not visitors.per_day:
            return None
        return cls(visitors.per_day, config.window.limit_s + visitors.answer_s)

    def days(self, people: Any, rounds: Any) -> Any:
        """Return the days until so many people came, in so many rounds.

        Examples
        --------
        >>> Calendar(per_day=1000, pause_s=43_200).days(people=3000, rounds=4)
        5.0
        """
        return people / self.per_day + rounds * self.pause_s / DAY_S

    @property
    def terms(self) -> str:
        """Say what the days are counted from."""
        return (
            f"at {self.per_day:,} people a day and "
            f"{describe_days(self.pause_s / DAY_S)} a round for the last answers"
        )

    def as_json(self) -> dict[str, Any]:
        """Return JSON types."""
        return {"per_day": self.per_day, "pause_s": self.pause_s}


def describe_days(days: float) -> str:
    """Return a time in the unit that people would use.

    Examples
    --------
    >>> describe_days(0.02), describe_days(0.5), describe_days(3.21), describe_days(45)
    ('29 minutes', '12.0 hours', '3.2 days', '45 days')
    """
    if days < 1 / 24:
        return f"{days * 24 * 60:.0f} minutes"
    if days < 1:
        return f"{days * 24:.1f} hours"
    return f"{days:.1f} days" if days < 10 else f"{days:,.0f} days"
