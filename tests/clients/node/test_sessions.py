from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
from pathlib import Path

import pytest

from wallflower.clients.host.home import node_lock
from wallflower.clients.node.sessions import (
    MemorySessions,
    Sessions,
    SessionStore,
    StoredSessions,
)
from wallflower.protocol.errors import RefusalError, UnavailableError
from wallflower.protocol.secure_sum.session import (
    ClientSession,
    Contribution,
    StageAnswer,
)
from wallflower.protocol.wire.cohort_pb2 import CohortSpec


class DiaryRequest:
    """One more entry."""

    needs_value = False

    def __init__(self, diary: Diary, body: bytes) -> None:
        self._diary, self._body = diary, body

    def check_users(self, users: int) -> None:
        return

    def answer(self, value: Contribution | None = None) -> StageAnswer:
        self._diary.secret += self._body
        return StageAnswer(self._diary.secret)


class Diary:
    """A session whose secret is all it was told so far."""

    def __init__(self, secret: bytes = b"") -> None:
        self.secret = secret
        self.closed = False

    @property
    def spec(self) -> CohortSpec:
        return CohortSpec()

    def inspect(self, body: bytes) -> DiaryRequest:
        return DiaryRequest(self, body)

    def snapshot(self) -> bytes:
        return self.secret

    def close(self) -> None:
        self.closed, self.secret = True, b""


def stored(home: Path, node_id: str = "n1") -> StoredSessions:
    return StoredSessions(SessionStore(home), node_id, Diary)


def answer(sessions: Sessions, cohort_id: str, body: bytes) -> bytes:
    session: ClientSession = sessions.get(cohort_id) or Diary()
    reply = session.inspect(body).answer().body
    sessions.keep(cohort_id, session)
    return reply


def test_a_session_goes_on_in_another_process(tmp_path: Path) -> None:
    answer(stored(tmp_path), "c1", b"one ")
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        assert pool.apply(_answer_elsewhere, (tmp_path, b"two")) == b"one two"
    assert answer(stored(tmp_path), "c1", b" three") == b"one two three"


def _answer_elsewhere(home: Path, body: bytes) -> bytes:
    return answer(stored(home), "c1", body)


def test_sessions_of_different_cohorts_do_not_meet(tmp_path: Path) -> None:
    for sessions in (MemorySessions(), stored(tmp_path)):
        answer(sessions, "c1", b"one")
        assert answer(sessions, "c2", b"two") == b"two"


def test_a_dropped_session_is_gone_and_its_secret_leaves_no_trace_on_disk(
    tmp_path: Path,
) -> None:
    store = SessionStore(tmp_path)
    sessions = StoredSessions(store, "n1", Diary)
    answer(sessions, "c1", b"x")
    row = sqlite3.connect(tmp_path / "sessions.sqlite").execute(
        "SELECT sealed FROM secret"
    )
    sealed = bytes(row.fetchone()[0])
    sessions.drop("c1")
    assert sessions.get("c1") is None
    store.close()
    assert not any(
        sealed in file.read_bytes() for file in tmp_path.iterdir() if file.is_file()
    )


def test_a_session_dropped_from_memory_is_closed() -> None:
    sessions, diary = MemorySessions(), Diary(b"secret")
    sessions.keep("c1", diary)
    sessions.drop("c1")
    assert diary.closed


def test_secrets_never_lie_open_on_the_disk(tmp_path: Path) -> None:
    answer(stored(tmp_path), "c1", b"a-very-recognizable-secret")
    for file in tmp_path.iterdir():
        assert b"recognizable" not in file.read_bytes()
        assert file.stat().st_mode & 0o077 == 0


def test_a_session_moved_to_another_cohort_or_changed_is_not_restored(
    tmp_path: Path,
) -> None:
    answer(stored(tmp_path), "c1", b"one")
    database = sqlite3.connect(tmp_path / "sessions.sqlite")
    with database:
        database.execute("UPDATE secret SET name = 'c2'")
    assert stored(tmp_path).get("c2") is None
    with database:
        database.execute("UPDATE secret SET name = 'c1', node_id = 'n2'")
    assert stored(tmp_path, "n2").get("c1") is None


def test_nodes_that_share_a_file_do_not_meet(tmp_path: Path) -> None:
    answer(stored(tmp_path, "n1"), "c1", b"one")
    assert stored(tmp_path, "n2").get("c1") is None


def test_the_first_of_several_writers_decides(tmp_path: Path) -> None:
    first, second = SessionStore(tmp_path), SessionStore(tmp_path)
    assert first.write_once("key", "n1", "run", b"first") == b"first"
    assert second.write_once("key", "n1", "run", b"second") == b"first"


def test_a_damaged_entry_that_is_needed_is_refused_by_name(tmp_path: Path) -> None:
    store = SessionStore(tmp_path)
    store.write("key", "n1", "run", b"first")
    with sqlite3.connect(tmp_path / "sessions.sqlite") as database:
        database.execute("UPDATE secret SET sealed = zeroblob(40)")
    with pytest.raises(UnavailableError, match="damaged"):
        store.write_once("key", "n1", "run", b"second")


def test_sessions_nobody_closed_are_deleted_after_a_while(tmp_path: Path) -> None:
    answer(stored(tmp_path), "c1", b"one")
    later = SessionStore(tmp_path, oldest_s=-1)
    assert StoredSessions(later, "n1", Diary).get("c1") is None


def test_a_store_that_cannot_be_written_answers_nothing(tmp_path: Path) -> None:
    sessions = stored(tmp_path)
    other = sqlite3.connect(tmp_path / "sessions.sqlite", isolation_level=None)
    other.execute("DROP TABLE secret")
    diary = Diary(b"secret")
    with pytest.raises(UnavailableError, match="nothing was answered"):
        sessions.keep("c1", diary)
    assert diary.closed


def test_a_home_that_is_a_file_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("not a folder")
    with pytest.raises(UnavailableError, match="cannot be opened"):
        stored(tmp_path / "home")


def test_a_damaged_key_is_refused_not_replaced(tmp_path: Path) -> None:
    answer(stored(tmp_path), "c1", b"one")
    (tmp_path / "sessions.key").write_bytes(b"short")
    with pytest.raises(UnavailableError):
        stored(tmp_path)
    assert (tmp_path / "sessions.key").read_bytes() == b"short"


def test_a_second_message_at_the_same_time_is_turned_away(tmp_path: Path) -> None:
    with node_lock(tmp_path):
        with pytest.raises(RefusalError, match="node-busy"), node_lock(tmp_path):
            pass
    with node_lock(tmp_path):
        pass


def test_the_lock_of_a_process_that_died_is_free(tmp_path: Path) -> None:
    heard, said = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with node_lock(tmp_path):
                os.write(said, b"held")
                signal.pause()
        finally:
            os._exit(1)
    try:
        assert os.read(heard, 4) == b"held"
        with pytest.raises(RefusalError, match="node-busy"), node_lock(tmp_path):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    with node_lock(tmp_path):
        pass
