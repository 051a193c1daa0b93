"""Plan, simulate, check, run and verify from Python; the commands call the same.

What is heavy is imported when a function is called, so that the command line and
``import wallflower`` stay quick.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wallflower.reports import (
    CheckReport,
    PlanReport,
    SimulationReport,
    Verification,
)

if TYPE_CHECKING:
    from wallflower.planning.request import PlanRequest
    from wallflower.results.page import Run
    from wallflower.stated_experiment import Source
    from wallflower.strategy.config import ExperimentConfig
    from wallflower.strategy.store.entries import Askable

Number = int | float | str | Decimal | Fraction  # read exactly: 0.1 means 1/10
Changes = Mapping[str, Any]
_USUAL_PLAN = {"experiment": {"name": "plan", "horizon": 100_000}}


def plan(
    experiment: Source | None = None,
    *,
    arms: Number | None = None,
    horizon: Number | None = None,
    epsilon: Number | None = None,
    mechanism: str | None = None,
    gaps: Sequence[Number] = (),
    lifts: Sequence[Number] = (),
    base_rate: Number | None = None,
    changes: Changes | None = None,
) -> PlanReport:
    """Say what people would be promised and how many of them it takes.

    Parameters
    ----------
    experiment : str, Path or ExperimentConfig, optional
        A file or an experiment; what else is given overrides it.
    arms, horizon, epsilon, mechanism :
        How many arms are compared, on how many people, on which terms.
    gaps, lifts : Sequence[Number]
        Differences of means to tell apart, in the unit of the outcomes, or relative to
        `base_rate`.
    base_rate : Number, optional
        Mean of the other arms, for what is typical.
    changes : Mapping[str, Any], optional
        Keys of the experiment's file with other values: ``{"privacy.epsilon": 0.5}``.
    """
    from wallflower.planning.plan import make_plan

    given = {
        "arms": arms,
        "horizon": horizon,
        "epsilon": epsilon,
        "mechanism": mechanism,
    }
    config, request = read_plan_request(
        experiment, given, gaps, lifts, base_rate=base_rate, changes=changes
    )
    stated = {name for name, value in given.items() if value is not None}
    with _named_file(experiment, stated | _last_words(changes)):
        made = make_plan(request)
    warning = "" if experiment is None else describe_other_policy(config)
    return PlanReport(made, _count_askable(config), warning)


def read_plan_request(
    experiment: Source | None,
    given: Mapping[str, Any],
    gaps: Sequence[Number],
    lifts: Sequence[Number],
    *,
    base_rate: Number | None,
    changes: Changes | None,
) -> tuple[ExperimentConfig, PlanRequest]:
    """Read what is to be planned; `given` are parameters of `plan`, None left out."""
    from wallflower.planning.request import read_request
    from wallflower.planning.units import expected_base_rate, read_gaps
    from wallflower.protocol.numbers import positive, whole
    from wallflower.stated_experiment import read_experiment

    read: Mapping[str, Callable[[Any], Any]] = {
        "arms": lambda value: whole("arms", value, at_least=2, at_most=100_000),
        "horizon": lambda value: whole("horizon", value, at_least=1, at_most=10**15),
        "epsilon": lambda value: positive("epsilon", value),
        "mechanism": str,
    }
    flags = {
        name: read[name](value) for name, value in given.items() if value is not None
    }
    stated = read_experiment(experiment, changes or {}, _USUAL_PLAN)
    config = stated.config
    question = read_gaps(
        config.reward_range, gaps, lifts, base_rate, expected_base_rate(config)
    )
    with _named_file(experiment, {*flags, *_last_words(changes)}):
        return stated.config, read_request(stated, flags, question)


def describe_other_policy(config: ExperimentConfig) -> str:
    """Say why a plan is not one of the experiment's own policy; empty where it is."""
    from wallflower.policy_text import describe_purpose
    from wallflower.strategy.policy_names import ELIMINATION

    name = config.policy.name
    if name == ELIMINATION:
        return ""
    return f"{describe_purpose(name)} This plans {ELIMINATION}."


def _count_askable(config: ExperimentConfig) -> Askable | None:
    if config.nodes.ledger is None:
        return None
    from wallflower.engines.population import count_askable

    return count_askable(config)


def simulate(
    experiment: Source | None = None,
    *,
    arms: Number | None = None,
    horizon: Number | None = None,
    epsilon: Number | None = None,
    mechanism: str | None = None,
    policy: str | None = None,
    changes: Changes | None = None,
    instances: Number = 1,
    engine: str = "fast",
    seed: Number = 0,
    on_step: Callable[[float], bool] | None = None,
) -> SimulationReport:
    """Simulate experiments, exact in law: regret, users and intervals.

    Parameters
    ----------
    experiment : str, Path or ExperimentConfig, optional
        A file or an experiment; what else is given overrides it.
    arms, horizon, epsilon, mechanism, policy :
        How many arms are compared, on how many people, on which terms, and how.
    changes : Mapping[str, Any], optional
        Keys of the experiment's file with other values: ``{"privacy.epsilon": 0.5}``.
    instances : Number
        How many independent experiments.
    engine : str
        ``fast``, or ``users``: one by one.
    seed : Number
        Decides all randomness.
    on_step : Callable[[float], bool], optional
        Gets the part that is done, now and then; returns whether to stop.
    """
    from wallflower.protocol.numbers import positive, whole
    from wallflower.regret.setup import USUAL, Request, prepare

    stated = None
    if experiment is not None or changes:
        from wallflower.stated_experiment import read_experiment

        stated = read_experiment(experiment, changes or {}, USUAL)
    request = Request(
        experiment=stated,
        arms=None if arms is None else whole("arms", arms, at_least=2),
        horizon=None if horizon is None else whole("horizon", horizon, at_least=1),
        epsilon=None if epsilon is None else positive("epsilon", epsilon),
        mechanism=mechanism,
        policy=policy,
        instances=whole("instances", instances, at_least=1, at_most=1_000_000),
        engine=engine,
        seed=whole("seed", seed, at_least=0),
    )
    given = {"instances", "engine", "seed", *request.policy_changes}
    given |= _last_words(changes) | ({"arms"} if arms is not None else set())
    with _named_file(experiment, given):
        prepared = prepare(request)
    for part in prepared.engine.steps():
        if on_step is not None and on_step(part):
            break
    return SimulationReport(prepared, prepared.engine.result())


def check(
    file: Source,
    *,
    engine: str = "local",
    run_dir: str | Path = "runs",
    options: Mapping[str, str] | None = None,
) -> CheckReport:
    """Look at everything a run needs, without asking anybody.

    Parameters
    ----------
    file : str, Path or ExperimentConfig
        An experiment, or a node's ``node.toml``.
    engine : str
        ``local``, ``simulation``, ``deployment`` or ``fast``.
    run_dir : str or Path
        Where the record would go.
    options : Mapping[str, str], optional
        For the engine.
    """
    from wallflower.engines.preflight import Preflight, check_experiment
    from wallflower.engines.registry import find_engine
    from wallflower.protocol.files.settings import read_toml
    from wallflower.stated_experiment import experiment_of

    if isinstance(file, str | Path):
        path = Path(file)
        tables = read_toml(path).keys()
        if path.name == "node.toml" and tables & {"node", "policy"}:
            from wallflower.engines.node_check import check_home

            return CheckReport(path, tuple(check_home(path.parent)))
    find_engine(engine)
    config, pairs = experiment_of(file), tuple((options or {}).items())
    lines = check_experiment(Preflight(config, engine, Path(run_dir), pairs))
    named = Path(file) if isinstance(file, str | Path) else None
    return CheckReport(named or Path(config.experiment.name), tuple(lines))


def run(
    experiment: Source,
    *,
    engine: str = "local",
    run_dir: str | Path | None = None,
    options: Mapping[str, str] | None = None,
    until: str | None = None,
    page: bool = False,
) -> Run:
    """Run a private experiment to its end; standard error shows how it goes.

    Interrupting it once stops it after the round under way, twice at once.

    Parameters
    ----------
    experiment : str, Path or ExperimentConfig
        A file or an experiment.
    engine : str
        ``local``, ``simulation``, ``deployment`` or ``fast``.
    run_dir : str or Path, optional
        Where the record goes; by default ``runs/<id>``.
    options : Mapping[str, str], optional
        For the engine.
    until : str, optional
        Begin no round after this time of day, ``HH:MM``.
    page : bool
        Show the run in a browser while it goes on.
    """
    from wallflower.engines.run import start_run
    from wallflower.results.page import load_run

    folder = None if run_dir is None else Path(run_dir)
    pairs = tuple((options or {}).items())
    return load_run(start_run(experiment, engine, folder, pairs, until, page=page))


def resume(
    run: str | Path,
    *,
    options: Mapping[str, str] | None = None,
    until: str | None = None,
    page: bool = False,
    standby: bool = False,
) -> Run:
    """Go on with a run after an interruption or a crash.

    Parameters
    ----------
    run : str or Path
        Its directory, or its id.
    options, until, page :
        As of `run`.
    standby :
        Wait until no other server works on the run.
    """
    from wallflower.engines.run import resume_run
    from wallflower.results.page import load_run

    pairs = tuple((options or {}).items())
    return load_run(resume_run(str(run), pairs, until, page=page, standby=standby))


def verify(run: str | Path, heads: Sequence[str] = ()) -> Verification:
    """Replay a run's record and recompute everything that it claims.

    Parameters
    ----------
    run : str or Path
        Its directory, or its id.
    heads : Sequence[str]
        Heads that were printed earlier: the record must still have them.
    """
    from wallflower.protocol.rewards.seeded import TEST_MODE
    from wallflower.results.result import read_result
    from wallflower.results.run_folder import find_run, ledger_checks
    from wallflower.strategy.run.verify import verify as checks_of
    from wallflower.strategy.store.chain import check_head
    from wallflower.strategy.store.journal import Journal

    for head in heads:
        check_head(head)
    directory = find_run(str(run))
    with Journal.read(directory) as journal:
        checks = (*checks_of(journal, heads), *ledger_checks(journal))
        # Of a record that does not hold nothing is promised, but a test stays one.
        good = all(check.holds for check in checks)
        result = read_result(journal) if good else None
        promise = None if result is None else result.promise()
        test_mode = journal.config.test_mode
        return Verification(
            run_id=journal.run_id,
            run_dir=directory,
            head=journal.head,
            checks=checks,
            promise=TEST_MODE if test_mode else promise,
            result=result,
            test_mode=test_mode,
        )


@contextmanager
def _named_file(source: Source | None, given: Collection[str]) -> Iterator[None]:
    """Name the file in which a value is wrong, unless that value was `given`."""
    from wallflower.protocol.errors import ConfigError, InputError

    try:
        yield
    except ConfigError:
        raise
    except InputError as error:
        by_hand = error.parameter.replace("-", "_") in given
        if not isinstance(source, str | Path) or by_hand:
            raise
        raise ConfigError(str(source), str(error)) from None


def _last_words(changes: Changes | None) -> set[str]:
    """Return the last words of all keys that are changed."""
    return {key.rpartition(".")[2] for key in changes or {}}
