from __future__ import annotations

import dataclasses
from fractions import Fraction
from pathlib import Path

import pytest

from wallflower.protocol.errors import ConfigError
from wallflower.protocol.rewards.reward_range import RewardRange
from wallflower.strategy.config import (
    ExperimentConfig,
    config_from_canonical,
    differences,
    load_config,
)
from wallflower.strategy.sections import TransportSettings

GOOD = """
[experiment]
name = "test"
arms = ["a", "b"]
[privacy]
epsilon = 0.1
[rewards]
means = [0.2, 0.8]
"""


def load(tmp_path: Path, text: str) -> ExperimentConfig:
    path = tmp_path / "experiment.toml"
    path.write_text(text)
    return load_config(path)


def test_a_short_file_is_complete(tmp_path: Path) -> None:
    config = load(tmp_path, GOOD)
    assert config.privacy.epsilon == Fraction(1, 10)
    assert config.horizon == config.nodes.population == 20_000


def test_a_file_is_named_by_a_text_too(tmp_path: Path) -> None:
    config = load(tmp_path, GOOD)
    assert load_config(str(tmp_path / "experiment.toml")) == config


def test_the_canonical_form_reads_back_as_the_same_config(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        GOOD + 'table = "t.csv"\n[nodes]\ncount = 3\nusers = [1, 2, 30]\n',
    )
    again = config_from_canonical(config.canonical())
    assert again == config
    assert again.fingerprint() == config.fingerprint()
    assert again.rewards is not None
    assert again.rewards.table == tmp_path / "t.csv"


def test_every_difference_is_named(tmp_path: Path) -> None:
    old = load(tmp_path, GOOD)
    new = load(tmp_path, GOOD.replace("0.1", "0.2"))
    assert differences(old, new) == ("privacy.epsilon: 1/10 → 1/5",)
    assert old.fingerprint() != new.fingerprint()


@pytest.mark.parametrize("example", sorted(Path("examples").glob("*.toml")))
def test_every_example_is_valid(example: Path) -> None:
    assert len(load_config(example).experiment.arms) >= 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("epsilon = 0.1", "epsilon = 0"), "epsilon is 0; allowed: greater than 0"),
        (("epsilon = 0.1", "epsilon = -1"), "epsilon is -1"),
        (
            ("epsilon = 0.1", 'epsilon = "much"'),
            'expected a number, got the text "much"',
        ),
        (("epsilon", "epsilom"), 'did you mean "epsilon"'),
        (("[privacy]", "[privasy]"), 'did you mean "privacy"'),
        (("[privacy]", "[privacy"), "is not valid TOML"),
        (('name = "test"\n', ""), '"name" is missing'),
        (('["a", "b"]', '["a"]'), "arms is 1 name; allowed: at least two"),
        (('["a", "b"]', '["a", "a"]'), "different names"),
        (('["a", "b"]', '"a"'), "expected a list"),
        (("[0.2, 0.8]", "[0.2]"), "one mean per arm"),
        (("[0.2, 0.8]", "[0.2, 0.8, 0.9]"), "each of the 2 arms"),
        (
            ("[0.2, 0.8]", "[0.2, 1.8]"),
            "means is 1.8; allowed: within rewards.range, 0 to 1",
        ),
        (("[rewards]", "[rewards]\nrange = [5, 5]"), "range is [5, 5]; allowed: two"),
        (("[rewards]", "[rewards]\nrange = [0, 1, 2]"), "range is a list of 3"),
        (("[rewards]", '[rewards]\nunit = " €"'), "unit is ' €'; allowed: at most 20"),
        (("[rewards]", "[rewards]\ndeviation = 2"), "deviation is 2.0; allowed: above"),
        (("[rewards]", "[transport]\nport = 70000\n[rewards]"), "at most 65535"),
        (("[rewards]", '[transport]\nkind = "grcp"\n[rewards]'), 'mean "grpc"'),
        (("[rewards]", "[secure-sum]\ncorrupt = 1\n[rewards]"), "corrupt is 1"),
        (
            ("[rewards]", '[secure-sum]\nshuffle = "mixed"\n[rewards]'),
            'shuffle is mixed; allowed: for backend = "shuffle"',
        ),
        (
            ("[rewards]", '[secure-sum]\nbackend = "shuffle"\n[rewards]'),
            '"mixed" with mechanism dist-dp',
        ),
        (("[rewards]", "[nodes]\ncount = 1\n[rewards]"), "at least 2"),
        (("[rewards]", "[nodes]\nusers = [1]\n[rewards]"), "one entry per node"),
        (("[rewards]", "[policy]\nratio = 1\n[rewards]"), "ratio is 1"),
        (
            ("[rewards]", '[policy]\nname = "imed"\n[rewards]'),
            ':8: policy: name is "imed" (did you mean "dp-imed"?)',
        ),
        (("[rewards]", '[policy]\nradius = "x"\n[rewards]'), "one of tight, paper"),
        (("[rewards]", "[test]\nnoise-seed = -1\n[rewards]"), ":8: test: noise-seed"),
        (("[rewards]", "[rewards]\nseed = -1"), ":8: rewards: seed is -1"),
        (("test", ".."), ":3: experiment: name is"),
        (("test", "-x"), "allowed: 1 to 100 letters, digits, - _ ."),
        (("test", "x" * 101), "allowed: 1 to 100 letters"),
        (('"b"]', '"a "]'), "arms is 'a '; allowed: printable, 1 to 200 characters"),
        (("[0.2, 0.8]", "[0.2, 0.3, 0.4]"), "experiment.toml:8: rewards.means is a"),
        (("[rewards]", '[rewards]\nsource = "table"'), "table is missing"),
        (("[rewards]", '[rewards]\nsource = "callable"'), "module:function"),
    ],
)
def test_broken_files_are_refused_in_one_line(
    tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, GOOD.replace(*change))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "experiment.toml" in str(caught.value)


def test_whole_numbers_of_seconds_have_one_canonical_form(tmp_path: Path) -> None:
    one = load(tmp_path, GOOD + "[transport]\nstage-timeout-s = 3\n")
    two = load(tmp_path, GOOD + "[transport]\nstage-timeout-s = 3.0\n")
    three = dataclasses.replace(one, transport=TransportSettings(stage_timeout_s=3))
    assert one.fingerprint() == two.fingerprint() == three.fingerprint()
    assert config_from_canonical(three.canonical()).fingerprint() == one.fingerprint()


def test_the_range_of_outcomes_is_part_of_the_question(tmp_path: Path) -> None:
    text = GOOD.replace("[0.2, 0.8]", '[20, 80]\nrange = [-50, 150]\nunit = "€"')
    config = load(tmp_path, text)
    assert config.reward_range == RewardRange(Fraction(-50), Fraction(150), "€")
    assert config_from_canonical(config.canonical()) == config
    other = load(tmp_path, text.replace("150", "300"))
    assert differences(config, other) == (
        "rewards.range: ['-50', '150'] → ['-50', '300']",
    )
    assert config.fingerprint() != other.fingerprint()


def test_an_experiment_may_state_a_range_and_leave_the_source_to_its_nodes(
    tmp_path: Path,
) -> None:
    text = GOOD.replace("means = [0.2, 0.8]", 'range = [0, 200]\nunit = "€"')
    assert load(tmp_path, text).reward_range == RewardRange(
        Fraction(0), Fraction(200), "€"
    )


VISITORS = """
[experiment]
name = "site"
arms = ["a", "b"]
horizon = 1000
[visitors]
admission = "open"
"""


def test_people_who_arrive_have_a_week_unless_told_otherwise(tmp_path: Path) -> None:
    config = load(tmp_path, VISITORS)
    assert config.visitors is not None
    assert (config.visitors.deadline_s, config.visitors.least_trustees) == (604_800, 5)
    assert config_from_canonical(config.canonical()) == config


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("horizon = 1000", ""), "experiment.horizon is missing"),
        (('"open"', '"anybody"'), 'admission is "anybody"'),
        (('"open"', '"open"\ninviter = "i.pub"'), 'for admission = "invited"'),
        (('"open"', '"open"\ndeadline-s = 0'), "deadline-s is 0"),
        (('"open"', '"open"\nleast-trustees = 1'), "least-trustees is 1"),
        (('"open"', '"open"\ntrustees = ["t"]'), "trustees is 1 names"),
        (('"open"', '"open"\ntrustees = ["../t"]'), "without a slash"),
        (('"open"', '"open"\ntrustees = [""]'), "names of nodes"),
        (
            (
                '[visitors]\nadmission = "open"',
                '[secure-sum]\nserver = "malicious"\n[visitors]\nadmission = "invited"'
                f"\ntrustees = {[f't{number}' for number in range(21)]}",
            ),
            "least-trustees is 5; allowed: 21 or more: of 21 trustees 3 may collude",
        ),
        (
            ("[visitors]", '[secure-sum]\nbackend = "secagg-plus"\n[visitors]'),
            'allowed: "sealed" with \\[visitors\\]',
        ),
        (
            ("[visitors]", '[privacy]\nmechanism = "central-dp"\n[visitors]'),
            "one whose noise people add themselves",
        ),
        (
            ("[visitors]", '[secure-sum]\nserver = "malicious"\n[visitors]'),
            "a server that lies could invent people",
        ),
    ],
)
def test_seats_that_could_not_work_are_refused(
    tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load(tmp_path, VISITORS.replace(*change))
