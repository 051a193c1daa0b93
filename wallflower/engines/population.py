"""The population that an engine hosts itself: nodes, users, rewards and their ledger.

The ledger is made before anybody is invited and grows before anything is answered. So
one that is gone, emptied or older than the journal was changed or lost. Continuing with
a new one would silently let people be asked beyond their budget.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path

from wallflower.clients.consent import ClientPolicy, load_policy
from wallflower.clients.host.assemble import NodeSetup, make_node
from wallflower.clients.node.ledger import Ledger
from wallflower.clients.node.ledger_tables import read_accounts
from wallflower.clients.node.node import CountOutcomes, Node
from wallflower.clients.node.rollback_counter import RollbackCounter
from wallflower.clients.node.spends import NodeAccount, make_spend
from wallflower.clients.rewards.local import (
    TableRewards,
    reward_source,
    shared_tables,
)
from wallflower.clients.rewards.ready import check_test_users
from wallflower.clients.rewards.source import Rewards, RewardsOf
from wallflower.protocol.accounting.account import NOTHING, Cost
from wallflower.protocol.cohort import cohort_mechanism
from wallflower.protocol.errors import (
    ConfigError,
    InputError,
    RefusalError,
    UnavailableError,
)
from wallflower.protocol.identity.enrolment import EnrolmentKey, NodeIdentity
from wallflower.protocol.messages.port import NodeId, NodeTransport
from wallflower.protocol.rewards.outcome_window import OutcomeWindow
from wallflower.results.run_folder import ledger_path
from wallflower.strategy.bandit.policies import policy_for
from wallflower.strategy.config import ExperimentConfig
from wallflower.strategy.run.cohort import describe_cohort
from wallflower.strategy.run.drawing import make_floor_rule
from wallflower.strategy.store.entries import Askable, Met
from wallflower.strategy.transport.shuffler import ShufflerFiles

_CERTIFICATE_DAYS = 30


def node_names(config: ExperimentConfig) -> tuple[str, ...]:
    """Name the hosted nodes; the same names in every engine and after a resume."""
    return tuple(map(node_name, range(config.nodes.count)))


def node_name(number: int) -> str:
    """Name the hosted node of this number, counted from 0."""
    return f"node-{number}"


def trustee_names(config: ExperimentConfig) -> tuple[str, ...]:
    """Name the trustees of a rehearsal: stated ones, or as few as there may be."""
    if config.visitors is None:
        return ()
    few = range(config.visitors.least_trustees)
    return config.visitors.trustees or tuple(f"trustee-{number}" for number in few)


def agreed_policy(
    config: ExperimentConfig, shufflers: tuple[str, ...] = ()
) -> ClientPolicy:
    """Return the users' terms: their file's, or exactly what the experiment says."""
    if config.nodes.policy is not None:
        return load_policy(config.nodes.policy)
    privacy, secure_sum = config.privacy, config.secure_sum
    return ClientPolicy(
        largest_epsilon=privacy.epsilon,
        largest_total_epsilon=_largest_total(config),
        largest_participations=privacy.max_participations,
        smallest_cohort=2,
        smallest_trustees=(
            2 if config.visitors is None else config.visitors.least_trustees
        ),
        trustees=trustee_names(config),
        smallest_floor_fraction=Fraction(0),
        smallest_corrupt=secure_sum.corrupt,
        malicious_server=secure_sum.server == "malicious",
        mechanisms=(privacy.mechanism,),
        backends=(secure_sum.backend,),
        shufflers=shufflers or _stated_shuffler(config),
    )


def _stated_shuffler(config: ExperimentConfig) -> tuple[str, ...]:
    folder = config.secure_sum.shuffler_files
    return () if folder is None else (ShufflerFiles.read(folder).fingerprint,)


def _largest_total(config: ExperimentConfig) -> Fraction:
    """Return what so many of the experiment's cohorts may cost a user, as (ε, δ)-DP."""
    privacy = config.privacy
    promise = config.mechanism().for_cohort(2, 2, Fraction(1, 2)).guarantee()
    proved = config.secure_sum.inputs == "proved"
    cost = dataclasses.replace(
        Cost.at_most(promise.kind, privacy.epsilon),
        privacy_delta=Cost.of(promise, proved).privacy_delta,
    )
    account = NOTHING
    for _ in range(privacy.max_participations):
        account = account.plus(cost)
    total = account.total(ClientPolicy().privacy_delta)
    if total is None:  # nothing is promised, so nothing is kept account of
        return privacy.epsilon
    return total if total < 1000 else Fraction(math.ceil(total))


class Enrolment:
    """An enrolment authority inside the process, for engines that host all nodes.

    What a lying server could do is the same with it; that nobody but this process
    holds the key is a matter of course here.
    """

    def __init__(self, config: ExperimentConfig) -> None:
        key = EnrolmentKey.generate()
        not_after = int(time.time()) + _CERTIFICATE_DAYS * 86_400
        self.public_key = key.public_key
        self.identities: dict[str, NodeIdentity] = {}
        for name, users in zip(node_names(config), config.nodes.sizes, strict=True):
            identity = NodeIdentity.generate(name)
            certificate = key.issue(
                name, identity.public_key, not_after=not_after, capacity=users
            )
            self.identities[name] = identity.enrolled(certificate)


def hosted_nodes(
    config: ExperimentConfig,
    ledger: Ledger,
    enrolment: Enrolment | None,
    shufflers: tuple[str, ...] = (),
    count: CountOutcomes = lambda shown, unknown: None,
) -> Mapping[str, Node]:
    """Build every node of ``[nodes]`` with the rewards of ``[rewards]``."""
    setup = hosted_setup(
        config,
        ledger,
        lambda name: enrolment.identities[name] if enrolment else None,
        enrolment.public_key if enrolment else None,
        shufflers=shufflers,
    )
    setup = dataclasses.replace(setup, count=count)
    trust = setup.trust()
    return {
        name: make_node(setup, name, users_of(setup.source(name), users), trust)
        for name, users in zip(node_names(config), config.nodes.sizes, strict=True)
    }


def hosted_setup(
    config: ExperimentConfig,
    ledger: Ledger,
    identity: Callable[[str], NodeIdentity | None],
    enrolment_key: bytes | None,
    rewards: RewardsOf | None = None,
    shufflers: tuple[str, ...] = (),
) -> NodeSetup:
    """Return what all hosted nodes share; `rewards` replaces ``[rewards]``."""
    return NodeSetup(
        policy=agreed_policy(config, shufflers),
        ledger=ledger,
        source=reward_sources(config) if rewards is None else rewards,
        identity=identity,
        enrolment_key=enrolment_key,
        noise_seed=config.test.noise_seed,
        window=hosted_window(config),
        reward_range=config.reward_range,
    )


def users_of(source: Rewards, count: int) -> tuple[str, ...]:
    """Name the users behind a source: its table's, or numbered ones."""
    if isinstance(source, TableRewards):
        return source.users
    return _numbered_users(count)


def _numbered_users(count: int) -> tuple[str, ...]:
    """Name users of whom nothing else is known."""
    return tuple(f"u{number}" for number in range(count))


def reward_sources(config: ExperimentConfig) -> RewardsOf:
    """Return each node's source; all share one unless each has a file of its own."""
    settings = config.rewards
    if settings is None:
        raise ConfigError(
            "rewards", "the section is missing; this engine hosts the users itself"
        )
    arms = config.experiment.arms
    check_test_users(settings.test_users, _numbered_users(max(config.nodes.sizes)))
    known: dict[str, Rewards] = {}
    own_file = settings.table is not None
    if settings.shared_table is not None:
        parts = shared_tables(settings, arms, config.nodes.count)
        known |= dict(zip(node_names(config), parts, strict=True))

    def source(name: str) -> Rewards:
        key = name if own_file else ""
        if key not in known:
            known[key] = reward_source(settings, name, arms, config.test.noise_seed)
        return known[key]

    return source


def hosted_window(config: ExperimentConfig) -> OutcomeWindow:
    """Return the window of hosted nodes: none where outcomes stand in a file or model.

    They are known at once, and a rehearsal need not take as long as the experiment.
    """
    settings, window = config.rewards, config.window
    at_once = settings is None or settings.source in ("synthetic", "table")
    return dataclasses.replace(window, seconds=None) if at_once else window


def check_known_people(config: ExperimentConfig, engine: str) -> None:
    """Refuse people who arrive where nobody could take a seat."""
    if config.visitors is not None:
        raise InputError(
            "engine", f'"{engine}" with [visitors]', "local (a rehearsal) or serve"
        )


def check_rewards(config: ExperimentConfig) -> None:
    """Refuse a reward source that cannot be opened: files, functions, addresses."""
    source = reward_sources(config)
    table = config.rewards is not None and config.rewards.table is not None
    for name in node_names(config) if table else node_names(config)[:1]:
        source(name)


def read_file(key: str, path: Path) -> bytes:
    """Read a file that the config names; an error names the key."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(key, f"{path} cannot be read ({error.strerror})") from None


def hosted_ledger(run_dir: Path, shared: Path | None = None) -> Ledger:
    """Open the ledger of a run's hosted nodes; see `check_hosted_ledger` first.

    `shared` is the file of ``nodes.ledger``, which several experiments write to.
    """
    if shared is not None:
        return Ledger(shared, RollbackCounter(shared.with_suffix(".counter")))
    # Not flushed: what a power cut may lose of the counter, the journal has.
    counter = RollbackCounter(run_dir / "ledger.counter", durable=False)
    return Ledger(ledger_path(run_dir), counter)


class LedgeredTransport:
    """A port to hosted nodes that are there only while their ledger can be written.

    Who is there is asked before anybody is drawn: nobody is invited whose answer could
    not be sent.
    """

    def __init__(self, port: NodeTransport, ledger: Ledger) -> None:
        self._port = port
        self._ledger = ledger
        self.ask = port.ask  # only who is there is a matter of the ledger's

    async def nodes(self) -> Sequence[NodeId]:
        """Name the nodes; UnavailableError where the ledger is locked or full."""
        try:
            await self._ledger.check_writable()
        except RefusalError as refusal:
            raise UnavailableError(
                f"{refusal.detail}; nobody was invited: free it and `resume`"
            ) from None
        return await self._port.nodes()


_NEW_RUN = "a run that is yet to begin"


def hosted_people(
    config: ExperimentConfig, shufflers: tuple[str, ...] = ()
) -> Mapping[str, Met]:
    """Return how many people each hosted node has, and how many it would leave out."""
    names, sizes = node_names(config), config.nodes.sizes
    path = config.nodes.ledger
    if path is None or not path.exists():
        return dict(zip(names, map(Met, sizes), strict=True))
    policy, accounts = agreed_policy(config, shufflers), read_accounts(path)
    cohort_request = policy_for(config).next_cohorts()[0]
    floor = make_floor_rule(config, config.nodes.count).floor(cohort_request.size)
    spec = describe_cohort(config, _NEW_RUN, cohort_request, floor, 1)
    mechanism, source = cohort_mechanism(spec), reward_sources(config)
    people = {}
    for name, size in zip(names, sizes, strict=True):
        users = users_of(source(name), size)
        spend = make_spend(policy, name, spec, mechanism, users)
        unable = accounts.get(name, NodeAccount()).find_unable(spend)
        people[name] = Met(len(users), len(unable))
    return people


def count_askable(config: ExperimentConfig) -> Askable | None:
    """Count whom an experiment could ask; None where no ledger tells."""
    path = config.nodes.ledger
    if path is None or config.rewards is None or not path.exists():
        return None
    return Askable.count(hosted_people(config), 0)
