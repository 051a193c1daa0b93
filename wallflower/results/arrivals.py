"""People who arrived: seats by arm, and what must be believed of who could come."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from wallflower.protocol.identity.enrolment import trust_label
from wallflower.protocol.visitors import ENROLLED, INVITED
from wallflower.results.cohorts import AnswerRates, CohortRow
from wallflower.strategy.config import ExperimentConfig

# What a run cannot rule out where nobody vouches for who comes.
INVENTED = "Anybody could come: the operator could have invented people."


@dataclass(frozen=True, slots=True)
class ArmSeats:
    """The seats of one arm in all its cohorts, void ones included."""

    arm: str
    seats: int
    taken: int
    answered: int

    @property
    def lost(self) -> int:
        """Seats that were taken and not answered, or not yet."""
        return self.taken - self.answered


def count_seats(rows: Iterable[CohortRow], arms: Sequence[str]) -> tuple[ArmSeats, ...]:
    """Count the seats of every arm; nothing where people were known beforehand."""
    seated = [row for row in rows if row.seats]
    if not seated:
        return ()
    return tuple(
        ArmSeats(
            arm,
            sum(row.seats for row in mine),
            sum(row.invited for row in mine),
            sum(row.came for row in mine),
        )
        for arm in arms
        for mine in ([row for row in seated if row.arm == arm],)
    )


def describe_seats(seats: Sequence[ArmSeats], rates: AnswerRates) -> str:
    """Say how many seats there were, and whether arms lose answers alike."""
    by_arm = ", ".join(f"{one.arm} {one.lost:,} of {one.taken:,}" for one in seats)
    return (
        f"seats: {sum(one.seats for one in seats):,} opened, "
        f"{sum(one.taken for one in seats):,} taken, "
        f"{sum(one.answered for one in seats):,} answered; lost by arm: {by_arm} "
        f"(arms lose alike: p = {rates.p_value:.2g})"
    )


def seats_json(
    config: ExperimentConfig, seats: Sequence[ArmSeats], rates: AnswerRates
) -> dict[str, Any] | None:
    """Return JSON types; None where people were known beforehand."""
    if config.visitors is None:
        return None
    return {
        "admission": config.visitors.admission,
        "seats": [{**dataclasses.asdict(one), "lost": one.lost} for one in seats],
        "answer_rates": [dataclasses.asdict(test) for test in rates.tests],
    }


def describe_trust(config: ExperimentConfig) -> str:
    """Say what must be believed of the server, with what vouches for people."""
    stated, malicious = config.secure_sum, config.secure_sum.server == "malicious"
    visitors = config.visitors
    if visitors is None or visitors.admission == ENROLLED:
        enrolled = stated.enrolment is not None or malicious
        return trust_label(enrolled=enrolled, malicious_server=malicious)
    if visitors.admission == INVITED:
        server = "malicious server withstood" if malicious else "semi-honest server"
        return f"{server} (people by invitation)"
    return f"semi-honest server ({INVENTED[0].lower()}{INVENTED[1:-1]})"
