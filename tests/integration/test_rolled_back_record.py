"""A run's whole record is put back from an older copy: nodes know what it lacks.

The journal and the event log of a copy fit each other, so neither shows it. Nodes that
keep their own ledgers say which cohorts of the run they have answered.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from tests.integration.test_flower_homes import NAMES, experiment, homes, run
from tests.integration.test_flower_homes import keys as keys  # a fixture
from tests.support.orchestration import Altered, World, world
from tests.support.slow_cases import slow_except
from wallflower.clients.node.ledger_tables import read_accounts
from wallflower.keys.store import KeyStore
from wallflower.protocol.errors import JournalError
from wallflower.protocol.wire.node_pb2 import NodeAnswer
from wallflower.strategy.store import events
from wallflower.strategy.store.chain import is_own_id, sign_cohort_id
from wallflower.strategy.store.journal import Journal

KINDS = ("flower", "grpc", "polling")


class _StoppedError(Exception):
    """The server is stopped here."""


def _stop_after(number: int) -> events.Listen:
    async def listen(event: events.Event) -> None:
        if isinstance(event, events.RoundFinished) and event.number == number:
            raise _StoppedError

    return listen


def _answered(folder: Path) -> set[str]:
    """Return the cohorts that the nodes' own ledgers have."""
    return {
        cohort
        for ledger in folder.glob("*/ledger.sqlite")
        for account in read_accounts(ledger).values()
        for _, cohort in account.cohorts
    }


@pytest.mark.parametrize("kind", slow_except(["grpc"], KINDS))
def test_resume_invites_nobody_upon_a_record_that_nodes_know_to_be_older(
    kind: str, keys: KeyStore, tmp_path: Path
) -> None:
    nodes = homes(keys, tmp_path / "homes")
    config = experiment(keys, "flower" if kind == "flower" else "grpc")
    # So sure of itself that it decides nothing in its first round.
    sure = replace(config.experiment, failure_probability=Fraction(1, 10**9))
    config = replace(config, experiment=sure)
    if kind == "polling":
        for name in NAMES[:3]:
            _set_connection(tmp_path / "homes" / name, "polling")
    run_dir, copy = tmp_path / "run", tmp_path / "copy"
    with pytest.raises(_StoppedError):
        run(config, nodes, run_dir, _stop_after(1))
    shutil.copytree(run_dir, copy)
    run(config, nodes, run_dir)
    before = _answered(tmp_path / "homes")
    with Journal.read(run_dir) as journal:
        assert before == journal.cohort_ids()
    with Journal.read(copy) as journal:
        assert before > journal.cohort_ids()
    shutil.rmtree(run_dir)
    shutil.copytree(copy, run_dir)
    if kind == "polling":  # those that stay have lost their memory: polling nodes tell
        for name in NAMES[3:]:
            for left in (tmp_path / "homes" / name).glob("ledger*"):
                left.unlink()
    with pytest.raises(JournalError, match="which nodes have answered") as refused:
        run(config, nodes, run_dir)
    assert refused.value.exit_code == 3
    with Journal.read(run_dir) as journal, Journal.read(copy) as older:
        assert journal.cohort_ids() == older.cohort_ids()
    assert _answered(tmp_path / "homes") <= before


def _set_connection(home: Path, word: str) -> None:
    text = (home / "node.toml").read_text()
    text = text.replace("[node]", f'[node]\nconnection = "{word}"')
    (home / "node.toml").write_text(text)


def _claims(*cohorts: str) -> Callable[[bytes], bytes]:
    """Make a node claim cohorts that it never answered."""

    def change(body: bytes) -> bytes:
        answer = NodeAnswer.FromString(body)
        for task in answer.answers:
            if task.HasField("description"):
                task.description.answered.extend(cohorts)
        return answer.SerializeToString()

    return change


async def _run_with_liar(there: World, *cohorts: str) -> None:
    there.handlers["node-3"] = Altered(there.nodes["node-3"], _claims(*cohorts))
    await there.run()


@pytest.mark.parametrize(
    "invented",
    [
        "b7-a0-t1-0123456789ab",
        "b7-a0-t1-0123456789ab-0123456789abcdef0123",
        "offer-0123456789abcdef",
        sign_cohort_id(b"another run's", "b7-a0-t1-0123456789ab"),
        "",
        "-" * 5000,
        "ü-é",
    ],
)
async def test_a_node_ends_no_run_by_cohorts_that_never_were(
    invented: str, tmp_path: Path
) -> None:
    async with world(tmp_path) as there:
        await _run_with_liar(there, *[invented] * 3)
        with Journal.read(there.run_dir) as journal:
            last = journal.last_round()
    assert last is not None
    assert last.finished == "winner"


async def test_a_cohort_of_this_run_that_the_record_lacks_ends_it_before_all_else(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as there:
        with Journal.read(there.run_dir) as journal:
            lost = sign_cohort_id(journal.cohort_key, "b7-a0-t1-0123456789ab")
        with pytest.raises(JournalError, match=lost):
            await _run_with_liar(there, lost)
        assert there.invited() == {}


async def test_no_offer_has_an_id_that_proves_an_invitation(tmp_path: Path) -> None:
    async with world(tmp_path) as there:
        await there.run()
        with Journal.read(there.run_dir) as journal:
            key, cohorts = journal.cohort_key, journal.cohort_ids()
        assert cohorts
        assert all(is_own_id(key, cohort) for cohort in cohorts)
        offered = [name for name in there.port.asked if "/offer/" in name]
        assert offered
        assert not any(is_own_id(key, name.rpartition("/")[2]) for name in offered)
