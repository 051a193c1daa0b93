from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import pytest

from tests.support.desk_fixtures import QUICK, House, open_desk
from tests.support.port_contract import Echo, gather, request
from wallflower.clients.desk.answer_file import AnswerFile
from wallflower.clients.desk.attend import attend
from wallflower.protocol.errors import JournalError
from wallflower.protocol.messages.answers import Progress, StoredAnswer
from wallflower.protocol.messages.port import Answer


def test_an_answer_survives_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "answers.sqlite"
    with AnswerFile(path) as answers:
        assert answers.begin("r1", b"body") is Progress.NEW
        assert answers.begin("r1", b"body") is Progress.RUNNING
        answers.finish("r1", StoredAnswer(b"the answer"))
        answers.begin("r2", b"body")
        answers.finish("r2", StoredAnswer(failure="node-failed"))
        instance = answers.instance
    with AnswerFile(path) as answers:
        assert answers.instance == instance
        assert answers.begin("r1", b"body") == StoredAnswer(b"the answer")
        assert answers.begin("r2", b"body") == StoredAnswer(failure="node-failed")


def test_work_that_a_restart_interrupted_is_not_begun_again(tmp_path: Path) -> None:
    path = tmp_path / "answers.sqlite"
    with AnswerFile(path) as answers:
        answers.begin("r1", b"body")
    with AnswerFile(path) as answers:
        assert answers.begin("r1", b"body") == StoredAnswer(failure="interrupted")
        late = answers.finish("r1", StoredAnswer(b"late"))
        assert late == StoredAnswer(failure="interrupted")


def test_the_first_answer_stays_and_an_empty_one_is_an_answer(tmp_path: Path) -> None:
    with AnswerFile(tmp_path / "answers.sqlite") as answers:
        answers.begin("r1", b"body")
        assert answers.finish("r1", StoredAnswer(b"")) == StoredAnswer(b"")
        assert answers.finish("r1", StoredAnswer(b"second")) == StoredAnswer(b"")
        assert answers.begin("r1", b"body") == StoredAnswer(b"")


def test_another_body_under_the_same_id_is_refused(tmp_path: Path) -> None:
    with AnswerFile(tmp_path / "answers.sqlite") as answers:
        answers.begin("r1", b"one")
        refused = StoredAnswer(failure="request-id-reused")
        assert answers.begin("r1", b"two") == refused
        answers.finish("r1", StoredAnswer(b"x"))
        assert answers.begin("r1", b"two") == refused


def test_the_file_is_the_owners_alone_and_errors_have_names(tmp_path: Path) -> None:
    path = tmp_path / "answers.sqlite"
    with AnswerFile(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_bytes(b"rubbish" * 1000)
    with pytest.raises(JournalError, match="cannot be opened"):
        AnswerFile(path)
    with pytest.raises(JournalError, match="cannot be opened"):
        AnswerFile(tmp_path / "missing" / "answers.sqlite")


async def test_a_node_that_restarts_with_its_file_goes_on(tmp_path: Path) -> None:
    """Same file, same instance: the desk asks again and gets the stored answer."""
    house, path = House(), tmp_path / "answers.sqlite"
    identity = house.identity("a")

    async def life(port: int, echo: Echo) -> None:
        with AnswerFile(path) as answers:
            await attend(
                house.invitation(port, "a"),
                identity,
                echo,
                answers=answers,
                instance=answers.instance,
                settings=QUICK,
            )

    first, second = Echo("first"), Echo("second")
    async with open_desk(house) as (desk, port):
        node = asyncio.create_task(life(port, first))
        await desk.wait_for(["a"], timeout_s=60)
        before = await gather(desk, request("a", "r1"))
        node.cancel()
        await asyncio.wait([node])
        node = asyncio.create_task(life(port, second))
        assert await gather(desk, request("a", "r1")) == before
        assert await gather(desk, request("a", "r2")) == [
            Answer("a", "r2", b"second#1:hello")
        ]
        node.cancel()
        await asyncio.wait([node])
    assert before == [Answer("a", "r1", b"first#1:hello")]
