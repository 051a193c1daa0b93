from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wallflower.protocol.messages.answers import MemoryAnswers, Progress, StoredAnswer


def test_the_first_answer_stays() -> None:
    answers = MemoryAnswers()
    assert answers.begin("k", b"body") is Progress.NEW
    assert answers.begin("k", b"body") is Progress.RUNNING
    first = answers.finish("k", StoredAnswer(b"one"))
    assert answers.finish("k", StoredAnswer(b"two")) == first
    assert answers.begin("k", b"body") == first


def test_another_body_under_the_same_id_is_refused_while_running_and_after() -> None:
    answers = MemoryAnswers()
    answers.begin("k", b"body")
    assert answers.begin("k", b"other") == StoredAnswer(failure="request-id-reused")
    answers.finish("k", StoredAnswer(b"one"))
    assert answers.begin("k", b"other") == StoredAnswer(failure="request-id-reused")


def test_the_representation_shows_no_body() -> None:
    assert "secret" not in repr(StoredAnswer(b"secret"))


@given(st.lists(st.integers(0, 30), max_size=120), st.integers(1, 8))
def test_a_key_is_begun_at_most_once_however_small_the_memory(
    keys: list[int], room: int
) -> None:
    answers = MemoryAnswers(most_bytes=room * 600)
    begun: list[str] = []
    for number in keys:
        key = f"request-{number}"
        if answers.begin(key, b"body") is Progress.NEW:
            begun.append(key)
            answers.finish(key, StoredAnswer(b"x" * 40))
    assert len(begun) == len(set(begun))
