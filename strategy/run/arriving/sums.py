"""The sums of a round of seats: all of them count, or none does.

Arms are compared over the rounds that they share. One person who answers with what no
honest person sends can spoil the sum of one arm: were the others kept, that person
would decide which arm is not heard. So the round is asked anew with all its arms.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from wallflower.protocol.secure_sum.session import SecureSum, Void
from wallflower.strategy.bandit.policy import CohortSum
from wallflower.strategy.run.arriving.seated_round import SeatedRounds
from wallflower.strategy.run.cohort import (
    AskedCohort,
    CohortLosses,
    CohortRunner,
    OpenedSum,
)
from wallflower.strategy.store.entries import SumRecord
from wallflower.strategy.store.seats import SeatCounts

_TOO_FEW: Final = "quorum-not-met"
_OTHERS: Final = "another-arm-too-few"  # its own quorum was met, the round's was not
_NO_SUM: Final = "another-arm-no-sum"  # it had or might have had a sum, another not
_SILENT: Final = "too-few-openings"
_Counts = Mapping[str, SeatCounts]
Holders = Callable[[], Awaitable[None]]  # returns when enough of them are there


class RoundSums:
    """Opens the sums of rounds whose seats are closed.

    Parameters
    ----------
    runner : CohortRunner
        Opens a sum, and writes down how a cohort ended.
    seats : SeatedRounds
        Who answered.
    """

    def __init__(self, runner: CohortRunner, seats: SeatedRounds) -> None:
        self._runner = runner
        self._seats = seats

    async def open(
        self, asked: Sequence[AskedCohort], counts: _Counts, holders: Holders
    ) -> list[tuple[CohortSum, SumRecord]]:
        """Return the sums of all cohorts of a round, or void them all."""
        short = [one for one in asked if not _has_quorum(one, counts)]
        if short:
            for one in asked:
                code = _TOO_FEW if one in short else _OTHERS
                await self.give_up(one, counts[one.record.cohort_id], code)
            return []
        opened: list[OpenedSum] = []
        for one in asked:
            opened.append(await self._open_one(one, holders))
            if isinstance(opened[-1].end, Void):
                await self._void_all(asked, counts, opened)
                return []
        return [
            await self._keep(one, counts[one.record.cohort_id], found)
            for one, found in zip(asked, opened, strict=True)
        ]

    async def give_up(self, one: AskedCohort, seats: SeatCounts, code: str) -> None:
        """Write down that a cohort gives no sum; who was seated stays used."""
        detail = f"{seats.answered} people answered; quorum {one.traffic.spec.quorum}"
        await self._void(
            one, seats, OpenedSum(Void(code, detail), (), time.monotonic())
        )

    async def _open_one(self, one: AskedCohort, holders: Holders) -> OpenedSum:
        cohort_id = one.record.cohort_id

        def read() -> list[tuple[str, bytes]]:
            return list(self._seats.register.read_contributions(cohort_id))

        attempt = partial(self._runner.open_contributions, one, read)
        await holders()
        found = await attempt()
        if isinstance(found.end, Void) and found.end.code == _SILENT:
            # Trustees left meanwhile: the answers are kept until they are back. Those
            # that answered give the same answer.
            await self._runner.forget_opening(cohort_id)
            await holders()
            found = await attempt()
        return found

    async def _keep(
        self, one: AskedCohort, seats: SeatCounts, found: OpenedSum
    ) -> tuple[CohortSum, SumRecord]:
        ended = CohortLosses.of_seats(seats, summed=True)
        result = await self._runner.conclude(
            one, found.end, found.findings, ended, found.started
        )
        assert result is not None, "it has a sum"
        # Who is in it stands in the seats: everybody who answered.
        return result[0], replace(result[1], nodes=())

    async def _void_all(
        self,
        asked: Sequence[AskedCohort],
        counts: _Counts,
        opened: Sequence[OpenedSum],
    ) -> None:
        """Void a round; the last sum that was opened is the one that failed."""
        for place, one in enumerate(asked):
            seats = counts[one.record.cohort_id]
            if place < len(opened) and isinstance(opened[place].end, Void):
                await self._void(one, seats, opened[place])
            else:
                await self.give_up(one, seats, _NO_SUM)

    async def _void(
        self, one: AskedCohort, seats: SeatCounts, found: OpenedSum
    ) -> None:
        assert not isinstance(found.end, SecureSum)
        ended = CohortLosses.of_seats(seats, summed=False)
        await self._runner.conclude(
            one, found.end, found.findings, ended, found.started
        )
        if seats.answered:
            await self._seats.forget([one.record.cohort_id])


def _has_quorum(one: AskedCohort, counts: _Counts) -> bool:
    answered = counts[one.record.cohort_id].answered
    return answered >= one.traffic.spec.quorum
