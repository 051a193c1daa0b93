"""An archived run names nobody, and its record still verifies."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.failing_nodes import nodes_fail
from tests.support.run_fixtures import SMALL, write
from tests.wallflower.results.test_page import FAILING
from tests.wallflower.test_run_commands import invoke
from wallflower.strategy.config import load_config
from wallflower.strategy.store import archive as archiving
from wallflower.strategy.store.database import SqliteDatabase
from wallflower.strategy.store.journal import Journal

NOTHING_CHANGED = "ok    nothing was changed after it was written"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    with nodes_fail(("node-3",)):  # so that blame has names, too
        assert (
            invoke("run", write(folder, FAILING), "--run-dir", folder / "run")[0] == 0
        )
    return folder / "run"


@pytest.fixture
def run_dir(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def head(run_dir: Path) -> str:
    with Journal.read(run_dir) as journal:
        return journal.head


def names(run_dir: Path) -> set[str]:
    with Journal.read(run_dir) as journal:
        return {
            name
            for _, node, users in journal.invitations()
            for name in (f'"{node}"', *(f'"{user}"' for user in users))
        }


def test_no_name_is_left_in_any_file(run_dir: Path) -> None:
    known = names(run_dir)
    assert '"u0"' in known
    assert '"node-3"' in known
    (run_dir / "report.html").write_text("node-3")
    (run_dir / "mine.txt").write_text("an operator's own file stays")
    code, said = invoke("archive", run_dir)
    assert (code, "What can no longer be checked: who took part" in said) == (0, True)
    left = {path.name for path in run_dir.iterdir()}
    assert left == {"journal.sqlite", "lock", "mine.txt"}
    record = (run_dir / "journal.sqlite").read_bytes()
    assert [name for name in known if name.encode() in record] == []
    assert b"node-3" not in record


def test_an_archived_record_verifies_and_has_the_former_heads(run_dir: Path) -> None:
    former, before = head(run_dir), invoke("status", run_dir)[1]
    assert invoke("archive", run_dir)[0] == 0
    code, said = invoke("verify", run_dir, "--head", former)
    assert (code, "The record holds." in said) == (0, True), said
    assert "an archive removed the names: only what is left" in " ".join(said.split())
    verdict = before[before.index('"b" is the best') : before.index("Head of")]
    assert verdict in invoke("status", run_dir)[1]
    assert invoke("report", run_dir)[0] == 0


def test_who_was_in_which_group_cannot_be_guessed_from_the_digests(
    run_dir: Path,
) -> None:
    with sqlite3.connect(run_dir / "journal.sqlite") as record:
        salts = {salt for (salt,) in record.execute("SELECT salt FROM salt")}
    assert invoke("archive", run_dir)[0] == 0
    with sqlite3.connect(run_dir / "journal.sqlite") as record:
        kept = dict(
            record.execute("SELECT kind, salt FROM salt JOIN entry USING (number)")
        )
    assert len(salts) > len(kept)
    assert set(kept) == {"founded", "round", "archived"}


def forged_sum(record: sqlite3.Connection) -> None:
    record.execute(
        "UPDATE cohort SET result = json_set(result, '$.survivors', 1) "
        "WHERE result IS NOT NULL"
    )


def forged_name(record: sqlite3.Connection) -> None:
    record.execute("UPDATE invitation SET node_id = node_id || 'x'")


def forged_round(record: sqlite3.Connection) -> None:
    record.execute(
        "DELETE FROM salt WHERE number IN (SELECT number FROM entry "
        "WHERE kind = 'round')"
    )


@pytest.mark.parametrize("forge", [forged_sum, forged_name, forged_round])
def test_what_is_changed_after_the_archive_shows(
    forge: Callable[[sqlite3.Connection], None], run_dir: Path
) -> None:
    assert invoke("archive", run_dir)[0] == 0
    with sqlite3.connect(run_dir / "journal.sqlite") as record:
        forge(record)
    code, said = invoke("verify", run_dir)
    assert (code, NOTHING_CHANGED in said) == (3, False)


def test_a_salt_that_is_gone_without_an_archive_shows(run_dir: Path) -> None:
    with sqlite3.connect(run_dir / "journal.sqlite") as record:
        record.execute("DELETE FROM salt WHERE number = 2")
    code, said = invoke("verify", run_dir)
    assert (code, NOTHING_CHANGED in said) == (3, False)


class _KilledError(BaseException):
    """The process ends here."""


def test_a_crash_while_names_are_removed_keeps_all_of_them(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, former = names(run_dir), head(run_dir)

    def killed(*_: object) -> None:
        raise _KilledError

    monkeypatch.setattr(archiving, "_remove_salts", killed)
    with pytest.raises(_KilledError):
        invoke("archive", run_dir)
    assert (names(run_dir), head(run_dir)) == (known, former)
    assert (run_dir / "ledger.sqlite").exists()
    assert invoke("verify", run_dir)[0] == 0


def test_a_crash_after_the_names_are_gone_is_finished_by_the_next_call(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise _KilledError

    with monkeypatch.context() as patched:
        patched.setattr(SqliteDatabase, "compact", killed)
        with pytest.raises(_KilledError):
            invoke("archive", run_dir)
    assert (run_dir / "ledger.sqlite").exists()
    assert invoke("verify", run_dir)[0] == 0
    once = head(run_dir)
    assert invoke("archive", run_dir)[0] == 0
    assert head(run_dir) == once
    assert not (run_dir / "ledger.sqlite").exists()


def test_a_run_that_is_not_over_is_not_archived(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    Journal.create(run_dir, "r", load_config(write(tmp_path, SMALL)), "fast").close()
    code, said = invoke("archive", run_dir)
    assert (code, "one that is over" in said) == (2, True)


def test_a_record_that_does_not_hold_is_not_archived(run_dir: Path) -> None:
    (run_dir / "ledger.sqlite").unlink()
    before = (run_dir / "journal.sqlite").read_bytes()
    code, said = invoke("archive", run_dir)
    assert (code, "does not verify" in said) == (3, True), said
    assert (run_dir / "journal.sqlite").read_bytes() == before
