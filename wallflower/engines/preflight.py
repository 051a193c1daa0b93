"""All that can be known to be wrong before anybody is invited, and what to do about it.

`wallflower check` prints these lines; `run` and `resume` look for themselves and stop
at the first that fails. Nothing here spends anybody's privacy: a source is asked about
nobody, or about test users, and what a table holds is only counted.
"""

from __future__ import annotations

import datetime
import hashlib
import importlib.metadata
import math
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement

from wallflower.clients.rewards.ready import require_ready
from wallflower.clients.rewards.source import Rewards
from wallflower.engines.population import (
    agreed_policy,
    hosted_people,
    node_names,
    read_file,
    reward_sources,
)
from wallflower.engines.registry import check_options, find_engine
from wallflower.engines.sites import check_place
from wallflower.planning.plan import describe_outlook
from wallflower.protocol.errors import (
    ConfigError,
    InputError,
    UnavailableError,
    WallflowerError,
)
from wallflower.protocol.files.sections import RewardSettings
from wallflower.protocol.identity.certificates import days_left
from wallflower.protocol.numbers import counted
from wallflower.protocol.rewards.cells import ArmCells, read_cells
from wallflower.protocol.secure_sum.backends import SHUFFLE
from wallflower.strategy.bandit.policies import policy_for
from wallflower.strategy.bandit.spec import DECIDING
from wallflower.strategy.config import ExperimentConfig
from wallflower.strategy.own_loop import run_to_end
from wallflower.strategy.run.cohort import describe_cohort
from wallflower.strategy.run.drawing import (
    can_fill_round,
    find_stranded,
    make_floor_rule,
)
from wallflower.strategy.run.registry import UserRegistry
from wallflower.strategy.store.entries import BUDGET_ADVICE, Askable
from wallflower.strategy.store.run_store import new_store
from wallflower.strategy.transport.grpc.host import enrolment_key
from wallflower.version import __version__

OK, WARN, FAIL = "ok", "warn", "fail"
DEPLOYMENT, SERVE = "deployment", "serve"
# What a run writes: a journal's rows and a ledger's, and room for the rest.
_BYTES_A_USER = 200
_BYTES_AT_LEAST = 50_000_000


@dataclass(frozen=True, slots=True)
class CheckLine:
    """One thing that was looked at.

    Attributes
    ----------
    name : what it is about.
    level : ``ok``, ``warn`` or ``fail``.
    text : what was found, and where it is not ok what to do.
    error : why a run would not begin.
    arms : of a table, how the cells of every arm count.
    """

    name: str
    level: str
    text: str
    error: WallflowerError | None = None
    arms: tuple[ArmCells, ...] = ()


@dataclass(frozen=True, slots=True)
class Preflight:
    """What is about to be run, and where."""

    config: ExperimentConfig
    engine: str
    run_dir: Path
    options: tuple[tuple[str, str], ...] = ()

    @property
    def hosted(self) -> bool:
        """Whether the engine itself hosts the nodes and their rewards."""
        return self.engine not in (DEPLOYMENT, SERVE)


def check_experiment(asked: Preflight) -> list[CheckLine]:
    """Look at everything a run needs, and at what it can find out."""
    config, lines = asked.config, preflight(asked)
    if any(line.error is not None for line in lines):
        return lines
    known = asked.hosted and config.visitors is None
    people = hosted_people(config).values() if known else ()
    sizes = tuple(n for one in people if (n := one.users - one.left_out))
    stranded = find_stranded(config, sizes) if sizes else None
    if stranded is not None:
        lines.append(CheckLine("users", WARN, stranded.describe()))
    enough, text = describe_outlook(config)
    return [*lines, CheckLine("plan", OK if enough else WARN, text)]


def preflight(asked: Preflight) -> list[CheckLine]:
    """Look at everything; one thing that fails keeps no other from being looked at."""
    lines: list[CheckLine] = []
    for name, check in _CHECKS.items():
        try:
            lines += check(asked)
        except WallflowerError as error:
            # What two checks find is said once.
            if str(error) not in [line.text for line in lines]:
                lines.append(CheckLine(name, FAIL, str(error), error))
    return lines


def _ok(name: str, text: str) -> CheckLine:
    return CheckLine(name, OK, text)


def _settings(asked: Preflight) -> Iterator[CheckLine]:
    config = asked.config
    config.mechanism()
    next_cohorts = policy_for(config).next_cohorts()
    privacy = config.privacy
    yield _ok(
        "experiment",
        f"{len(config.experiment.arms)} arms, {privacy.mechanism} at ε = "
        f"{float(privacy.epsilon):g}, first round {next_cohorts[0].size:,} users "
        "an arm",
    )
    if config.test_mode:
        yield CheckLine(
            "experiment",
            WARN,
            "test.noise-seed is set: nobody is protected; never with real people",
        )


def _users(asked: Preflight) -> Iterator[CheckLine]:
    """Check that the first round can be filled, on terms that the users agree to."""
    config = asked.config
    if config.visitors is not None:
        yield _seats(config)
        return
    if not asked.hosted:
        yield _ok("users", "nodes say themselves who lives there")
        return
    shared = config.rewards and config.rewards.shared_table
    if shared and not shared.is_file():
        return  # it says who there is: `rewards` names it
    next_cohorts = policy_for(config).next_cohorts()
    needed, there = (
        sum(cohort_request.size for cohort_request in next_cohorts),
        config.nodes.population,
    )
    if there < needed:
        raise InputError(
            "nodes",
            f"{there} users in all",
            f"at least {needed}, which the first round asks",
        )
    if next_cohorts[0].size < 2:
        allowed = "at least 2 users an arm: nobody hides alone"
        raise InputError("policy.first-batch", next_cohorts[0].size, allowed)
    registry = UserRegistry(config.privacy.max_participations)
    people = hosted_people(config, _own_shuffler(config))
    registry.restore_nodes(people)
    askable = Askable.count(people, 0)
    if askable.left_out and not can_fill_round(registry, config, next_cohorts):
        raise ConfigError("nodes.ledger", f"{askable.describe()} {BUDGET_ADVICE}")
    if not can_fill_round(registry, config, next_cohorts):
        raise ConfigError(
            "nodes",
            f"{there:,} users on {config.nodes.count} nodes cannot fill the first "
            "round: too few nodes, or one with too many of the users, for "
            "secure-sum.corrupt and dropout",
        )
    floor = make_floor_rule(config, config.nodes.count).floor(next_cohorts[0].size)
    agreed = agreed_policy(config, _own_shuffler(config))
    agreed.check(describe_cohort(config, "check", next_cohorts[0], floor, 1))
    yield _ok(
        "users",
        f"{there:,} users on {config.nodes.count} nodes; the first round asks "
        f"{needed:,} of them{f'. {askable.describe()}' if askable.left_out else ''}",
    )


def _seats(config: ExperimentConfig) -> CheckLine:
    """Check that a round's seats keep their promise, whoever comes."""
    assert config.visitors is not None
    request = policy_for(config).next_cohorts()[0]
    floor = make_floor_rule(config, request.size).floor(request.size)
    spec = describe_cohort(config, "check", request, floor, 1)
    if config.nodes.policy is not None:
        agreed_policy(config).check(spec)
    text = (
        f"people arrive ({config.visitors.admission}); a first round has "
        f"{request.size:,} seats an arm, its sums {floor.quorum:,} answers at least"
    )
    if config.policy.name in DECIDING:
        return _ok("users", text)
    hours = f"{config.policy.name} shows arms at different hours: where outcomes drift"
    return CheckLine("users", WARN, f"{text}. {hours}, it may favour a worse one")


def _own_shuffler(config: ExperimentConfig) -> tuple[str, ...]:
    """Stand in for the pin of a shuffler that the engine is yet to start."""
    stated = config.secure_sum
    if stated.backend != SHUFFLE or stated.shuffler:
        return ()
    return (hashlib.sha256(b"to be started").hexdigest(),)


def _rewards(asked: Preflight) -> list[CheckLine]:
    """Check that the source can be asked about every arm, and is sane for a sample."""
    if not asked.hosted:
        return [_ok("rewards", "every node asks its own source before it agrees")]
    config = asked.config
    names, of = node_names(config), reward_sources(config)
    known: dict[int, Rewards] = {id(source): source for source in map(of, names)}
    run_to_end(try_sources(known.values(), config.experiment.arms))
    assert config.rewards is not None
    if config.rewards.source == "table":
        return judge_table(config.rewards, config.experiment.arms, names)
    return [_source(config.rewards, config)]


async def try_sources(sources: Iterable[Rewards], arms: Sequence[str]) -> None:
    """Ask every source about every arm, and close them all."""
    try:
        for source in sources:
            for arm, name in enumerate(arms):
                await require_ready(source, arm, name)
    finally:
        for source in sources:
            await source.close()


def judge_table(
    settings: RewardSettings, arms: Sequence[str], nodes: Sequence[str]
) -> list[CheckLine]:
    """Count how the cells of a table would count, arm by arm, and judge them."""
    named = [Path(str(settings.table).replace("{node}", node)) for node in nodes]
    measured, window = settings.reward_range, settings.window
    judged, _ = read_cells(
        list(dict.fromkeys(named)), arms, measured, window.if_unknown
    )
    lines = [
        CheckLine("rewards", FAIL, str(error), error, judged.arms)
        for error in judged.find_errors()
    ]
    lines += [
        CheckLine("rewards", WARN, text, arms=judged.arms)
        for text in judged.find_warnings()
    ]
    many = f"{counted(judged.cells, 'cell')} of {counted(len(arms), 'arm')}"
    text = f"table: {many}, all from {measured}"
    return lines or [CheckLine("rewards", OK, text, arms=judged.arms)]


def _source(settings: RewardSettings, config: ExperimentConfig) -> CheckLine:
    measured = settings.reward_range
    if settings.source == "synthetic":
        tried = "drawn from a model, for rehearsals"
    elif settings.test_users:
        many = counted(len(settings.test_users), "test user")
        tried = f"tried on {many}, all from {measured}"
    else:
        tried = (
            "there; no value was looked at (rewards.test-users would allow it); "
            f"people are named {_names_of_people(config)}"
        )
    return _ok("rewards", f"{settings.source}: {tried}")


def _names_of_people(config: ExperimentConfig) -> str:
    """Say what `user` is when a function or service is asked about somebody."""
    last = max(config.nodes.sizes) - 1
    return "u0 on every node" if last == 0 else f"u0 to u{last} on every node"


def _keys(asked: Preflight) -> Iterator[CheckLine]:
    stated = asked.config.secure_sum
    if asked.hosted:
        yield _ok("keys", "made for this run, on this machine: a rehearsal")
        return
    if enrolment_key(asked.config) is None:
        yield CheckLine(
            "keys",
            WARN,
            "no secure-sum.enrolment: nothing authenticates nodes' keys, so people "
            "must believe that the server keeps to the protocol (wallflower keys)",
        )
    elif stated.server != "malicious":
        yield CheckLine(
            "keys",
            WARN,
            'nodes with an enrolment key refuse secure-sum.server = "semi-honest" '
            'unless their policy allows it; say "malicious"',
        )
    else:
        yield _ok("keys", f"enrolment key {stated.enrolment}")


def _certificates(asked: Preflight) -> Iterator[CheckLine]:
    path, kind = asked.config.transport.certificate, asked.config.transport.kind
    if path is None or (asked.hosted and kind != "grpc"):
        return
    pem = read_file("transport.certificate", path)
    days = days_left(pem, datetime.datetime.now(datetime.UTC))
    if days <= 0:
        raise ConfigError(f"transport.certificate {path}", "is expired; make a new one")
    text = f"transport.certificate is good for {counted(round(days), 'day')}"
    soon = days < 14
    hint = "; make a new one: wallflower keys" if soon else ""
    yield CheckLine("certificates", WARN if soon else OK, text + hint)


def _engine(asked: Preflight) -> Iterator[CheckLine]:
    check_options(asked.engine, asked.options)
    find_engine(asked.engine).check(asked.config)
    yield _ok(
        "engine",
        f"{asked.engine}, {check_place(asked.config, asked.engine, asked.options)}",
    )


def _store(asked: Preflight) -> Iterator[CheckLine]:
    """Ask the database that several hosts may share whether it is there."""
    if asked.config.store.url:
        store = new_store(asked.run_dir, asked.config.store.url, "check")
        store.holds_run()
        yield _ok("store", "PostgreSQL answers")


def _disk(asked: Preflight) -> Iterator[CheckLine]:
    folder = asked.run_dir.absolute()
    while not folder.exists():
        folder = folder.parent
    wrong = "" if os.access(folder, os.W_OK | os.X_OK) else "cannot be written to"
    if wrong := wrong if folder.is_dir() else "is not a folder":
        raise UnavailableError(f"{folder} {wrong}; give --run-dir elsewhere")
    free = shutil.disk_usage(folder).free
    config = asked.config
    needed = _BYTES_AT_LEAST + _BYTES_A_USER * config.horizon
    text = (
        f"{_megabytes(free)} free in {folder}; a run of {config.horizon:,} users may "
        f"write {_megabytes(needed)}"
    )
    if free < _BYTES_AT_LEAST:
        raise UnavailableError(f"{text}: make room, or give --run-dir elsewhere")
    if free < needed:
        yield CheckLine("disk", WARN, f"{text}: make room, or give --run-dir elsewhere")
    else:
        yield _ok("disk", text)


def _megabytes(count: int) -> str:
    return f"{math.ceil(count / 1_000_000):,} MB"


def _versions(asked: Preflight) -> Iterator[CheckLine]:
    """Compare what is installed with what this Wallflower was made for."""
    try:
        wanted = importlib.metadata.requires("wallflower") or []
    except importlib.metadata.PackageNotFoundError:
        wanted = []
    wrong = []
    for text in wanted:
        one = Requirement(text)
        if one.marker is not None and not one.marker.evaluate({"extra": ""}):
            continue
        try:
            found = importlib.metadata.version(one.name)
        except importlib.metadata.PackageNotFoundError:
            found = "none"
        if found == "none" or not one.specifier.contains(found, prereleases=True):
            wrong.append(f"{one.name} {found} instead of {one.specifier}")
    if wrong:
        raise UnavailableError(f"installed here: {', '.join(wrong)}; install them anew")
    flower = importlib.metadata.version("flwr")
    yield _ok("versions", f"wallflower {__version__}, flwr {flower}")


_CHECKS: dict[str, Callable[[Preflight], Iterable[CheckLine]]] = {
    "experiment": _settings,
    "users": _users,
    "rewards": _rewards,
    "keys": _keys,
    "certificates": _certificates,
    "engine": _engine,
    "store": _store,
    "disk": _disk,
    "versions": _versions,
}
