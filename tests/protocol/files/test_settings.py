from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import pytest

from wallflower.protocol.errors import ConfigError, InputError
from wallflower.protocol.files.settings import read_toml, settings_from


@dataclass(frozen=True, slots=True)
class Inner:
    epsilon: Fraction
    max_participations: int = 1

    def __post_init__(self) -> None:
        if self.epsilon <= 0:
            raise InputError("epsilon", self.epsilon, "greater than 0")


@dataclass(frozen=True, slots=True)
class Limits:
    amount: int = 0


@dataclass(frozen=True, slots=True)
class Outer:
    privacy: Inner
    means: tuple[float, ...] = ()
    limits: Limits | None = None


def load(tmp_path: Path, text: str) -> Outer:
    path = tmp_path / "experiment.toml"
    path.write_text(text)
    return settings_from(Outer, read_toml(path), path.name)


def test_decimals_are_read_exactly(tmp_path: Path) -> None:
    outer = load(tmp_path, "means = [0.5, 1]\n[privacy]\nepsilon = 0.1")
    assert outer.privacy.epsilon == Fraction(1, 10)
    assert outer.means == (0.5, 1.0)


def test_an_unknown_key_is_refused_with_the_near_miss(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match='did you mean "max-participations"'):
        load(tmp_path, "[privacy]\nepsilon = 1\nmax-participation = 2")


def test_a_key_in_the_wrong_table_is_sent_to_the_right_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r'key "amount" \(it belongs to \[limits\]\)'):
        load(tmp_path, "[privacy]\nepsilon = 1\namount = 3")


@pytest.mark.parametrize("word", ["expected", "user", "scale", "option"])
def test_a_word_that_only_shares_letters_is_not_suggested(
    word: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=rf'unknown key "{word}"; known'):
        load(tmp_path, f"[privacy]\nepsilon = 1\n{word} = 2")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", '"privacy" is missing'),
        (
            "privacy = 3",
            "experiment.toml:1: privacy: expected a table, got the number 3",
        ),
        ('[privacy]\nepsilon = "x"', "expected a number"),
        ("[privacy]\nepsilon = true", "expected a number"),
        ("[privacy]\nepsilon = 1\nmax-participations = 1.5", "a whole number"),
        ("means = 3\n[privacy]\nepsilon = 1", "expected a list"),
        ("[privacy]\nepsilon = -1", "epsilon is -1; allowed: greater than 0"),
        ("[privacy", "is not valid TOML"),
        ("a = " + "[" * 5_000, "is not valid TOML: it nests too deep"),
        (
            "means = [nan]\n[privacy]\nepsilon = 1",
            "NaN is out of bounds; allowed: a finite",
        ),
        ("means = [\n1,\n", "(at the end, line 2)"),
        ("[privacy]\nepsilon = 1e400", "epsilon: 1E+400 is out of bounds; allowed:"),
        (
            "means = [1e400]\n[privacy]\nepsilon = 1",
            "means[0]: 1E+400 is out of bounds",
        ),
        ("means = [inf]\n[privacy]\nepsilon = 1", "Infinity is out of bounds"),
    ],
)
def test_broken_files_are_refused_in_one_line(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml: no such file"):
        read_toml(tmp_path / "nowhere.toml")


def test_the_mark_with_which_some_editors_begin_a_file_is_skipped(
    tmp_path: Path,
) -> None:
    (tmp_path / "marked.toml").write_bytes(b"\xef\xbb\xbfmeans = [0.5]\n")
    assert set(read_toml(tmp_path / "marked.toml")) == {"means"}


def test_the_line_is_named_in_which_a_file_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b"means = [\n1, # \xe4\n]")
    with pytest.raises(ConfigError, match=r"latin\.toml:2: is not UTF-8 text"):
        read_toml(tmp_path / "latin.toml")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("\n[privacy]\nepsilon = true", "experiment.toml:3: privacy.epsilon: expected"),
        ("[privacy]\nepsilon = 1\n\n# so\nepsilom = 2", "toml:5: privacy: unknown key"),
        ("[privacy]\nepsilon = -1 # no", "toml:2: privacy: epsilon is -1; allowed"),
        ("\n[ privacy ] # here\n", 'toml:2: privacy: "epsilon" is missing'),
        ("privacy.epsilon = -1", "toml:1: privacy: epsilon is -1"),
        ('[privacy]\n"epsilon" = "a"', "toml:2: privacy.epsilon: expected a number"),
        ("means = [\n1,\n'a']\n[privacy]\nepsilon=1", "toml:1: means[1]: expected"),
        ("privacy = {epsilon = -1}", "toml:1: privacy: epsilon is -1"),
        ("meens = 1\n[privacy]\nepsilon = 1", 'toml:1: unknown key "meens"'),
        (
            'limits = """\n[privacy]\n"""\n[privacy]',
            'toml.privacy: "epsilon" is missing',
        ),
        ("", 'experiment.toml: "privacy" is missing'),
    ],
)
def test_what_is_wrong_is_named_with_its_line(
    text: str, place: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert place in str(caught.value)
