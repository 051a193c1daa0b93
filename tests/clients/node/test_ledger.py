from __future__ import annotations

import asyncio
import contextlib
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

from wallflower.clients.node.ledger import Ledger
from wallflower.clients.node.spends import OneTimeAnswer, Price, Spend
from wallflower.protocol.accounting.account import NOTHING, Cost
from wallflower.protocol.errors import BudgetError, RefusalError, UnavailableError

HALF = Fraction(1, 2)
MILLIONTH = Fraction(1, 10**6)
TENTH = Fraction(1, 10)
TINY = Fraction(1, 10**12)  # at so small a δ pure spends simply add up


def spend(
    cohort: str = "c1",
    users: tuple[str, ...] = ("u1", "u2"),
    *,
    node: str = "n",
    run: str = "r",
    epsilon: Fraction = HALF,
    most: Fraction = Fraction(1),
    times: int = 9,
    cost: Cost | None = None,
) -> Spend:
    paid = Cost("pure", epsilon) if cost is None else cost
    price = Price(run, paid, 5)
    return Spend(node, run, cohort, paid, users, most, MILLIONTH, times, price)


async def pure_total(ledger: Ledger, user: str) -> Fraction | None:
    return (await ledger.read_account("n", user)).total(TINY)


async def test_a_spend_is_remembered_after_a_restart(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        await ledger.spend(spend())
    with Ledger(tmp_path / "ledger") as ledger:
        assert await pure_total(ledger, "u1") == HALF
        assert await ledger.has_answered("n", "r", "c1")
        assert not await ledger.has_answered("n", "r", "c2")


async def test_a_spend_that_waits_when_the_ledger_closes_is_written(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ledger.sqlite"
    ledger = Ledger(path)
    waits = asyncio.create_task(ledger.spend(spend("c1")))
    await asyncio.sleep(0)
    ledger.close()
    await waits
    with Ledger(path) as again:
        assert await again.has_answered("n", "r", "c1")


def test_a_commit_is_flushed_to_the_disk_before_it_returns(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger") as ledger:

        def settings() -> tuple[object, object]:
            database = ledger._database
            (flushed,) = database.execute("PRAGMA synchronous").fetchone()
            (mode,) = database.execute("PRAGMA journal_mode").fetchone()
            return flushed, mode

        # 2 is FULL: in WAL mode anything less loses commits with the power.
        assert ledger._thread.call(settings) == (2, "wal")


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
        words = "requested ε = 0.5 more, remaining 0.25 .at δ = 1e-06., 0.25 too"
        with pytest.raises(BudgetError, match=words):
            await ledger.spend(spend("c2"))
        await ledger.spend(spend("c3", ("u3",)))


async def test_a_refused_spend_costs_nobody_anything(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        await ledger.spend(spend("c1", ("u1",), epsilon=Fraction(1)))
        with pytest.raises(BudgetError):
            await ledger.spend(spend("c2", ("u1", "u2")))
        assert await ledger.read_account("n", "u2") == NOTHING


async def test_a_user_takes_part_in_a_run_as_often_as_agreed(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        await ledger.spend(spend("c1", ("u1",), times=1))
        with pytest.raises(RefusalError) as refused:
            await ledger.spend(spend("c2", ("u1",), times=1))
        assert refused.value.code == "user-repeated"
        await ledger.spend(spend("c2", ("u1",), times=1, run="another"))


async def test_spends_of_all_kinds_go_into_one_account(tmp_path: Path) -> None:
    one = Fraction(1)
    with Ledger(tmp_path / "ledger") as ledger:
        await ledger.spend(spend("c1", epsilon=one))
        for cost in (Cost("renyi", one, 45), Cost("concentrated", one)):
            with pytest.raises(BudgetError, match="remaining 0 "):
                await ledger.spend(spend("c2", cost=cost))
        await ledger.spend(spend("c2", cost=cost, most=Fraction(7)))
        with pytest.raises(BudgetError):
            await ledger.spend(spend("c3", epsilon=Fraction(1, 1000), most=one))


async def test_the_limit_is_of_epsilon_delta_whatever_the_kind(tmp_path: Path) -> None:
    cost = Cost("concentrated", Fraction(1))  # (5.23, 10⁻⁶)-DP
    with Ledger(tmp_path / "ledger") as ledger:
        with pytest.raises(BudgetError):
            await ledger.spend(spend("c1", cost=cost, most=Fraction(5)))
        await ledger.spend(spend("c1", cost=cost, most=Fraction(6)))


async def test_every_node_has_accounts_of_its_own(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        await ledger.spend(spend("c1", epsilon=Fraction(1)))
        await ledger.spend(spend("c1", epsilon=Fraction(1), node="other"))
        assert await pure_total(ledger, "u1") == 1


async def test_after_an_answer_without_noise_nothing_more_is_promised(
    tmp_path: Path,
) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        await ledger.spend(spend("c1", cost=Cost("none", Fraction(0))))
        with pytest.raises(BudgetError, match="without noise"):
            await ledger.spend(spend("c2", most=Fraction(100)))


async def test_the_own_delta_of_a_spend_is_a_column_of_the_ledger(
    tmp_path: Path,
) -> None:
    path, own = tmp_path / "ledger", Fraction(1, 2**40)
    cost = Cost("pure", HALF, privacy_delta=own)
    with Ledger(path) as ledger:
        await ledger.spend(spend("c1", cost=cost))
        await ledger.spend(spend("c2", epsilon=TENTH))
    with contextlib.closing(sqlite3.connect(path)) as database:
        rows = database.execute("SELECT delta FROM spend ORDER BY number").fetchall()
    assert rows == [(str(own),), ("0",)]
    with Ledger(path) as ledger:
        spends = (await ledger.read_account("n", "u1")).spends
    assert [(one.epsilon, one.privacy_delta) for one, _ in spends] == [
        (TENTH, 0),
        (HALF, own),
    ]


@pytest.mark.parametrize("version", [0, 1, 99])
def test_a_ledger_of_another_schema_is_not_touched(
    version: int, tmp_path: Path
) -> None:
    path = tmp_path / "ledger"
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE spend (number INTEGER PRIMARY KEY)")
        database.execute(f"PRAGMA user_version = {version}")
    with pytest.raises(UnavailableError, match=f"version {version}"):
        Ledger(path)
    with contextlib.closing(sqlite3.connect(path)) as database:
        tables = database.execute("SELECT name FROM sqlite_master").fetchall()
    assert tables == [("spend",)]


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


async def test_what_cannot_be_written_is_refused_to_nobody_else(tmp_path: Path) -> None:
    """Nodes of one process share a transaction, and nothing else."""
    unwritable = dataclasses.replace(spend(node="b"), run_id="\ud800")
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        together = asyncio.gather(
            *map(ledger.spend, (spend(node="a"), unwritable, spend(node="c"))),
            return_exceptions=True,
        )
        first, second, third = await asyncio.wait_for(together, 30)
        assert (first, third) == (None, None)
        assert isinstance(second, RefusalError)
        assert second.code == "ledger-unavailable"
        assert await ledger.read_account("b", "u1") == NOTHING
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        assert await ledger.read_account("c", "u1") != NOTHING


async def test_a_row_that_nobody_understands_is_no_reason_to_wait_for_ever(
    tmp_path: Path,
) -> None:
    """Another process, of another version, may have written it."""
    path = tmp_path / "ledger.sqlite"
    with Ledger(path) as ledger:
        await ledger.spend(spend(node="a"))
        with contextlib.closing(sqlite3.connect(path)) as other, other:
            other.execute(
                "INSERT INTO spend (node_id, run_id, cohort_id, kind, epsilon, delta, "
                "precision, users, at) "
                "VALUES ('z', 'r', 'c', 'unheard-of', '1', '0', 0, '[]', 0)"
            )
        with pytest.raises(RefusalError) as caught:
            await asyncio.wait_for(ledger.spend(spend(node="b")), 30)
        assert caught.value.code == "ledger-unavailable"


async def test_another_process_cannot_spend_the_same_budget(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    other = (
        "import asyncio; from tests.clients.node.test_ledger import *\n"
        f"with Ledger(Path({str(path)!r})) as ledger:\n"
        "    asyncio.run(ledger.spend(spend()))"
    )
    with Ledger(path) as ledger:
        assert not await ledger.has_answered("n", "r", "c1")
        await asyncio.to_thread(
            subprocess.run, [sys.executable, "-c", other], check=True, timeout=60
        )
        with pytest.raises(RefusalError) as refused:
            await ledger.spend(spend())
        assert refused.value.code == "cohort-repeated"
        assert await pure_total(ledger, "u1") == HALF


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

        (pages,) = ledger._thread.call(
            lambda: ledger._database.execute("PRAGMA page_count").fetchone()
        )
        ledger._thread.call(lambda: limit(pages))
        many = tuple(f"user-{i}" for i in range(3000))
        with pytest.raises(RefusalError) as refused:
            await ledger.spend(spend("c2", many))
        assert refused.value.code == "ledger-unavailable"
        ledger._thread.call(lambda: limit(pages + 1000))
        assert await ledger.read_account("n", "user-1") == NOTHING
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
            spent = asyncio.run(pure_total(self.ledger, f"u{user}"))
            assert spent == Fraction(self.spent[f"u{user}"], 4) <= 1

    def teardown(self) -> None:
        self.ledger.close()
        self.folder.cleanup()


TestLedgerMachine = LedgerMachine.TestCase
TestLedgerMachine.settings = settings(
    max_examples=10, stateful_step_count=15, deadline=None
)


async def test_what_a_spend_would_be_refused_for_is_said_before_and_costs_nothing(
    tmp_path: Path,
) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        assert await ledger.prepare(spend(users=("u1",))) == {}
        dear = spend(users=("u1", "u2"), epsilon=Fraction(2), run="another")
        against = await ledger.prepare(dear)
        assert against == dict.fromkeys(("u1", "u2"), "budget-exceeded")
        assert not await ledger.has_answered("n", "r", "c1")
        assert await pure_total(ledger, "u1") == 0


async def test_a_cohort_with_a_claim_is_not_prepared_again(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        await ledger.record_answer(OneTimeAnswer("n", "r", "c1", "open", b"digest"))
        with pytest.raises(RefusalError, match="cohort-repeated"):
            await ledger.prepare(spend("c1"))
        assert await ledger.prepare(spend("c2")) == {}


def test_a_spend_shows_no_secret() -> None:
    assert "reward" not in repr(dataclasses.asdict(spend()))
