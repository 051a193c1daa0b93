from __future__ import annotations

import asyncio
import dataclasses
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from clients.ledger import Ledger, Spend
from protocol.errors import BudgetError, RefusalError, UnavailableError

HALF = Fraction(1, 2)


def spend(
    cohort: str = "c1",
    users: tuple[str, ...] = ("u1", "u2"),
    *,
    node: str = "n",
    run: str = "r",
    epsilon: Fraction = HALF,
    most: Fraction = Fraction(1),
    times: int = 9,
    kind: str = "pure",
) -> Spend:
    return Spend(node, run, cohort, kind, epsilon, users, most, times)


async def test_a_spend_is_remembered_after_a_restart(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        await ledger.spend(spend())
    with Ledger(tmp_path / "ledger") as ledger:
        assert await ledger.spent("n", "u1", "pure") == HALF
        assert await ledger.answered("n", "r", "c1")
        assert not await ledger.answered("n", "r", "c2")


async def test_the_same_cohort_is_refused_also_after_a_restart(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        await ledger.spend(spend())
    with Ledger(tmp_path / "ledger") as ledger:
        with pytest.raises(RefusalError) as refused:
            await ledger.spend(spend(users=("u3",)))
    assert refused.value.code == "cohort-repeated"


async def test_a_budget_error_says_requested_remaining_and_missing(
    tmp_path: Path,
) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        await ledger.spend(spend("c1", epsilon=Fraction(3, 4)))
        with pytest.raises(BudgetError, match="requested 1/2, remaining 1/4, 1/4 too"):
            await ledger.spend(spend("c2"))
        await ledger.spend(spend("c3", ("u3",)))


async def test_a_refused_spend_costs_nobody_anything(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        await ledger.spend(spend("c1", ("u1",), epsilon=Fraction(1)))
        with pytest.raises(BudgetError):
            await ledger.spend(spend("c2", ("u1", "u2")))
        assert await ledger.spent("n", "u2", "pure") == 0


async def test_a_user_takes_part_in_a_run_as_often_as_agreed(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        await ledger.spend(spend("c1", ("u1",), times=1))
        with pytest.raises(RefusalError) as refused:
            await ledger.spend(spend("c2", ("u1",), times=1))
        assert refused.value.code == "user-repeated"
        await ledger.spend(spend("c2", ("u1",), times=1, run="another"))


async def test_kinds_and_nodes_have_accounts_of_their_own(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        await ledger.spend(spend("c1", epsilon=Fraction(1)))
        await ledger.spend(spend("c2", epsilon=Fraction(1), kind="concentrated"))
        await ledger.spend(spend("c1", epsilon=Fraction(1), node="other"))
        assert await ledger.spent("n", "u1", "pure") == 1


async def test_spends_that_wait_together_are_all_judged(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        results = await asyncio.gather(
            *(ledger.spend(spend(f"c{i}", ("u1",))) for i in range(10)),
            return_exceptions=True,
        )
    assert Counter(type(result) for result in results) == {
        type(None): 2,
        BudgetError: 8,
    }


async def test_another_process_cannot_spend_the_same_budget(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    other = (
        "import asyncio; from tests.clients.test_ledger import *\n"
        f"with Ledger(Path({str(path)!r})) as ledger:\n"
        "    asyncio.run(ledger.spend(spend()))"
    )
    with Ledger(path) as ledger:
        assert not await ledger.answered("n", "r", "c1")
        await asyncio.to_thread(
            subprocess.run, [sys.executable, "-c", other], check=True, timeout=60
        )
        with pytest.raises(RefusalError) as refused:
            await ledger.spend(spend())
        assert refused.value.code == "cohort-repeated"
        assert await ledger.spent("n", "u1", "pure") == HALF


async def test_rows_can_neither_be_changed_nor_removed(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        await ledger.spend(spend())
    database = sqlite3.connect(tmp_path / "ledger")
    for statement in ("UPDATE spend SET epsilon = '0'", "DELETE FROM spend"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            database.execute(statement)
    database.close()


async def test_a_full_disk_refuses_and_counts_nothing(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        await ledger.spend(spend("c1"))

        def limit(pages: int) -> None:
            ledger._database.execute(f"PRAGMA max_page_count = {pages}")

        (pages,) = ledger._thread.submit(
            lambda: ledger._database.execute("PRAGMA page_count").fetchone()
        ).result()
        ledger._thread.submit(limit, pages).result()
        many = tuple(f"user-{i}" for i in range(3000))
        with pytest.raises(RefusalError) as refused:
            await ledger.spend(spend("c2", many))
        assert refused.value.code == "ledger-unavailable"
        ledger._thread.submit(limit, pages + 1000).result()
        assert await ledger.spent("n", "user-1", "pure") == 0
        await ledger.spend(spend("c2", many))


def test_a_ledger_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="nothing may be answered"):
        Ledger(tmp_path / "missing" / "ledger")


class LedgerMachine(RuleBasedStateMachine):
    """Spends and restarts in any order: what is spent never falls, never exceeds."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "ledger"
        self.ledger = Ledger(self.path)
        self.spent: Counter[str] = Counter()
        self.cohorts: set[str] = set()

    @rule(
        cohort=st.integers(0, 12),
        users=st.sets(st.integers(0, 5), min_size=1, max_size=4),
        quarters=st.integers(1, 5),
    )
    def ask(self, cohort: int, users: set[int], quarters: int) -> None:
        names = tuple(f"u{user}" for user in sorted(users))
        entry = spend(f"c{cohort}", names, epsilon=Fraction(quarters, 4))
        allowed = entry.cohort_id not in self.cohorts and all(
            self.spent[name] + quarters <= 4 for name in names
        )
        try:
            asyncio.run(self.ledger.spend(entry))
        except RefusalError:
            assert not allowed
        else:
            assert allowed
            self.cohorts.add(entry.cohort_id)
            self.spent.update(dict.fromkeys(names, quarters))

    @rule()
    def restart(self) -> None:
        self.ledger.close()
        self.ledger = Ledger(self.path)

    @invariant()
    def ledger_and_model_agree(self) -> None:
        for user in range(6):
            spent = asyncio.run(self.ledger.spent("n", f"u{user}", "pure"))
            assert spent == Fraction(self.spent[f"u{user}"], 4) <= 1

    def teardown(self) -> None:
        self.ledger.close()
        self.folder.cleanup()


TestLedgerMachine = LedgerMachine.TestCase
TestLedgerMachine.settings = settings(
    max_examples=10, stateful_step_count=15, deadline=None
)


def test_a_spend_shows_no_secret() -> None:
    assert "reward" not in repr(dataclasses.asdict(spend()))
