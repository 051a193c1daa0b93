from __future__ import annotations

from pathlib import Path

import pytest

from deploy.harness.tables import read_csv, write_between_marks, write_csv

MARKS = ("<!-- gathered -->", "<!-- /gathered -->")


def test_a_table_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text("head\n<!-- gathered -->\nold\n<!-- /gathered -->\ntail\n")
    for words in ("first\n", "second\n"):
        write_between_marks(document, words, MARKS)
    expected = "head\n<!-- gathered -->\nsecond\n<!-- /gathered -->\ntail\n"
    assert document.read_text() == expected
    bare = tmp_path / "bare.md"
    bare.write_text("no marks\n")
    with pytest.raises(ValueError, match="gathered"):
        write_between_marks(bare, "words\n", MARKS)


def test_a_csv_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    write_csv(path, "two rows", [("a", "b"), ("1, 2", 3), ("", 4)])
    assert path.read_text() == '# two rows\na,b\n"1, 2",3\n,4\n'
    rows = [{"a": "1, 2", "b": "3"}, {"a": "", "b": "4"}]
    assert read_csv(path) == ("two rows", rows)
