from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from wallflower.protocol.errors import CohortVoidError
from wallflower.protocol.files.logs import (
    JsonFormatter,
    installed_from,
    log_context,
)


@pytest.fixture
def lines() -> Iterator[tuple[logging.Logger, io.StringIO]]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("test.logs")
    logger.propagate = False
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield logger, stream
    logger.removeHandler(handler)


Lines = tuple[logging.Logger, io.StringIO]


def only_line(stream: io.StringIO) -> dict[str, Any]:
    (text,) = stream.getvalue().splitlines()
    line: dict[str, Any] = json.loads(text)
    return line


def test_a_line_carries_run_batch_and_arm_from_its_context(lines: Lines) -> None:
    logger, stream = lines
    with log_context(run="r1", batch=2), log_context(arm=3):
        logger.info("cohort finished", extra={"survivors": 40})
    line = only_line(stream)
    assert (line["run"], line["batch"], line["arm"]) == ("r1", 2, 3)
    assert line["event"] == "cohort finished"
    assert line["survivors"] == 40


def test_the_context_ends_with_its_block(lines: Lines) -> None:
    logger, stream = lines
    with log_context(run="r1"):
        pass
    logger.info("later")
    assert "run" not in only_line(stream)


@pytest.mark.parametrize("name", ["reward", "share", "total", "noise", "private_key"])
def test_a_field_that_may_hold_a_secret_is_withheld_and_named(
    lines: Lines, name: str
) -> None:
    logger, stream = lines
    logger.info("oops", extra={name: 424242})
    assert "424242" not in stream.getvalue()
    assert only_line(stream)["withheld"] == [name]


def test_what_a_library_marks_records_with_is_neither_shown_nor_named(
    lines: Lines,
) -> None:
    logger, stream = lines
    logger.info("said", extra={"_mark_of_a_library": 424242})
    assert "424242" not in stream.getvalue()
    assert "withheld" not in only_line(stream)


def test_bytes_are_shown_by_their_length_only(lines: Lines) -> None:
    logger, stream = lines
    logger.info("got %s", b"sealed-share", extra={"detail": b"sealed-share"})
    assert "sealed-share" not in stream.getvalue()
    assert only_line(stream)["event"] == "got <12 bytes>"


def test_a_foreign_exception_is_named_without_its_text(lines: Lines) -> None:
    logger, stream = lines
    try:
        int("secret-0.73172819")
    except ValueError as error:
        logger.exception("failed: %s", error)
    assert "0.73172" not in stream.getvalue()
    assert only_line(stream)["failure"]["type"] == "ValueError"


def test_our_own_errors_keep_their_text(lines: Lines) -> None:
    logger, stream = lines
    try:
        raise CohortVoidError("too-few", "3 of 5")
    except CohortVoidError:
        logger.exception("void")
    assert only_line(stream)["failure"]["text"] == "too-few: 3 of 5"


def test_a_stable_event_name_stands_beside_the_sentence(lines: Lines) -> None:
    logger, stream = lines
    logger.info("node left out", extra={"event": "node-refused", "node_id": "a"})
    line = only_line(stream)
    assert (line["event"], line["message"]) == ("node-refused", "node left out")
    assert line["node_id"] == "a"


def test_the_context_refuses_other_names() -> None:
    with pytest.raises(ValueError, match="reward"), log_context(reward=1):
        pass


def test_a_process_and_a_part_of_it_write_each_line_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    wanted = {"WALLFLOWER_LOGS": "json"}
    with installed_from(wanted):
        with installed_from(wanted) as asked:
            assert asked
            logging.getLogger("test.nested").warning("once")
        logging.getLogger("test.nested").warning("still there")
    said = [
        json.loads(line)["message"] for line in capsys.readouterr().err.splitlines()
    ]
    assert said == ["once", "still there"]
