"""What the README shows must be true."""

from __future__ import annotations

import math
import re
import tomllib
from decimal import Decimal
from pathlib import Path

from wallflower.cli import command_line
from wallflower.protocol.files.settings import settings_from
from wallflower.protocol.privacy.honest_floor import FloorRule
from wallflower.protocol.privacy.sentences import CohortCondition, KeyHolders, Promise
from wallflower.results.endings import summarize_promise
from wallflower.strategy.config import ExperimentConfig, load_config

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_its_experiment_is_a_valid_one() -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", README, re.DOTALL)
    table = tomllib.loads(block, parse_float=Decimal)
    config = settings_from(ExperimentConfig, table, "README.md")
    assert config.mechanism().name == "dist-dp"


def test_its_commands_exist() -> None:
    known = {command.name for command in command_line().registered_commands}
    named = set(re.findall(r"^wallflower ([a-z]+)", README, re.MULTILINE))
    assert named
    assert named <= known


def test_its_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z][a-z-]+)", README)) - {"and"}
    assert named
    assert named <= targets


def test_every_relative_link_of_readme_and_docs_leads_somewhere() -> None:
    broken = [
        f"{page.name}: {target}"
        for page in PAGES
        for target in re.findall(
            r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8")
        )
        if not (page.parent / target).exists()
    ]
    assert not broken


def test_the_promise_it_shows_is_the_demos() -> None:
    config = load_config(ROOT / "examples" / "headline.toml")
    policy, stated = config.policy, config.secure_sum
    assert stated.nodes_per_cohort is not None
    rule = FloorRule(stated.nodes_per_cohort, stated.corrupt, stated.dropout)
    assert stated.backend == "sealed"
    sizes = [policy.first_batch * 2**batch for batch in range(4)]
    nodes = config.nodes.count
    promise = Promise(
        kind="pure",
        trust="distributed",
        epsilon=config.privacy.epsilon,
        conditions=tuple(
            CohortCondition(
                size, rule(size), rule.nodes, math.ceil(stated.corrupt * rule.nodes)
            )
            for size in sizes
        ),
        keys=(KeyHolders(nodes, math.ceil(stated.corrupt * nodes), drawn=True),),
    )
    shown = summarize_promise(promise, rehearsal=True, semi_honest=True)
    assert shown in " ".join(README.split())


def test_it_names_the_paper_and_stays_short() -> None:
    words = " ".join(README.split())
    for fact in (
        "Distributed Differential Privacy in Multi-Armed Bandits",
        "Sayak Ray Chowdhury and Xingyu Zhou",
        "ICLR 2023",
        "arXiv 2206.05772",
    ):
        assert fact in words
    prose = re.sub(r"```.*?```", "", README, flags=re.DOTALL)
    assert len(prose.split()) <= 900
