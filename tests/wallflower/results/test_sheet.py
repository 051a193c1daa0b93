"""The participants' sheet says what the plan promises, in plain words."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

from tests.support.run_fixtures import SMALL, write
from tests.wallflower.test_run_commands import invoke
from wallflower import api
from wallflower.planning.collusion import collusion_effect

CONTACT = """
[contact]
responsible = "Example Clinic"
email = "study@clinic.example"
officer = "the board <b>"
purpose = "to learn"
retention = "Ten years."
"""
STATED = SMALL.replace("means = [0.1, 0.9, 0.2]", "means = [0.1, 0.9, 0.2]" + CONTACT)


def sheet(folder: Path, text: str = STATED, language: str = "en") -> str:
    path = folder / "sheet.html"
    words = ("sheet", write(folder, text), "--language", language, "--output", path)
    code, said = invoke(*words)
    assert code == 0, said
    tagless = re.sub(r"<style>.*?</style>|<[^>]+>", " ", path.read_text(), flags=re.S)
    return " ".join(html.unescape(tagless).split())


def with_privacy(keys: str) -> str:
    return STATED.replace("[policy]", f"[privacy]\n{keys}\n[policy]")


def test_the_even_bet_is_the_promise_of_the_plan(tmp_path: Path) -> None:
    assert "they can give at most 2.72 to 1" in sheet(tmp_path)
    assert "differential privacy with ε = 1 for" in sheet(tmp_path)


def test_the_condition_has_both_halves_and_what_breaks_them(tmp_path: Path) -> None:
    text = sheet(tmp_path)
    promise = api.plan(tmp_path / "experiment.toml").plan.promise
    effect = collusion_effect(
        [one.cohort for one in api.plan(tmp_path / "experiment.toml").plan.batches]
    )
    assert promise.corrupt
    assert effect is not None
    assert "at most 10 % of the devices work with the organiser" in text
    assert re.search(r"at least [\d.]+ % of the people of each group", text)
    assert "If only half of those do, even odds may become" in text
    assert 1 < effect.half < effect.alone


def test_whom_to_ask_and_how_long_comes_from_the_file(tmp_path: Path) -> None:
    text = sheet(tmp_path)
    for stated in ("Example Clinic", "study@clinic.example", "the board <b>"):
        assert stated in text
    assert "Ten years." in text
    assert "Its purpose: to learn" in text


def test_in_german_words_and_numbers_are_german(tmp_path: Path) -> None:
    text = sheet(tmp_path, language="de")
    assert "kann die Wette höchstens 2,72 zu 1 stehen" in text
    assert "höchstens 10 % der Geräte" in text
    assert "Verantwortlich: Example Clinic" in text


@pytest.mark.parametrize(
    ("language", "day", "half"),
    [
        ("en", "taken 1 day after you were shown it", "taken 1.5 seconds after"),
        ("de", "erhoben nach 1 Tag.", "erhoben nach 1,5 Sekunden."),
    ],
)
def test_one_day_is_a_day_and_more_are_days(
    language: str, day: str, half: str, tmp_path: Path
) -> None:
    for window, said in ((86400, day), (1.5, half)):
        text = STATED.replace("[rewards]", f"[rewards]\nwindow-s = {window}")
        assert said in sheet(tmp_path, text, language)


def test_a_stop_at_the_end_of_what_the_file_states_is_not_doubled(
    tmp_path: Path,
) -> None:
    stated = STATED.replace('"to learn"', '"To learn."').replace("board <b>", "board.")
    text = sheet(tmp_path, stated)
    assert "Its purpose: To learn. Taking part" in text
    assert ".." not in text


@pytest.mark.parametrize("language", ["en", "de"])
def test_delta_is_a_power_and_not_in_the_notation_of_a_program(
    language: str, tmp_path: Path
) -> None:
    text = sheet(tmp_path, with_privacy('mechanism = "dist-rdp"'), language)
    assert "10⁻⁶" in text
    assert "e-06" not in text


def test_numbers_have_german_signs_and_a_unit_keeps_its_own(tmp_path: Path) -> None:
    keys = 'range = [0, 1250.5]\nunit = "Std."'
    stated = STATED.replace("[rewards]", f"[rewards]\n{keys}")
    assert "als Zahl von 0 bis 1.250,5 Std." in sheet(tmp_path, stated, "de")


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ('mechanism = "central-dp"', "The organiser’s computer sees how it went"),
        ('mechanism = "local-dp"', "It holds whoever colludes"),
        ('mechanism = "dist-rdp"', "times as likely as after any other outcome"),
        ("max-participations = 2", "You take part 2 times at most."),
    ],
)
def test_other_terms_have_other_sentences(keys: str, said: str, tmp_path: Path) -> None:
    assert said in sheet(tmp_path, with_privacy(keys))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (SMALL, '"responsible" is missing: people must know whom to ask'),
        (with_privacy('mechanism = "non-private"'), "mechanism"),
        (STATED + "[test]\nnoise-seed = 3\n", "nobody may be asked on these terms"),
    ],
)
def test_where_nothing_is_promised_or_nobody_can_be_asked_there_is_no_sheet(
    text: str, why: str, tmp_path: Path
) -> None:
    code, said = invoke("sheet", write(tmp_path, text), "--output", tmp_path / "s")
    assert (code, why in said) == (2, True), said
    assert not (tmp_path / "s").exists()


def test_an_unknown_language_is_refused(tmp_path: Path) -> None:
    code, said = invoke("sheet", write(tmp_path, STATED), "--language", "fr")
    assert (code, "one of en, de" in said) == (2, True)


def test_a_contact_is_one_short_line(tmp_path: Path) -> None:
    long = STATED.replace("Ten years.", "x" * 301)
    code, said = invoke("sheet", write(tmp_path, long))
    assert (code, "retention is" in said) == (2, True)
